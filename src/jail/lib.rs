//! The program: command line, policy, supervision and reports.
