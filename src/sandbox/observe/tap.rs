//! The tap: a packet socket on the jail's loopback that sees attempts and nothing of the traffic
//! that the door serves.
//!
//! A filter in the kernel lets pass what opens a TCP connection and every datagram of another
//! protocol, unless it goes to a loopback address or to a port that the door serves.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, socket};

use crate::sys;

/// A packet that went where the door does not listen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempt {
    pub address: IpAddr,
    /// 0 for protocols without ports.
    pub port: u16,
    /// The IP protocol number: 6 is TCP, 17 is UDP.
    pub protocol: u8,
}

/// Opens the tap in the network namespace that this process is in.
pub(crate) fn open(door_ports: &[u16]) -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    // Without a protocol the socket receives nothing; the filter is in force before it does.
    let closed = socket(AddressFamily::Packet, SockType::Datagram, flags, None)?;
    sys::attach_filter(closed.as_fd(), &filter(door_ports))?;
    sys::receive_everything(closed.as_fd())?;
    Ok(closed)
}

/// Reads one attempt; `None` when none waits.
pub(crate) fn read(tap: &OwnedFd) -> io::Result<Option<Attempt>> {
    let mut packet = [0_u8; 128];
    match recv(tap.as_raw_fd(), &mut packet, MsgFlags::MSG_DONTWAIT) {
        Ok(length) => Ok(parse(packet.get(..length).unwrap_or_default())),
        Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EINTR) => Ok(None),
        Err(other) => Err(other.into()),
    }
}

/// Reads the headers of an IP packet (RFC 791, RFC 8200); extension headers count as protocols.
fn parse(packet: &[u8]) -> Option<Attempt> {
    let (address, protocol, header) = match packet.first()? >> 4 {
        4 => {
            let address: [u8; 4] = packet.get(16..20)?.try_into().ok()?;
            let header = usize::from(packet.first()? & 0xf) * 4;
            (IpAddr::V4(Ipv4Addr::from(address)), *packet.get(9)?, header)
        }
        6 => {
            let address: [u8; 16] = packet.get(24..40)?.try_into().ok()?;
            (IpAddr::V6(Ipv6Addr::from(address)), *packet.get(6)?, 40)
        }
        _ => return None,
    };
    let has_ports = matches!(i32::from(protocol), libc::IPPROTO_TCP | libc::IPPROTO_UDP);
    let port = match packet.get(header + 2..header + 4) {
        Some(&[high, low]) if has_ports => u16::from_be_bytes([high, low]),
        _ => 0,
    };
    Some(Attempt { address, port, protocol })
}

/// The kernel's filter, as classic BPF over the network header.
fn filter(door_ports: &[u16]) -> Vec<libc::sock_filter> {
    let mut served: Vec<u32> = door_ports.iter().map(|&port| u32::from(port)).collect();
    served.push(DNS);
    let mut program = Assembler::default();
    // Only what leaves: on a loopback each packet passes twice. (SKF_AD_OFF + SKF_AD_PKTTYPE.)
    program.load(BPF_LD_B_ABS, 0xffff_f004);
    program.drop_unless(u32::from(libc::PACKET_OUTGOING));
    program.load(BPF_LD_B_ABS, 0);
    program.and(0xf0);
    let six = program.jump_if(0x60);
    program.drop_unless(0x40);
    // IPv4: the loopback's own addresses, then by protocol.
    program.load(BPF_LD_B_ABS, 16);
    program.drop_if(127);
    program.load(BPF_LDX_MSH, 0);
    program.load(BPF_LD_B_ABS, 9);
    program.by_protocol(&served, BPF_LD_B_IND, BPF_LD_H_IND, 0);
    program.land(six);
    // IPv6: `::1`, then by protocol.
    program.load(BPF_LD_W_ABS, 24);
    let not_loopback = [
        program.jump_unless(0),
        {
            program.load(BPF_LD_W_ABS, 28);
            program.jump_unless(0)
        },
        {
            program.load(BPF_LD_W_ABS, 32);
            program.jump_unless(0)
        },
        {
            program.load(BPF_LD_W_ABS, 36);
            program.jump_unless(1)
        },
    ];
    program.ret(DROP);
    for jump in not_loopback {
        program.land(jump);
    }
    program.load(BPF_LD_B_ABS, 6);
    program.by_protocol(&served, BPF_LD_B_ABS, BPF_LD_H_ABS, 40);
    program.finish()
}

// From include/uapi/linux/bpf_common.h.
const BPF_LD_W_ABS: u16 = 0x20;
const BPF_LD_H_ABS: u16 = 0x28;
const BPF_LD_B_ABS: u16 = 0x30;
const BPF_LD_H_IND: u16 = 0x48;
const BPF_LD_B_IND: u16 = 0x50;
const BPF_LDX_MSH: u16 = 0xb1;
const BPF_AND_K: u16 = 0x54;
const BPF_JEQ_K: u16 = 0x15;
const BPF_RET_K: u16 = 0x06;

const DNS: u32 = 53;

const DROP: u32 = 0;
/// How much of a packet is kept: enough for both headers.
const KEEP: u32 = 128;

/// A jump whose end is not known yet.
#[must_use]
struct Jump {
    at: usize,
    when: When,
}

enum When {
    Equal,
    Different,
}

/// Puts a filter together; a jump is at most 255 instructions long.
#[derive(Default)]
struct Assembler(Vec<libc::sock_filter>);

impl Assembler {
    fn push(&mut self, code: u16, jt: u8, jf: u8, k: u32) {
        self.0.push(libc::sock_filter { code, jt, jf, k });
    }

    fn load(&mut self, code: u16, at: u32) {
        self.push(code, 0, 0, at);
    }

    fn and(&mut self, mask: u32) {
        self.push(BPF_AND_K, 0, 0, mask);
    }

    fn ret(&mut self, keep: u32) {
        self.push(BPF_RET_K, 0, 0, keep);
    }

    fn drop_if(&mut self, value: u32) {
        self.push(BPF_JEQ_K, 0, 1, value);
        self.ret(DROP);
    }

    fn drop_unless(&mut self, value: u32) {
        self.push(BPF_JEQ_K, 1, 0, value);
        self.ret(DROP);
    }

    fn jump_if(&mut self, value: u32) -> Jump {
        self.push(BPF_JEQ_K, 0, 0, value);
        Jump { at: self.0.len() - 1, when: When::Equal }
    }

    fn jump_unless(&mut self, value: u32) -> Jump {
        self.push(BPF_JEQ_K, 0, 0, value);
        Jump { at: self.0.len() - 1, when: When::Different }
    }

    /// Lets `jump` end here.
    fn land(&mut self, jump: Jump) {
        let distance = u8::try_from(self.0.len() - jump.at - 1).unwrap_or(u8::MAX);
        if let Some(instruction) = self.0.get_mut(jump.at) {
            match jump.when {
                When::Equal => instruction.jt = distance,
                When::Different => instruction.jf = distance,
            }
        }
    }

    /// With the protocol loaded: keeps the first packet of a TCP connection and all of the rest,
    /// unless the door serves it. The payload starts at `at`, plus X for indirect loads.
    fn by_protocol(&mut self, served: &[u32], load_byte: u16, load_half: u16, at: u32) {
        // What the kernel itself answers with; programs here have no way to send it.
        for answers in [libc::IPPROTO_ICMP, libc::IPPROTO_ICMPV6] {
            self.drop_if(answers.cast_unsigned());
        }
        let tcp = self.jump_if(libc::IPPROTO_TCP.cast_unsigned());
        let udp = self.jump_if(libc::IPPROTO_UDP.cast_unsigned());
        self.ret(KEEP);
        self.land(udp);
        // The door serves names by datagram and nothing else, so QUIC is an attempt. Its answers
        // are none; no program here can send from their port, which takes a capability.
        for port in [at, at + 2] {
            self.load(load_half, port);
            self.drop_if(DNS);
        }
        self.ret(KEEP);
        self.land(tcp);
        // SYN without ACK.
        self.load(load_byte, at + 13);
        self.and(0x12);
        self.drop_unless(0x02);
        self.load(load_half, at + 2);
        for &port in served {
            self.drop_if(port);
        }
        self.ret(KEEP);
    }

    fn finish(self) -> Vec<libc::sock_filter> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_headers_of_both_families_are_read() {
        let mut v4 = vec![0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 127, 0, 0, 1, 8, 8, 4, 4];
        v4.extend([0xab, 0xcd, 0x1a, 0x0b, 0, 0, 0, 0]);
        let address = IpAddr::V4(Ipv4Addr::new(8, 8, 4, 4));
        assert_eq!(parse(&v4), Some(Attempt { address, port: 6667, protocol: 6 }));

        let mut v6 = vec![0x60, 0, 0, 0, 0, 8, 17, 64];
        v6.extend(Ipv6Addr::LOCALHOST.octets());
        v6.extend("2001:db8::7".parse::<Ipv6Addr>().unwrap().octets());
        v6.extend([0, 1, 1, 187, 0, 0]);
        let address = "2001:db8::7".parse().unwrap();
        assert_eq!(parse(&v6), Some(Attempt { address, port: 443, protocol: 17 }));
    }

    #[test]
    fn a_packet_that_is_cut_short_is_no_attempt() {
        let v4 = [0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 127, 0, 0, 1, 8, 8, 4];
        for length in 0..v4.len() {
            assert_eq!(parse(&v4[..length]), None, "{length} bytes");
        }
    }

    #[test]
    fn every_jump_of_the_filter_ends_in_the_filter() {
        let ports: Vec<u16> = (1000..1100).collect();
        let program = filter(&ports);
        for (at, instruction) in program.iter().enumerate() {
            if instruction.code == BPF_JEQ_K {
                assert!(at + 1 + usize::from(instruction.jt) < program.len(), "{at}");
                assert!(at + 1 + usize::from(instruction.jf) < program.len(), "{at}");
            }
        }
    }
}
