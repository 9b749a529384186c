//! The program: command line, policy, supervision and reports.

pub mod limits;
pub mod policy;
pub mod surroundings;
pub mod workspace;
