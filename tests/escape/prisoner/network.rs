//! Probes of the network: whoever they ask for, nobody outside of this machine is ever meant to
//! hear of it.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixStream};
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket,
};

use super::ok;
use crate::raw;

/// A probe that nobody answers fails its row instead of hanging the suite.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) fn perform(words: &[&str]) -> Option<io::Result<String>> {
    Some(match *words {
        ["connect", to] => connect(to),
        ["connect-to-nowhere"] => connect_to_nowhere(),
        ["connect-local", path] => UnixStream::connect(path).map(|_| ok()),
        ["connect-abstract", name] => connect_abstract(name),
        ["serve-and-connect", at, to] => serve_and_connect(at, to),
        ["connect-storm", at, to] => connect_storm(at, to),
        ["datagram", to] => datagram(to),
        ["ask-for-name", server, name] => ask_for_name(server, name),
        ["look-up", name] => look_up(name),
        ["get", to, host] => get(to, host),
        ["listeners"] => listeners(),
        ["listen", at] => TcpListener::bind(at).map(|_| ok()),
        ["remove-link"] => netlink(libc::RTM_DELLINK, &link_body()),
        ["add-route"] => netlink(libc::RTM_NEWROUTE, &route_body()),
        ["show-link"] => netlink(libc::RTM_GETLINK, &loopback_body()),
        ["raw-socket"] => open_socket(AddressFamily::Inet, SockType::Raw, SockProtocol::Icmp),
        _ => return None,
    })
}

fn address(word: &str) -> io::Result<SocketAddr> {
    word.parse().map_err(io::Error::other)
}

fn connect(to: &str) -> io::Result<String> {
    TcpStream::connect_timeout(&address(to)?, PATIENCE).map(|_| ok())
}

fn connect_to_nowhere() -> io::Result<String> {
    let flags = SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Inet, SockType::Stream, flags, None)?;
    raw::connect_to_nowhere(socket.as_fd()).map(|()| ok())
}

fn connect_abstract(name: &str) -> io::Result<String> {
    UnixStream::connect_addr(&UnixAddr::from_abstract_name(name)?).map(|_| ok())
}

/// Connects to `to` while a server of this process listens at `at`.
fn serve_and_connect(at: &str, to: &str) -> io::Result<String> {
    let _server = TcpListener::bind(address(at)?)?;
    connect(to)
}

/// Many threads connect at once, some with an address that cannot be read.
fn connect_storm(at: &str, to: &str) -> io::Result<String> {
    const THREADS: usize = 16;
    const TIMES: usize = 40;
    let _server = TcpListener::bind(address(at)?)?;
    let to = address(to)?;
    let attempt = move |round: usize| {
        if round % 4 == 3 {
            return connect_to_nowhere().is_err();
        }
        TcpStream::connect(to).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    };
    let threads: Vec<_> =
        (0..THREADS).map(|_| thread::spawn(move || (0..TIMES).all(attempt))).collect();
    let refused = threads.into_iter().all(|thread| thread.join().is_ok_and(|all| all));
    Ok(if refused { "all refused" } else { "let through" }.to_owned())
}

/// Sends a datagram and waits for what comes back: the port's answer, or the error of a closed one.
fn datagram(to: &str) -> io::Result<String> {
    let to = address(to)?;
    let socket = UdpSocket::bind(if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" })?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.connect(to)?;
    socket.send(b"kvro")?;
    socket.recv(&mut [0; 64]).map(|_| ok())
}

/// Asks a name server for an address and says how it answered.
fn ask_for_name(server: &str, name: &str) -> io::Result<String> {
    let mut question = vec![0x4b, 0x56, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        question.push(u8::try_from(label.len()).map_err(io::Error::other)?);
        question.extend(label.as_bytes());
    }
    question.extend([0, 0, 1, 0, 1]);
    let server = address(server)?;
    let socket = UdpSocket::bind(if server.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" })?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.connect(server)?;
    socket.send(&question)?;
    let mut answer = [0; 1500];
    let length = socket.recv(&mut answer)?;
    if length < 12 || answer[..2] != question[..2] {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok(match answer[3] & 0xf {
        0 if answer[7] > 0 => "answered",
        0 => "no data",
        3 => "NXDOMAIN",
        5 => "REFUSED",
        _ => "another code",
    }
    .to_owned())
}

/// Resolves as programs do, through the C library.
fn look_up(name: &str) -> io::Result<String> {
    use std::net::ToSocketAddrs as _;
    match (name, 0).to_socket_addrs() {
        Ok(_) => Ok(ok()),
        // The C library's reasons are no errno.
        Err(error) if error.raw_os_error().is_none() => Ok("no such name".to_owned()),
        Err(error) => Err(error),
    }
}

/// The status of a plain HTTP request.
fn get(to: &str, host: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address(to)?, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(stream, "GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.take(4096).read_to_string(&mut answer)?;
    let status = answer.split_whitespace().nth(1);
    status.map(str::to_owned).ok_or(io::ErrorKind::InvalidData.into())
}

/// The ports that somebody in this network namespace listens on.
fn listeners() -> io::Result<String> {
    const LISTEN: &str = "0A";
    let mut ports = Vec::new();
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        for line in fs::read_to_string(table)?.lines().skip(1) {
            let mut fields = line.split_whitespace().skip(1);
            let (local, state) = (fields.next(), fields.nth(1));
            let port = local.and_then(|local| local.rsplit_once(':')).map(|(_, port)| port);
            if let (Some(port), Some(LISTEN)) = (port, state) {
                ports.push(u16::from_str_radix(port, 16).map_err(io::Error::other)?);
            }
        }
    }
    ports.sort_unstable();
    let words: Vec<String> = ports.iter().map(u16::to_string).collect();
    Ok(words.join(" "))
}

fn open_socket(
    family: AddressFamily,
    kind: SockType,
    protocol: SockProtocol,
) -> io::Result<String> {
    socket(family, kind, SockFlag::SOCK_CLOEXEC, protocol)?;
    Ok(ok())
}

/// `struct ifinfomsg` of an interface that no machine has.
fn link_body() -> Vec<u8> {
    interface(i32::MAX - 1)
}

fn loopback_body() -> Vec<u8> {
    interface(1)
}

fn interface(index: i32) -> Vec<u8> {
    let mut body = vec![0; 4];
    body.extend(index.to_ne_bytes());
    body.extend([0; 8]);
    body
}

/// `struct rtmsg` of a route to an address of documentation, by an interface that is not there.
fn route_body() -> Vec<u8> {
    let family = u8::try_from(libc::AF_INET).unwrap_or_default();
    let table = libc::RT_TABLE_MAIN;
    let mut body =
        vec![family, 32, 0, 0, table, libc::RTPROT_BOOT, libc::RT_SCOPE_LINK, libc::RTN_UNICAST];
    body.extend([0; 4]);
    for (kind, value) in [
        (libc::RTA_DST, Ipv4Addr::new(192, 0, 2, 1).octets()),
        (libc::RTA_OIF, (i32::MAX - 1).to_ne_bytes()),
    ] {
        body.extend(8_u16.to_ne_bytes());
        body.extend(kind.to_ne_bytes());
        body.extend(value);
    }
    body
}

/// Sends one request to the kernel's network configuration and reads whether it was obeyed.
fn netlink(kind: u16, body: &[u8]) -> io::Result<String> {
    const HEADER: usize = 16;
    const NLMSG_ERROR: u16 = 2;
    let flags = u16::try_from(libc::NLM_F_REQUEST | libc::NLM_F_ACK | libc::NLM_F_CREATE);
    let flags = if kind == libc::RTM_GETLINK { Ok(1) } else { flags }.map_err(io::Error::other)?;
    let length = u32::try_from(HEADER + body.len()).map_err(io::Error::other)?;
    let mut message = length.to_ne_bytes().to_vec();
    message.extend(kind.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    message.extend([0; 8]);
    message.extend(body);
    let cloexec = SockFlag::SOCK_CLOEXEC;
    let route = SockProtocol::NetlinkRoute;
    let netlink = socket(AddressFamily::Netlink, SockType::Raw, cloexec, route)?;
    send(netlink.as_raw_fd(), &message, MsgFlags::empty())?;
    let mut answer = [0_u8; 8192];
    let length = recv(netlink.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    let field = |at: usize, size: usize| answer[..length].get(at..at + size);
    let answered = field(4, 2).and_then(|bytes| bytes.try_into().ok()).map(u16::from_ne_bytes);
    if answered != Some(NLMSG_ERROR) {
        return Ok(ok());
    }
    let error = field(HEADER, 4).and_then(|bytes| bytes.try_into().ok()).map(i32::from_ne_bytes);
    match error {
        Some(0) => Ok(ok()),
        Some(errno) => Err(Errno::from_raw(-errno).into()),
        None => Err(io::ErrorKind::InvalidData.into()),
    }
}
