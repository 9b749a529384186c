//! The real clients, through the jail.

fn main() {}
