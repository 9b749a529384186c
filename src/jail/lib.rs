//! The program: command line, policy, supervision and reports.

pub mod budget;
pub mod limits;
pub mod policy;
pub mod surroundings;
pub mod workspace;
