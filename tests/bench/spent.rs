//! Processor time.

use nix::sys::resource::{Usage, UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;

/// Milliseconds of processor time, of all processes that were waited for and of theirs.
pub(crate) fn spent() -> nix::Result<f64> {
    let used = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let both = [Usage::user_time, Usage::system_time].map(|time| time(&used).num_microseconds());
    #[expect(clippy::cast_precision_loss, reason = "a figure to print")]
    Ok(both.iter().sum::<i64>() as f64 / 1000.0)
}
