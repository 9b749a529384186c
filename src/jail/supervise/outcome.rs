//! What became of a run.

use kvro_ledger::event::EndedBy;
use kvro_sandbox::{Ended, LaunchError, Step};

use super::ending::Cause;
use crate::failure;

/// How a run ended, in the words of the ledger and the report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    pub code: u8,
    pub ended_by: EndedBy,
    pub reason: String,
}

impl Outcome {
    /// The supervisor's own decision weighs more than the command's last word: a client that was
    /// cut off may well exit 0.
    #[must_use]
    pub fn of(cause: Option<Cause>, ended: Option<Ended>) -> Self {
        let own = Self::of_command(ended);
        let Some(cause) = cause else { return own };
        Self {
            code: cause.code().unwrap_or(own.code),
            ended_by: cause.ended_by(),
            reason: cause.reason().to_owned(),
        }
    }

    fn of_command(ended: Option<Ended>) -> Self {
        match ended {
            Some(Ended::Exited(code)) => {
                let reason = format!("the command exited with {code}");
                Self { code, ended_by: EndedBy::Exit, reason }
            }
            Some(Ended::Signaled(signal)) => Self::of_signal(signal),
            // Pid 1 went without a word: somebody killed it from outside.
            None => Self::of_signal(9),
        }
    }

    fn of_signal(signal: i32) -> Self {
        Self {
            code: 128_u8.saturating_add(u8::try_from(signal).unwrap_or(0)),
            ended_by: EndedBy::Signal,
            reason: format!("signal {signal} ended the command"),
        }
    }

    /// The command was never run.
    #[must_use]
    pub fn not_run(error: &LaunchError, program: &str) -> Self {
        let (code, reason) = match error {
            LaunchError::Step { step: Step::Execute, cause } => {
                (failure::exec_code(cause), format!("cannot run {program}: {cause}"))
            }
            LaunchError::Step { step, cause } => {
                (failure::SETUP, format!("cannot {step}: {cause}"))
            }
            LaunchError::Spawn(_) | LaunchError::Silent => (failure::SETUP, error.to_string()),
        };
        Self { code, ended_by: EndedBy::Setup, reason }
    }
}
