//! Datagrams that are answered from the address they were sent to.
//!
//! In a jail every address is local, so a question may go to any resolver's address, and clients
//! drop an answer that comes from another one. A socket that listens on every address would answer
//! from whichever the kernel prefers: 127.0.0.1 to a question put to 127.0.0.53.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsRawFd;

use nix::cmsg_space;
use nix::libc::{in_addr, in_pktinfo, in6_addr, in6_pktinfo};
use nix::sys::socket::sockopt::{IpFreebind, Ipv4PacketInfo, Ipv6RecvPacketInfo};
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sendmsg, setsockopt,
};
use tokio::io::Interest;
use tokio::net::UdpSocket;

/// Where a datagram came from, and which of our addresses it was sent to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Way {
    from: SockaddrStorage,
    to: Option<IpAddr>,
}

/// Asks the kernel to say which address each datagram was sent to.
pub(crate) fn learn_destinations(socket: &std::net::UdpSocket) -> io::Result<()> {
    if socket.local_addr()?.is_ipv6() {
        setsockopt(socket, Ipv6RecvPacketInfo, &true)?;
        // A route makes an address local enough to receive on; to send from it, IPv6 wants it on
        // an interface, or this.
        setsockopt(socket, IpFreebind, &true)?;
    } else {
        setsockopt(socket, Ipv4PacketInfo, &true)?;
    }
    Ok(())
}

/// Takes the next datagram, cut to the buffer.
pub(super) async fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<(usize, Way)> {
    let take = || receive_now(socket, buffer);
    socket.async_io(Interest::READABLE, take).await
}

fn receive_now(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<(usize, Way)> {
    let mut control = cmsg_space!(in6_pktinfo);
    let mut pieces = [IoSliceMut::new(buffer)];
    let flags = MsgFlags::MSG_DONTWAIT;
    let message =
        recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut pieces, Some(&mut control), flags)?;
    let from = message.address.ok_or(io::ErrorKind::AddrNotAvailable)?;
    let to = message.cmsgs()?.find_map(destination);
    Ok((message.bytes, Way { from, to }))
}

fn destination(message: ControlMessageOwned) -> Option<IpAddr> {
    if let ControlMessageOwned::Ipv4PacketInfo(packet) = message {
        return Some(Ipv4Addr::from(packet.ipi_addr.s_addr.to_ne_bytes()).into());
    }
    if let ControlMessageOwned::Ipv6PacketInfo(packet) = message {
        return Some(Ipv6Addr::from(packet.ipi6_addr.s6_addr).into());
    }
    None
}

/// Answers along the way that a datagram came.
pub(super) async fn send(socket: &UdpSocket, reply: &[u8], way: &Way) -> io::Result<()> {
    socket.async_io(Interest::WRITABLE, || send_now(socket, reply, way)).await
}

fn send_now(socket: &UdpSocket, reply: &[u8], way: &Way) -> io::Result<()> {
    let (v4, v6);
    let control = match way.to {
        Some(IpAddr::V4(own)) => {
            let none = in_addr { s_addr: 0 };
            let own = in_addr { s_addr: u32::from_ne_bytes(own.octets()) };
            v4 = in_pktinfo { ipi_ifindex: 0, ipi_spec_dst: own, ipi_addr: none };
            Some(ControlMessage::Ipv4PacketInfo(&v4))
        }
        Some(IpAddr::V6(own)) => {
            let own = in6_addr { s6_addr: own.octets() };
            v6 = in6_pktinfo { ipi6_addr: own, ipi6_ifindex: 0 };
            Some(ControlMessage::Ipv6PacketInfo(&v6))
        }
        None => None,
    };
    let (fd, pieces) = (socket.as_raw_fd(), [IoSlice::new(reply)]);
    sendmsg(fd, &pieces, control.as_slice(), MsgFlags::MSG_DONTWAIT, Some(&way.from))?;
    Ok(())
}
