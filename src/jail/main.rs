//! The `kvro-jail` program.

fn main() {}
