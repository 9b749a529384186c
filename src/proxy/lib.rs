//! The one door: which bytes may leave a jail, and what inference costs.
