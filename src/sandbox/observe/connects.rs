//! The judge of `connect`: no server of the agent's own may stand in for one outside.
//!
//! Every address is local in the jail, so a listener of the agent's on `0.0.0.0:8080` would answer
//! for every host on that port, and a test that calls production would go green. A connection to an
//! address that is neither the loopback's nor served by the door is refused, and the pid that asked
//! is on record.
//!
//! What is let through is let through by CONTINUE, and the caller could change the address in its
//! memory meanwhile. It gains a connection to a listener inside its own jail and nothing else: there
//! is no route out. The tap sees such a connection all the same.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use nix::sys::socket::{self, getsockopt, sockopt::SockType};

use super::{memory, procfs};
use crate::sys::{self, Notification, Notifier, Verdict};

/// A connection that was refused before a packet left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedConnect {
    pub to: SocketAddr,
    /// The caller's pid inside the jail.
    pub pid: Option<u32>,
    /// The caller's command name (`comm`).
    pub command: Option<String>,
}

/// Answers one notification; says what was refused.
pub(super) fn judge(
    notifier: &Notifier,
    asked: &Notification,
    door_ports: &[u16],
) -> io::Result<Option<RefusedConnect>> {
    let Ok(address) = memory::read_address(asked) else {
        // Memory that cannot be read is never a reason to let a call through.
        notifier.answer(asked, Verdict::Refuse(libc::EACCES))?;
        return Ok(None);
    };
    if !notifier.is_waiting(asked) {
        return Ok(None);
    }
    // Families without an address to judge have none here.
    let target = address.as_deref().and_then(parse);
    // Defence::ConnectJudge: network::a_server_inside_does_not_answer_for_others.
    let Some(to) = target.filter(|to| is_refused(*to, door_ports)) else {
        notifier.answer(asked, Verdict::Continue)?;
        return Ok(None);
    };
    if is_datagram(asked) {
        // Connecting a datagram socket sends nothing; libc does it to choose a source address. The
        // tap sees what is sent.
        notifier.answer(asked, Verdict::Continue)?;
        return Ok(None);
    }
    let pid = procfs::belongs(asked.pid).map(|belongs| belongs.inside);
    let command = procfs::command(asked.pid);
    notifier.answer(asked, Verdict::Refuse(libc::ECONNREFUSED))?;
    Ok(Some(RefusedConnect { to, pid, command }))
}

fn is_refused(to: SocketAddr, door_ports: &[u16]) -> bool {
    const DNS: u16 = 53;
    let address = to.ip().to_canonical();
    let is_own = address.is_loopback() || address.is_unspecified();
    !is_own && to.port() != DNS && !door_ports.contains(&to.port())
}

/// Reads a `sockaddr_in` or `sockaddr_in6` (ip(7), ipv6(7)). What is too short for its family is
/// left to the kernel, which refuses it.
fn parse(bytes: &[u8]) -> Option<SocketAddr> {
    let family: [u8; 2] = bytes.get(..2)?.try_into().ok()?;
    let port: [u8; 2] = bytes.get(2..4)?.try_into().ok()?;
    let ip: IpAddr = match i32::from(u16::from_ne_bytes(family)) {
        libc::AF_INET => Ipv4Addr::from(<[u8; 4]>::try_from(bytes.get(4..8)?).ok()?).into(),
        libc::AF_INET6 => Ipv6Addr::from(<[u8; 16]>::try_from(bytes.get(8..24)?).ok()?).into(),
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_be_bytes(port)))
}

fn is_datagram(asked: &Notification) -> bool {
    let [socket, ..] = asked.args;
    let number = u32::try_from(socket).unwrap_or(u32::MAX).cast_signed();
    let socket = sys::foreign_descriptor(procfs::process_of(asked.pid), number);
    socket.is_ok_and(|socket| getsockopt(&socket, SockType) == Ok(socket::SockType::Datagram))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(address: [u8; 4], port: u16) -> Vec<u8> {
        let family = u16::try_from(libc::AF_INET).unwrap().to_ne_bytes();
        [&family[..], &port.to_be_bytes(), &address, &[0; 8]].concat()
    }

    #[test]
    fn an_address_is_read_as_the_kernel_reads_it() {
        assert_eq!(parse(&v4([8, 8, 8, 8], 6667)), Some("8.8.8.8:6667".parse().unwrap()));
        let family = u16::try_from(libc::AF_INET6).unwrap().to_ne_bytes();
        let port = 443_u16.to_be_bytes();
        let v6 = [&family[..], &port, &[0; 4], &Ipv6Addr::LOCALHOST.octets(), &[0; 4]].concat();
        assert_eq!(parse(&v6), Some("[::1]:443".parse().unwrap()));
        let unix = u16::try_from(libc::AF_UNIX).unwrap().to_ne_bytes();
        assert_eq!(parse(&unix), None);
    }

    #[test]
    fn only_the_loopback_and_the_doors_ports_are_let_through() {
        let refused = |to: &str| is_refused(to.parse().unwrap(), &[80, 443]);
        for to in ["127.0.0.1:8080", "[::1]:5432", "0.0.0.0:8080", "[::]:1", "127.9.9.9:9"] {
            assert!(!refused(to), "{to}");
        }
        for to in ["8.8.8.8:443", "8.8.8.8:80", "8.8.8.8:53", "[::ffff:127.0.0.1]:9"] {
            assert!(!refused(to), "{to}");
        }
        for to in ["8.8.8.8:8080", "[2001:db8::1]:22", "10.0.0.1:5432", "[::ffff:8.8.8.8]:25"] {
            assert!(refused(to), "{to}");
        }
    }
}
