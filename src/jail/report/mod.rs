//! What a run looks like to a person: the summary at its end, and text that is safe to print.
//!
//! Pure: whoever calls decides where the words go.

mod file;
mod harmless;
mod summary;

pub use file::{ReportError, ReportFile};
pub use harmless::{harmless, harmless_json};
pub use summary::{Style, span, summary};
