//! Packet sockets (packet(7)).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::check;

/// Attaches a filter over the packets that `socket` receives.
pub(crate) fn attach_filter(
    socket: BorrowedFd<'_>,
    filter: &[libc::sock_filter],
) -> io::Result<()> {
    let len = u16::try_from(filter.len()).map_err(io::Error::other)?;
    let program = libc::sock_fprog { len, filter: filter.as_ptr().cast_mut() };
    let size =
        libc::socklen_t::try_from(size_of::<libc::sock_fprog>()).map_err(io::Error::other)?;
    // SAFETY: `program` points into `filter`, which outlives the call, and the kernel copies the
    // instructions before it returns; it never writes to them.
    check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            std::ptr::from_ref(&program).cast(),
            size,
        )
    })?;
    Ok(())
}

/// Lets a packet socket receive every protocol on every interface.
pub(crate) fn receive_everything(socket: BorrowedFd<'_>) -> io::Result<()> {
    let protocol = u16::try_from(libc::ETH_P_ALL).map_err(io::Error::other)?;
    let address = libc::sockaddr_ll {
        sll_family: u16::try_from(libc::AF_PACKET).map_err(io::Error::other)?,
        sll_protocol: protocol.to_be(),
        sll_ifindex: 0,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let size =
        libc::socklen_t::try_from(size_of::<libc::sockaddr_ll>()).map_err(io::Error::other)?;
    // SAFETY: `address` has the kernel's layout and outlives the call.
    check(unsafe { libc::bind(socket.as_raw_fd(), std::ptr::from_ref(&address).cast(), size) })?;
    Ok(())
}
