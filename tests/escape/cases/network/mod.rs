//! The network: every address leads to the door or nowhere, and every try is on record.
//!
//! Nothing here may reach another machine, not even where the jail fails: what is asked for lies in
//! the jail's own network namespace, and outside only the loopback is asked.

mod record;

use self::record::FACTS;
use crate::area::Area;
use crate::row::{Control, Defence, Expect, Probe, Row};

/// With the door closed, its ports are nobody's.
#[rustfmt::skip]
pub(super) fn without_a_door() -> Area {
    let refused = |name, words| row(name, Defence::ConnectJudge, words, "ECONNREFUSED",
        Control::Twin(&["serve-and-connect", "127.0.0.1:18080", "127.0.0.1:18080"], OK));
    let rows = vec![
        refused("a_tls_server_is_out_of_reach", &["connect", "1.1.1.1:443"]),
        refused("a_web_server_is_out_of_reach", &["connect", "[2606:4700::1111]:80"]),
        refused("cloud_metadata_is_out_of_reach", &["connect", "169.254.169.254:80"]),
        row("nobody_has_a_name", Defence::Door, &["ask-for-name", "127.0.0.1:53", "api.anthropic.com"],
            "NXDOMAIN", Control::Itself),
        row("only_names_are_answered", Defence::NetworkNamespace, &["listeners"], "53", Control::Itself),
    ];
    Area { name: "no_net", options: &["--no-net"], env: &[], files: &[], rows, facts: &[] }
}

pub(super) fn area() -> Area {
    let rows = [hosts(), foreign(), masquerade(), names(), doors(), configuration()].concat();
    Area { name: "network", options: &[], env: &[], files: &[], rows, facts: FACTS }
}

const OK: Expect = Expect::Is("ok");

fn row(
    name: &'static str,
    defence: Defence,
    words: &'static [&'static str],
    inside: &'static str,
    control: Control,
) -> Row {
    Row {
        name,
        defence,
        needs: &[],
        probe: Probe::Words(words),
        inside: Expect::Is(inside),
        control,
    }
}

/// The host's own server, by every name that a machine has for itself.
#[rustfmt::skip]
fn hosts() -> Vec<Row> {
    let refused = |name, words, control| row(name, Defence::NetworkNamespace, words, "ECONNREFUSED", control);
    vec![
        refused("the_hosts_loopback_is_out_of_reach", &["connect", "127.0.0.1:{port}"], Control::Outside(OK)),
        refused("the_hosts_other_loopback_is_out_of_reach", &["connect", "127.0.0.2:{port}"], Control::Outside(OK)),
        refused("the_hosts_ipv6_loopback_is_out_of_reach", &["connect", "[::1]:{port}"], Control::Outside(OK)),
        refused("the_hosts_unspecified_address_is_out_of_reach", &["connect", "0.0.0.0:{port}"], Control::Outside(OK)),
        refused("the_hosts_abstract_sockets_are_out_of_reach", &["connect-abstract", "{abstract}"], Control::Outside(OK)),
    ]
}

/// Addresses of other machines, at the port of the host's server; each is on record by name.
const FOREIGN: [(&str, &[&str], &str); 7] = [
    ("a_gateway_is_out_of_reach", &["connect", "10.0.2.2:{port}"], "10.0.2.2"),
    ("a_container_bridge_is_out_of_reach", &["connect", "172.17.0.1:{port}"], "172.17.0.1"),
    ("a_local_network_is_out_of_reach", &["connect", "192.168.1.1:{port}"], "192.168.1.1"),
    ("cloud_metadata_is_out_of_reach", &["connect", "169.254.169.254:{port}"], "169.254.169.254"),
    ("an_ipv4_server_is_out_of_reach", &["connect", "1.1.1.1:{port}"], "1.1.1.1"),
    ("an_ipv6_server_is_out_of_reach", &["connect", "[2606:4700::1111]:{port}"], "2606:4700::1111"),
    ("a_mapped_address_is_out_of_reach", &["connect", "[::ffff:8.8.4.4]:{port}"], "8.8.4.4"),
];

/// A datagram is sent, heard by nobody, and on record.
const DATAGRAMS: [(&str, &[&str], &str, &str); 3] = [
    ("a_datagram_reaches_nobody", &["datagram", "9.9.9.9:{port}"], "9.9.9.9", "{port}"),
    ("quic_reaches_nobody", &["datagram", "9.9.9.10:443"], "9.9.9.10", "443"),
    (
        "multicast_of_names_reaches_nobody",
        &["datagram", "[2606:4700::2222]:5353"],
        "2606:4700::2222",
        "5353",
    ),
];

fn foreign() -> Vec<Row> {
    // Where the door listens, a connection is answered.
    let twin = Control::Twin(&["connect", "1.1.1.1:443"], OK);
    let connects = FOREIGN
        .iter()
        .map(|&(name, words, _)| row(name, Defence::ConnectJudge, words, "ECONNREFUSED", twin));
    let twin =
        Control::Twin(&["ask-for-name", "9.9.9.9:53", "api.anthropic.com"], Expect::Is("answered"));
    let datagrams = DATAGRAMS.iter().map(|&(name, words, ..)| {
        row(name, Defence::NetworkNamespace, words, "ECONNREFUSED", twin)
    });
    connects.chain(datagrams).collect()
}

/// A server of the agent's own does not stand in for another machine's.
#[rustfmt::skip]
fn masquerade() -> Vec<Row> {
    let judged = |name, words, twin| row(name, Defence::ConnectJudge, words, "ECONNREFUSED", Control::Twin(twin, OK));
    vec![
        judged("a_server_inside_does_not_answer_for_others",
            &["serve-and-connect", "0.0.0.0:18081", "8.8.8.8:18081"],
            &["serve-and-connect", "0.0.0.0:18081", "127.0.0.1:18081"]),
        judged("a_server_inside_does_not_answer_for_ipv6_others",
            &["serve-and-connect", "[::]:18082", "[2606:4700::1111]:18082"],
            &["serve-and-connect", "[::]:18082", "[::1]:18082"]),
        judged("a_server_inside_does_not_answer_for_mapped_others",
            &["serve-and-connect", "[::]:18083", "[::ffff:8.8.8.8]:18083"],
            &["serve-and-connect", "[::]:18083", "[::ffff:127.0.0.1]:18083"]),
        row("a_storm_of_connects_finds_no_gap", Defence::ConnectJudge,
            &["connect-storm", "0.0.0.0:18084", "8.8.8.8:18084"], "all refused", Control::Itself),
        row("an_address_that_cannot_be_read_is_refused", Defence::ConnectJudge,
            &["connect-to-nowhere"], "EACCES", Control::Outside(Expect::Is("EFAULT"))),
    ]
}

#[rustfmt::skip]
fn names() -> Vec<Row> {
    let refused = |name, words, twin| row(name, Defence::Door, words, "NXDOMAIN", Control::Twin(twin, Expect::Is("answered")));
    vec![
        refused("a_name_that_is_not_listed_is_not_there",
            &["ask-for-name", "127.0.0.1:53", "kvro-denied.example"],
            &["ask-for-name", "127.0.0.1:53", "api.anthropic.com"]),
        refused("another_name_server_is_the_same_one",
            &["ask-for-name", "1.1.1.1:53", "kvro-secret.attacker.example"],
            &["ask-for-name", "1.1.1.1:53", "api.anthropic.com"]),
        refused("an_ipv6_name_server_is_the_same_one",
            &["ask-for-name", "[2606:4700::1111]:53", "kvro-secret.attacker.example"],
            &["ask-for-name", "[2606:4700::1111]:53", "api.anthropic.com"]),
        row("metadata_has_no_name", Defence::Door,
            &["ask-for-name", "127.0.0.1:53", "metadata.google.internal"], "NXDOMAIN",
            Control::Twin(&["ask-for-name", "127.0.0.1:53", "api.openai.com"], Expect::Is("answered"))),
        row("programs_see_that_a_name_is_not_there", Defence::Door,
            &["look-up", "kvro-looked-up.example"], "no such name",
            Control::Twin(&["look-up", "api.anthropic.com"], OK)),
    ]
}

/// What answers at the door's ports is the door, and it only refuses.
#[rustfmt::skip]
fn doors() -> Vec<Row> {
    vec![
        row("only_the_door_listens", Defence::NetworkNamespace, &["listeners"], "53 80 443", Control::Outside(Expect::IsNot("53 80 443"))),
        row("the_door_refuses_metadata", Defence::Door, &["get", "169.254.169.254:80", "169.254.169.254"], "403", Control::Itself),
        row("the_door_refuses_a_server_by_address", Defence::Door, &["get", "1.1.1.1:80", "1.1.1.1"], "403", Control::Itself),
        row("the_door_refuses_an_allowed_name_at_a_foreign_address", Defence::Door, &["get", "1.1.1.1:80", "api.anthropic.com"], "403", Control::Itself),
        row("the_door_has_no_page_of_its_own", Defence::Door, &["get", "127.0.0.1:80", "127.0.0.1"], "403", Control::Itself),
        row("agent_cannot_listen_in_the_doors_place", Defence::NetworkNamespace, &["listen", "0.0.0.0:443"], "EACCES", Control::Twin(&["listen", "0.0.0.0:18443"], OK)),
    ]
}

/// The network cannot be rebuilt from inside.
#[rustfmt::skip]
fn configuration() -> Vec<Row> {
    let show = Control::Twin(&["show-link"], OK);
    vec![
        row("agent_cannot_remove_a_link", Defence::NoCapabilities, &["remove-link"], "EPERM", Control::OutsideAsRoot(Expect::Is("ENODEV"))),
        row("agent_cannot_add_a_route", Defence::NoCapabilities, &["add-route"], "EPERM", show),
        row("agent_opens_no_raw_socket", Defence::NoCapabilities, &["raw-socket"], "EPERM", Control::OutsideAsRoot(OK)),
        row("there_is_no_tunnel_device", Defence::Root, &["open-to-write", "/dev/net/tun"], "ENOENT", Control::Itself),
    ]
}
