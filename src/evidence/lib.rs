//! Contracts, verdicts and metrics: pure folds over ledger entries.

pub mod report;

pub use report::RunReport;
