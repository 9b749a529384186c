//! Contracts, verdicts and metrics: pure folds over ledger entries.
