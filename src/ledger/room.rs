//! Room on the disk for what has to be said last.
//!
//! Blocks are reserved ahead of the ledger's end, so that a disk that others fill is noticed while
//! there is still room to write in the ledger that it is not complete, and how the run ended.

use std::fs::File;
use std::io;

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};

/// What always stays free behind the last entry.
const RESERVE: u64 = 4096;
/// Blocks are reserved in steps of this size.
const STEP: u64 = 64 * 1024;

/// How far a file's blocks are reserved.
#[derive(Debug, Default)]
pub(crate) struct Room {
    reserved: u64,
}

impl Room {
    /// Makes room for a file that will be `len` bytes long, and the reserve behind it.
    pub(crate) fn make(&mut self, file: &File, len: u64) -> io::Result<()> {
        let wanted = len.saturating_add(RESERVE);
        if wanted <= self.reserved {
            return Ok(());
        }
        let reserved = wanted.next_multiple_of(STEP);
        let (from, more) = (offset(self.reserved)?, offset(reserved - self.reserved)?);
        match fallocate(file, FallocateFlags::FALLOC_FL_KEEP_SIZE, from, more) {
            Ok(()) => self.reserved = reserved,
            Err(full @ (Errno::ENOSPC | Errno::EDQUOT | Errno::EIO)) => return Err(full.into()),
            // This file system cannot reserve: a write that fails will tell.
            Err(_) => self.reserved = u64::MAX,
        }
        Ok(())
    }

    /// From now on the reserve may be used up.
    pub(crate) const fn open_reserve(&mut self) {
        self.reserved = u64::MAX;
    }
}

fn offset(bytes: u64) -> io::Result<i64> {
    i64::try_from(bytes).map_err(io::Error::other)
}
