//! Contracts, verdicts and metrics: pure folds over ledger entries.

pub mod processes;
pub mod report;

pub use processes::ProcessRecord;
pub use report::RunReport;
