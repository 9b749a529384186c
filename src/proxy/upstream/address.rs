//! Which addresses an allowed name may lead to.
//!
//! A name's owner decides what it resolves to, so a listed name can be pointed at the host itself,
//! at its network or at a cloud's metadata service. Only global unicast addresses are dialled,
//! unless the user lists a private one by `danger_private`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

/// What dialling an address would reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    Public,
    Private,
    /// A service that hands out the host's credentials.
    Metadata,
}

/// Whether `address` may be dialled, given the private networks that the user opened.
///
/// A metadata address has to be listed by itself: a wide network does not include it.
pub(super) fn check(address: IpAddr, opened: &[IpNet]) -> Reach {
    let address = address.to_canonical();
    let whole = |net: &&IpNet| net.prefix_len() == net.max_prefix_len();
    match reach(address) {
        Reach::Public => Reach::Public,
        Reach::Private if opened.iter().any(|net| net.contains(&address)) => Reach::Public,
        Reach::Metadata if opened.iter().filter(whole).any(|net| net.addr() == address) => {
            Reach::Public
        }
        refused @ (Reach::Private | Reach::Metadata) => refused,
    }
}

fn reach(address: IpAddr) -> Reach {
    match address {
        IpAddr::V4(v4) => reach_v4(v4),
        IpAddr::V6(v6) => embedded(v6).map_or_else(|| reach_v6(v6), reach_v4),
    }
}

/// Metadata services: AWS, Google, Azure, Oracle (all by the first), AWS containers and Pods,
/// Alibaba, Oracle's older one, Azure's wire server.
const METADATA: [Ipv4Addr; 6] = [
    Ipv4Addr::new(169, 254, 169, 254),
    Ipv4Addr::new(169, 254, 170, 2),
    Ipv4Addr::new(169, 254, 170, 23),
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(192, 0, 0, 192),
    Ipv4Addr::new(168, 63, 129, 16),
];

/// AWS instances and Pods, Google.
const METADATA_V6: [Ipv6Addr; 3] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
];

fn reach_v4(address: Ipv4Addr) -> Reach {
    if METADATA.contains(&address) {
        return Reach::Metadata;
    }
    let [a, b, c, _] = address.octets();
    let special = match a {
        0 | 10 | 127 | 224..=255 => true,
        100 => (64..128).contains(&b),
        169 => b == 254,
        172 => (16..32).contains(&b),
        192 => b == 168 || (b == 0 && (c == 0 || c == 2)),
        // 198.18.0.0/15 is also the range of the jail's own names.
        198 => b == 18 || b == 19 || (b == 51 && c == 100),
        203 => b == 0 && c == 113,
        _ => false,
    };
    if special { Reach::Private } else { Reach::Public }
}

/// Global unicast is 2000::/3 without the parts set aside for documentation and for tunnels whose
/// far end cannot be read off the address.
fn reach_v6(address: Ipv6Addr) -> Reach {
    if METADATA_V6.contains(&address) {
        return Reach::Metadata;
    }
    let [a, b, ..] = address.segments();
    let teredo_and_orchid = a == 0x2001 && b < 0x200;
    let documentation = (a == 0x2001 && b == 0xdb8) || (a == 0x3fff && b < 0x1000);
    let global = a & 0xe000 == 0x2000 && !teredo_and_orchid && !documentation;
    if global { Reach::Public } else { Reach::Private }
}

/// The IPv4 address that a translated (64:ff9b::/96) or 6to4 (2002::/16) address leads to.
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [a, b, c, d, e, f, g, h] = address.segments();
    let join = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match (a, b, c, d, e, f) {
        (0x64, 0xff9b, 0, 0, 0, 0) => Some(join(g, h)),
        (0x2002, ..) => Some(join(b, c)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_text(address: &str, opened: &[&str]) -> Reach {
        let opened: Vec<IpNet> = opened.iter().map(|net| net.parse().unwrap()).collect();
        check(address.parse().unwrap(), &opened)
    }

    #[test]
    fn only_global_addresses_are_public() {
        for address in [
            "93.184.216.34",
            "1.1.1.1",
            "100.63.0.1",
            "172.32.0.1",
            "198.20.0.1",
            "2606:4700::1111",
            "2a00:1450::1",
            "64:ff9b::101:101",
            "2002:101:101::1",
            "::ffff:1.1.1.1",
        ] {
            assert_eq!(check_text(address, &[]), Reach::Public, "{address}");
        }
        for address in [
            "0.0.0.0",
            "0.1.2.3",
            "10.1.2.3",
            "100.64.0.1",
            "127.0.0.1",
            "127.9.9.9",
            "169.254.1.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "192.0.0.1",
            "192.0.2.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.251",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::7f00:1",
            "::ffff:10.0.0.1",
            "fe80::1",
            "fc00::1",
            "fd12::1",
            "fec0::1",
            "ff02::1",
            "100::1",
            "2001::1",
            "2001:db8::1",
            "3fff::1",
            "64:ff9b::a00:1",
            "64:ff9b:1::1",
            "2002:a00:1::1",
            "2002:7f00:1::",
        ] {
            assert_eq!(check_text(address, &[]), Reach::Private, "{address}");
        }
    }

    #[test]
    fn metadata_is_known_in_every_dress() {
        for address in [
            "169.254.169.254",
            "169.254.170.2",
            "100.100.100.200",
            "192.0.0.192",
            "168.63.129.16",
            "fd00:ec2::254",
            "::ffff:169.254.169.254",
            "64:ff9b::a9fe:a9fe",
            "2002:a9fe:a9fe::1",
            "fd20:ce::254",
        ] {
            assert_eq!(check_text(address, &[]), Reach::Metadata, "{address}");
        }
    }

    #[test]
    fn an_opened_network_opens_itself_and_no_metadata() {
        assert_eq!(check_text("127.0.0.1", &["127.0.0.1/32"]), Reach::Public);
        assert_eq!(check_text("::ffff:127.0.0.1", &["127.0.0.1/32"]), Reach::Public);
        assert_eq!(check_text("127.0.0.2", &["127.0.0.1/32"]), Reach::Private);
        assert_eq!(check_text("169.254.169.254", &["169.254.0.0/16"]), Reach::Metadata);
        assert_eq!(check_text("169.254.169.254", &["0.0.0.0/0"]), Reach::Metadata);
        assert_eq!(check_text("169.254.169.254", &["169.254.169.254/32"]), Reach::Public);
        assert_eq!(check_text("64:ff9b::a9fe:a9fe", &["169.254.169.254/32"]), Reach::Metadata);
    }
}
