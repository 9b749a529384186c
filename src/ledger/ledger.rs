//! A run's ledger as its supervisor holds it: opened once, closed once.

use std::io;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use nix::fcntl::FlockArg;

use crate::chain::Head;
use crate::index::{IndexError, IndexEvent, enter};
use crate::recorder::{Failure, Message};
use crate::redact::Redactions;
use crate::state::{StateDir, StateError, lock};
use crate::writer::{Place, Writer};
use crate::{Clock, RecordError, Recorder, RunId};

/// Events that may wait for the writer.
const INBOX: usize = 1024;

/// Why a run's ledger cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("the ledger of {run} cannot be made")]
    State {
        run: RunId,
        #[source]
        cause: StateError,
    },
    #[error("cannot lock the ledger of {run}")]
    Lock {
        run: RunId,
        #[source]
        cause: io::Error,
    },
    #[error("{run} cannot be entered in the index")]
    Index {
        run: RunId,
        #[source]
        cause: IndexError,
    },
    #[error("cannot start the writer of the ledger")]
    Thread(#[source] io::Error),
}

/// Why a run's ledger is not closed. The next run recovers it.
#[derive(Debug, thiserror::Error)]
pub enum CloseError {
    #[error("the ledger is not complete")]
    Incomplete(#[source] RecordError),
    #[error("the end of the run cannot be entered in the index")]
    Index(#[source] IndexError),
    #[error("the end of the run cannot be made durable in the index")]
    Sync(#[source] io::Error),
    #[error("the writer of the ledger is gone")]
    Gone,
}

/// The open ledger of a run. Dropped without being closed, it is left for recovery.
#[derive(Debug)]
pub struct Ledger {
    inbox: SyncSender<Message>,
}

impl Ledger {
    /// Opens the ledger of a new run.
    ///
    /// Nothing is synced here. The first durable record makes the ledger durable, and its name
    /// with it: ext4, xfs and btrfs keep a new file's name once the file is synced. The index
    /// follows while the run starts, so that a launch waits for the disk once.
    pub fn open(
        state: &StateDir,
        run: RunId,
        clock: Clock,
        redactions: Redactions,
    ) -> Result<(Self, Recorder), OpenError> {
        let ledger =
            state.create_run(&run).map_err(|cause| OpenError::State { run: run.clone(), cause })?;
        // Taken before the index knows the run, so that nobody can think it dead.
        let ledger = lock(ledger, FlockArg::LockExclusiveNonblock)
            .map_err(|cause| OpenError::Lock { run: run.clone(), cause })?;
        let index = enter(state, &run, &IndexEvent::RunOpened {}, &clock)
            .map_err(|cause| OpenError::Index { run: run.clone(), cause })?;
        let (inbox, messages) = sync_channel(INBOX);
        let failure = Failure::default();
        let recorder = Recorder::new(inbox.clone(), clock.clone(), failure.clone());
        let at = Place { state: state.clone(), run, file: ledger, index };
        let writer = Writer::new(at, clock, redactions, failure);
        thread::Builder::new()
            .name("kvro-ledger".to_owned())
            .spawn(move || writer.serve(messages))
            .map_err(OpenError::Thread)?;
        Ok((Self { inbox }, recorder))
    }

    /// Writes everything recorded so far, makes it durable and enters the end in the index.
    ///
    /// What is recorded later, through clones of the recorder, is lost.
    pub fn close(self) -> Result<Head, CloseError> {
        let (reply, answer) = sync_channel(1);
        self.inbox.send(Message::Close(reply)).map_err(|_gone| CloseError::Gone)?;
        answer.recv().map_err(|_gone| CloseError::Gone)?
    }
}
