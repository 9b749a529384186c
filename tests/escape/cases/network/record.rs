//! What the host saw of the network's probes, and what is on record of them.

use anyhow::ensure;

use super::{DATAGRAMS, FOREIGN};
use crate::area::Fact;
use crate::play::Played;
use crate::record::data_of;
use crate::row::Defence;

pub(super) const FACTS: &[Fact] = &[
    Fact {
        name: "the_hosts_server_heard_of_nobody",
        defence: Defence::NetworkNamespace,
        needs: &[],
        check: silence,
    },
    Fact {
        name: "every_connect_is_on_record_with_its_pid",
        defence: Defence::ConnectJudge,
        needs: &[],
        check: attempts,
    },
    Fact {
        name: "a_connect_beside_a_server_inside_is_on_record",
        defence: Defence::ConnectJudge,
        needs: &[],
        check: masqueraded,
    },
    Fact {
        name: "every_datagram_is_on_record",
        defence: Defence::NetworkNamespace,
        needs: &[],
        check: datagrams,
    },
    Fact {
        name: "refused_names_are_on_record",
        defence: Defence::Door,
        needs: &[],
        check: refused_names,
    },
    Fact {
        name: "refusals_of_the_door_are_on_record",
        defence: Defence::Door,
        needs: &[],
        check: denied,
    },
];

fn silence(played: &Played) -> anyhow::Result<()> {
    ensure!(played.connections == 0, "{} connections", played.connections);
    // The control: the outside's own came, so the counter counts.
    let controls = played.world.connections();
    ensure!(controls >= 3, "only {controls} connections from outside");
    Ok(())
}

/// The pid inside of the probe in the row `name`.
fn pid_of(played: &Played, name: &str) -> Option<u32> {
    let row = played.rows.iter().find(|(row, _)| row.name == name);
    row.map(|(_, answers)| answers.inside.pid)
}

fn attempts(played: &Played) -> anyhow::Result<()> {
    let port: u64 = played.world.port().parse()?;
    for (name, _, server) in FOREIGN {
        is_on_record(played, server, port, pid_of(played, name))?;
    }
    Ok(())
}

fn is_on_record(played: &Played, server: &str, port: u64, pid: Option<u32>) -> anyhow::Result<()> {
    let attempted = data_of(&played.entries, "egress.attempted");
    let wanted = serde_json::json!({
        "server.address": server,
        "server.port": port,
        "network.transport": "tcp",
        "process.pid": pid,
        "process.command": "probe",
    });
    ensure!(attempted.iter().any(|data| **data == wanted), "{wanted} is not in {attempted:#?}");
    Ok(())
}

fn masqueraded(played: &Played) -> anyhow::Result<()> {
    let name = "a_server_inside_does_not_answer_for_others";
    is_on_record(played, "8.8.8.8", 18081, pid_of(played, name))
}

fn datagrams(played: &Played) -> anyhow::Result<()> {
    let attempted = data_of(&played.entries, "egress.attempted");
    for (_, _, server, port) in DATAGRAMS {
        let port: u64 = port.replace("{port}", played.world.port()).parse()?;
        ensure!(
            attempted.iter().any(|data| data["server.address"] == server
                && data["server.port"] == port
                && data["network.transport"] == "udp"),
            "{server} port {port} is not in {attempted:#?}"
        );
    }
    Ok(())
}

fn refused_names(played: &Played) -> anyhow::Result<()> {
    let refused = data_of(&played.entries, "dns.refused");
    for name in ["kvro-denied.example", "kvro-secret.attacker.example", "kvro-looked-up.example"] {
        ensure!(
            refused.iter().any(|data| data["dns.question.name"] == name),
            "{name} is not in {refused:#?}"
        );
    }
    Ok(())
}

fn denied(played: &Played) -> anyhow::Result<()> {
    let denied = data_of(&played.entries, "egress.denied");
    ensure!(
        denied.iter().any(|data| data["server.address"] == "169.254.169.254"),
        "the metadata server is not in {denied:#?}"
    );
    Ok(())
}
