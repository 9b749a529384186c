//! The program: command line, policy, supervision and reports.

pub mod budget;
pub mod cli;
pub mod failure;
pub mod git;
pub mod inspect;
pub mod limits;
pub mod plan;
pub mod policy;
mod replace;
pub mod report;
pub mod start;
pub mod supervise;
pub mod surroundings;
pub mod workspace;
