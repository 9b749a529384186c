//! The memory of a thread that waits for a verdict.

use std::io::{self, IoSliceMut};

use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;

use crate::sys::Notification;

/// The longest path that the kernel takes, its end included.
const PATH_MAX: usize = 4096;

/// No page is smaller than this.
const PAGE: usize = 4096;

/// Fills `bytes` from `address` on in the memory of the thread `pid`.
pub(super) fn read(pid: u32, address: u64, bytes: &mut [u8]) -> io::Result<()> {
    let base = usize::try_from(address).map_err(io::Error::other)?;
    let wanted = bytes.len();
    let remote = [RemoteIoVec { base, len: wanted }];
    let read =
        process_vm_readv(Pid::from_raw(pid.cast_signed()), &mut [IoSliceMut::new(bytes)], &remote)?;
    if read == wanted { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// Reads the address that `connect` or `bind` names; `None` where the kernel takes none so long.
pub(super) fn read_address(asked: &Notification) -> io::Result<Option<Vec<u8>>> {
    let [_, address, length, ..] = asked.args;
    // The kernel takes it as an int.
    let length = usize::try_from(length & u64::from(u32::MAX)).map_err(io::Error::other)?;
    if length > size_of::<libc::sockaddr_storage>() {
        return Ok(None);
    }
    let mut bytes = vec![0; length];
    read(asked.pid, address, &mut bytes)?;
    Ok(Some(bytes))
}

/// Reads the string at `address`, which is no longer than a path.
pub(super) fn read_string(pid: u32, address: u64) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    while text.len() < PATH_MAX {
        // Never beyond a page, where the next one may not be there.
        let at = address + u64::try_from(text.len()).map_err(io::Error::other)?;
        let left = PAGE - usize::try_from(at).map_err(io::Error::other)? % PAGE;
        let mut room = [0; PAGE];
        let piece = &mut room[..left.min(PATH_MAX - text.len())];
        read(pid, at, piece)?;
        if let Some(end) = piece.iter().position(|&byte| byte == 0) {
            text.extend_from_slice(&piece[..end]);
            return Ok(text);
        }
        text.extend_from_slice(piece);
    }
    Err(io::ErrorKind::InvalidFilename.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_is_read_up_to_its_end_and_no_further_than_a_path_goes() {
        let read = |text: &[u8]| {
            read_string(std::process::id(), u64::try_from(text.as_ptr().addr()).unwrap())
        };
        assert_eq!(read(b"name\0rest").unwrap(), b"name");
        // Over the end of a page, wherever the allocation begins.
        let mut long = vec![b'x'; 4095];
        long.push(0);
        assert_eq!(read(&long).unwrap(), long[..4095]);
        let endless = vec![b'x'; 3 * 4096];
        assert_eq!(read(&endless).unwrap_err().kind(), io::ErrorKind::InvalidFilename);
        drop(read_string(std::process::id(), 0).unwrap_err());
    }
}
