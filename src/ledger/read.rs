//! Reading a run's ledger, line by line. Reading changes nothing and needs no lock.

use std::fs::File;
use std::io::{self, BufRead, BufReader};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use crate::state::{Access, StateDir, StateError};
use crate::{Entry, RunId};

/// Why a ledger cannot be read to its end.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("the ledger of {run} cannot be opened")]
    State {
        run: RunId,
        #[source]
        cause: StateError,
    },
    #[error("cannot read the ledger of {run}")]
    Read {
        run: RunId,
        #[source]
        cause: io::Error,
    },
    #[error("line {line} of the ledger of {run} is no entry")]
    NoEntry {
        run: RunId,
        line: u64,
        #[source]
        cause: serde_json::Error,
    },
}

/// The lines of one ledger, in order, without their LF.
///
/// At the end of what is written it gives `None`, and goes on where it stopped when it is asked
/// again later: a line whose LF is not there yet is kept back until it is.
#[derive(Debug)]
pub struct Lines {
    run: RunId,
    file: BufReader<File>,
    partial: Vec<u8>,
    count: u64,
}

impl Lines {
    /// The ledger of `run` from its start.
    pub fn open(state: &StateDir, run: &RunId) -> Result<Self, ReadError> {
        let file = state
            .open_ledger(run, Access::Read)
            .map_err(|cause| ReadError::State { run: run.clone(), cause })?;
        Ok(Self {
            run: run.clone(),
            file: BufReader::with_capacity(64 * 1024, file),
            partial: Vec::new(),
            count: 0,
        })
    }

    /// The next whole line.
    pub fn next_line(&mut self) -> Result<Option<Vec<u8>>, ReadError> {
        let read = self.file.read_until(b'\n', &mut self.partial);
        read.map_err(|cause| ReadError::Read { run: self.run.clone(), cause })?;
        if self.partial.last() != Some(&b'\n') {
            return Ok(None);
        }
        let mut line = std::mem::take(&mut self.partial);
        line.pop();
        self.count += 1;
        Ok(Some(line))
    }

    /// The next whole line as an entry.
    pub fn next_entry(&mut self) -> Result<Option<Entry>, ReadError> {
        let Some(line) = self.next_line()? else {
            return Ok(None);
        };
        let entry = Entry::parse(&line).map_err(|cause| ReadError::NoEntry {
            run: self.run.clone(),
            line: self.count,
            cause,
        })?;
        Ok(Some(entry))
    }

    /// Whether a writer holds this ledger now: whether the run is alive.
    #[must_use]
    pub fn is_held(&self) -> bool {
        let held = self.file.get_ref().try_clone().map(|file| {
            matches!(Flock::lock(file, FlockArg::LockSharedNonblock), Err((_, Errno::EWOULDBLOCK)))
        });
        held.unwrap_or(false)
    }

    /// The bytes behind the last LF, as far as they were read.
    pub(crate) fn rest(&self) -> &[u8] {
        &self.partial
    }
}

/// All entries of `run`.
pub fn entries(state: &StateDir, run: &RunId) -> Result<Vec<Entry>, ReadError> {
    let mut lines = Lines::open(state, run)?;
    std::iter::from_fn(|| lines.next_entry().transpose()).collect()
}
