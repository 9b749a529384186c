//! The jail's network: a loopback on which every address is local, and the door's sockets.
//!
//! With `local 0.0.0.0/0 dev lo` any address is this machine's own, so that a listener on
//! `[::]:443` receives connections meant for any host, and `getsockname` tells which. Nothing has a
//! route out. The sockets are made here and served from outside.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, Backlog, NetlinkAddr, SockFlag, SockProtocol, SockType, SockaddrIn, SockaddrIn6,
    bind, listen, recv, send, setsockopt, socket, sockopt,
};

use crate::observe::tap;
use crate::step::{During, Step, StepFailed};

const DNS_PORT: u16 = 53;

/// The door's sockets in the jail's network namespace.
#[derive(Debug)]
pub(crate) struct Sockets {
    /// In the order of the plan's ports.
    pub(crate) tcp: Vec<OwnedFd>,
    pub(crate) dns_udp: Vec<OwnedFd>,
    pub(crate) dns_tcp: Vec<OwnedFd>,
    pub(crate) tap: OwnedFd,
}

/// The loopback, up and with every address local.
#[derive(Debug)]
pub(crate) struct Network {
    has_ipv6: bool,
}

impl Network {
    /// Makes the network of the namespace that this process is in.
    pub(crate) fn raise() -> Result<Self, StepFailed> {
        Ok(Self { has_ipv6: route_everything_here()? })
    }

    /// Opens the door's sockets, the listeners on `ports` among them.
    pub(crate) fn open(&self, ports: &[u16]) -> Result<Sockets, StepFailed> {
        let tcp = |port| listener(port, self.has_ipv6).during(|| Step::Listen(port));
        let udp = |port| datagrams(port, self.has_ipv6).during(|| Step::Listen(port));
        Ok(Sockets {
            tcp: ports.iter().map(|&port| tcp(port)).collect::<Result<_, _>>()?,
            dns_udp: vec![udp(DNS_PORT)?],
            dns_tcp: vec![tcp(DNS_PORT)?],
            tap: tap::open(ports).during(|| Step::OpenTap)?,
        })
    }
}

fn listener(port: u16, has_ipv6: bool) -> io::Result<OwnedFd> {
    let socket = bound(SockType::Stream, port, has_ipv6)?;
    listen(&socket, Backlog::new(1024)?)?;
    Ok(socket)
}

fn datagrams(port: u16, has_ipv6: bool) -> io::Result<OwnedFd> {
    bound(SockType::Datagram, port, has_ipv6)
}

/// A socket on `port` of every address, of both families where the kernel has both.
fn bound(kind: SockType, port: u16, has_ipv6: bool) -> io::Result<OwnedFd> {
    let family = if has_ipv6 { AddressFamily::Inet6 } else { AddressFamily::Inet };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(family, kind, flags, None)?;
    if has_ipv6 {
        setsockopt(&socket, sockopt::Ipv6V6Only, &false)?;
        let everywhere = std::net::SocketAddrV6::new(std::net::Ipv6Addr::UNSPECIFIED, port, 0, 0);
        bind(socket.as_raw_fd(), &SockaddrIn6::from(everywhere))?;
    } else {
        let everywhere = std::net::SocketAddrV4::new(std::net::Ipv4Addr::UNSPECIFIED, port);
        bind(socket.as_raw_fd(), &SockaddrIn::from(everywhere))?;
    }
    Ok(socket)
}

/// Brings up the loopback and makes every address local; says whether IPv6 is there.
fn route_everything_here() -> Result<bool, StepFailed> {
    let netlink = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkRoute,
    )
    .during(|| Step::BringUpLoopback)?;
    bind(netlink.as_raw_fd(), &NetlinkAddr::new(0, 0)).during(|| Step::BringUpLoopback)?;
    request(netlink.as_fd(), &link_up()).during(|| Step::BringUpLoopback)?;
    // Defence::NetworkNamespace: network::a_datagram_reaches_nobody.
    request(netlink.as_fd(), &local_route(libc::AF_INET)).during(|| Step::RouteToDoor)?;
    match request(netlink.as_fd(), &local_route(libc::AF_INET6)) {
        Ok(()) => Ok(true),
        Err(Errno::EOPNOTSUPP | Errno::EAFNOSUPPORT | Errno::EACCES) => Ok(false),
        Err(other) => Err(other).during(|| Step::RouteToDoor),
    }
}

/// The loopback's index in every network namespace.
const LOOPBACK: u32 = 1;

// From include/uapi/linux/{netlink,rtnetlink}.h.
const NLMSG_ERROR: u16 = 2;
const HEADER: usize = 16;

/// `ip link set lo up` as an RTM_NEWLINK message (rtnetlink(7)).
fn link_up() -> Vec<u8> {
    let up = u32::try_from(libc::IFF_UP).unwrap_or_default();
    let mut body = vec![0_u8; 4];
    body.extend(LOOPBACK.to_ne_bytes());
    body.extend(up.to_ne_bytes());
    body.extend(up.to_ne_bytes());
    message(libc::RTM_NEWLINK, libc::NLM_F_ACK, &body)
}

/// `ip route add local default dev lo table local` as an RTM_NEWROUTE message (rtnetlink(7)).
fn local_route(family: libc::c_int) -> Vec<u8> {
    let family = u8::try_from(family).unwrap_or_default();
    let mut body = vec![
        family,
        0, // destination prefix length: everything
        0,
        0,
        libc::RT_TABLE_LOCAL,
        libc::RTPROT_BOOT,
        libc::RT_SCOPE_HOST,
        libc::RTN_LOCAL,
    ];
    body.extend(0_u32.to_ne_bytes());
    body.extend(8_u16.to_ne_bytes());
    body.extend(libc::RTA_OIF.to_ne_bytes());
    body.extend(LOOPBACK.to_ne_bytes());
    message(libc::RTM_NEWROUTE, libc::NLM_F_ACK | libc::NLM_F_CREATE, &body)
}

fn message(kind: u16, flags: libc::c_int, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(HEADER + body.len()).unwrap_or_default();
    let flags = u16::try_from(flags | libc::NLM_F_REQUEST).unwrap_or_default();
    let mut bytes = Vec::with_capacity(HEADER + body.len());
    bytes.extend(length.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend(1_u32.to_ne_bytes());
    bytes.extend(0_u32.to_ne_bytes());
    bytes.extend(body);
    bytes
}

/// Sends a message and waits for its acknowledgement.
fn request(netlink: BorrowedFd<'_>, message: &[u8]) -> nix::Result<()> {
    use nix::sys::socket::MsgFlags;
    send(netlink.as_raw_fd(), message, MsgFlags::empty())?;
    let mut answer = [0_u8; 1024];
    let length = recv(netlink.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    let field = |at: usize, size: usize| answer[..length].get(at..at + size);
    let kind = field(4, 2).and_then(|bytes| bytes.try_into().ok()).map(u16::from_ne_bytes);
    let error = field(HEADER, 4).and_then(|bytes| bytes.try_into().ok()).map(i32::from_ne_bytes);
    match (kind, error) {
        (Some(NLMSG_ERROR), Some(0)) => Ok(()),
        (Some(NLMSG_ERROR), Some(errno)) => Err(Errno::from_raw(-errno)),
        _ => Err(Errno::EBADMSG),
    }
}
