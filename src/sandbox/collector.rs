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

/// Lets the kernel hold the last descriptor of each of `left`: to be closed here right after.
pub(crate) fn leave(left: &[BorrowedFd<'_>]) -> io::Result<()> {
    let flags = SockFlag::SOCK_CLOEXEC;
    let (queue, writer) = socketpair(AddressFamily::Unix, SockType::Datagram, None, flags)?;
    let mut cycle = vec![queue.as_raw_fd()];
    cycle.extend(left.iter().map(AsRawFd::as_raw_fd));
    let rights = [ControlMessage::ScmRights(&cycle)];
    let word = [IoSlice::new(b"x")];
    sendmsg::<()>(writer.as_raw_fd(), &word, &rights, MsgFlags::empty(), None)?;
    Ok(())
}
