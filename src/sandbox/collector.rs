//! Descriptors whose last close makes the closing process wait, given to the kernel to close.
//!
//! Whoever closes the last descriptor of a packet socket sleeps through an RCU grace period
//! (`packet_release` in net/packet/af_packet.c), and of an inotify instance through one of SRCU
//! (`fsnotify_destroy_group` in fs/notify/group.c): 2 to 20 ms, a good part of a short run. What lies
//! in the queue of a socket pair that nobody can reach any more is closed by the kernel's collector
//! of such cycles instead (net/unix/garbage.c), which keeps nobody waiting.

use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, BorrowedFd};

use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, sendmsg, socketpair,
};

/// Drops `owner`; those of its descriptors that are `left` are closed by the kernel, by and by.
///
/// An error means that they are closed already, which may have taken its time.
pub(crate) fn leave<O>(owner: O, left: impl FnOnce(&O) -> Vec<BorrowedFd<'_>>) -> io::Result<()> {
    let flags = SockFlag::SOCK_CLOEXEC;
    let (queue, writer) = socketpair(AddressFamily::Unix, SockType::Datagram, None, flags)?;
    let mut cycle = vec![queue.as_raw_fd()];
    cycle.extend(left(&owner).iter().map(AsRawFd::as_raw_fd));
    let rights = [ControlMessage::ScmRights(&cycle)];
    let word = [IoSlice::new(b"x")];
    sendmsg::<()>(writer.as_raw_fd(), &word, &rights, MsgFlags::empty(), None)?;
    // While the queue can still be reached: the collector may be faster than we are, and the last
    // close would be ours after all.
    drop(owner);
    // The end of a socket wakes the collector: that of the writer, when nobody else has the queue.
    drop(queue);
    drop(writer);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use nix::poll::{PollFd, PollFlags, poll};
    use nix::unistd::pipe;

    use super::*;

    #[test]
    fn what_is_left_is_closed_by_and_by() {
        let (left, seen) = pipe().unwrap();
        leave(left, |left| vec![left.as_fd()]).unwrap();
        let mut wait = [PollFd::new(seen.as_fd(), PollFlags::empty())];
        assert_eq!(poll(&mut wait, 10_000_u16).unwrap(), 1, "nobody closed it");
        assert_eq!(wait[0].revents(), Some(PollFlags::POLLERR));
    }
}
