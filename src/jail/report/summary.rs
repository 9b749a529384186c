//! The summary that a run ends with, on the terminal of whoever started it.

use std::fmt::Display;

use kvro_evidence::RunReport;
use kvro_evidence::report::{Alert, Refused};
use kvro_ledger::event::{Cost, EndedBy};

use crate::report::harmless;

/// So many refusals and hidden files are named; the ledger has them all.
const NAMED: usize = 5;

/// How the words are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    Plain,
    /// For a terminal that knows colours.
    Coloured,
}

/// The lines that end a run, each with our prefix and a line feed.
#[must_use]
pub fn summary(report: &RunReport, style: Style) -> String {
    let prefix = style.faint("kvro-jail:");
    let mut lines = vec![end(report, style), usage(report)];
    lines.extend(refused(&report.refused));
    lines.extend(hidden(report));
    lines.extend(report.missed.iter().map(|missed| {
        let (what, reason) = (harmless(&missed.what), harmless(&missed.reason));
        style.loud(&format!("not on record: {} {what} ({reason})", grouped(missed.count)))
    }));
    lines.extend(report.degraded.iter().map(|layer| format!("without {}", harmless(layer))));
    lines.extend(quarantined(report).map(|line| style.loud(&line)));
    lines.extend(alerts(&report.alerts).iter().map(|line| style.loud(line)));
    lines.push(format!("ledger: {}", harmless(&report.ledger)));
    lines.iter().map(|line| format!("{prefix} {line}\n")).collect()
}

fn end(report: &RunReport, style: Style) -> String {
    let (words, loud) = match report.ended_by {
        Some(EndedBy::Exit) => ("the command ended", false),
        Some(EndedBy::Signal) => ("a signal ended the command", false),
        Some(EndedBy::Limit) => ("ended: a ceiling was reached", true),
        Some(EndedBy::Policy) => ("ended by the policy", true),
        Some(EndedBy::Wall) => ("ended: its time was up", true),
        Some(EndedBy::Setup) if matches!(report.exit_code, Some(126 | 127)) => {
            ("the command was not run", true)
        }
        Some(EndedBy::Setup) => ("the jail could not be set up", true),
        Some(EndedBy::Failure) => ("ended: the jail could not go on", true),
        Some(EndedBy::User) => ("ended on request", true),
        None => ("not ended", false),
    };
    let time = report.duration_ms.map(|ms| format!(" after {}", span(ms)));
    let code = report.exit_code.map(|code| format!(", exit code {code}"));
    let reason = match report.reason.as_str() {
        "" => String::new(),
        reason => format!(": {}", harmless(reason)),
    };
    let line = format!("{words}{}{}{reason}", time.unwrap_or_default(), code.unwrap_or_default());
    if loud { style.loud(&line) } else { line }
}

fn usage(report: &RunReport) -> String {
    let tokens = report.tokens;
    let kinds = [
        (tokens.input, "in"),
        (tokens.cache_read, "read from cache"),
        (tokens.cache_write, "written to cache"),
        (tokens.output, "out"),
    ];
    let named = kinds.iter().filter(|(count, _)| *count > 0);
    let named: Vec<_> = named.map(|(count, kind)| format!("{} {kind}", grouped(*count))).collect();
    let tokens = if named.is_empty() { "none".to_owned() } else { named.join(", ") };
    let cost = match report.cost_usd {
        Cost::Known(amount) => format!("${amount}"),
        Cost::Unknown => "cost unknown: a model has no price".to_owned(),
    };
    let turns = counted(report.turns, "turn");
    let calls = counted(report.calls, "call");
    format!("{turns}, {calls}; tokens: {tokens}; {cost}")
}

/// The most frequent refusals first.
fn refused(all: &[Refused]) -> Vec<String> {
    let mut sorted: Vec<&Refused> = all.iter().collect();
    sorted.sort_by_key(|refused| std::cmp::Reverse(refused.count));
    let mut lines: Vec<String> = sorted.iter().take(NAMED).map(|one| refusal(one)).collect();
    let rest = sorted.get(NAMED..).unwrap_or_default();
    if !rest.is_empty() {
        let times = rest.iter().map(|refused| refused.count).sum();
        let others = counted(rest.len() as u64, "other");
        lines.push(format!("refused: {others}, {}", counted(times, "time")));
    }
    lines
}

fn refusal(refused: &Refused) -> String {
    let kind = match refused.kind.as_str() {
        "dns.refused" => "name",
        "egress.denied" => "connection to",
        "egress.attempted" => "attempt at",
        "inference.refused" => "call of",
        "upstream.failed" => "address of",
        other => other,
    };
    let reason = match refused.reason.as_str() {
        "" => String::new(),
        reason => format!(" ({})", harmless(reason)),
    };
    let times = match refused.count {
        1 => String::new(),
        count => format!(", {} times", grouped(count)),
    };
    format!("refused: {kind} {}{reason}{times}", harmless(&refused.what))
}

fn hidden(report: &RunReport) -> Option<String> {
    let all = &report.hidden_opened;
    let named: Vec<_> = all.iter().take(NAMED).map(|path| harmless(path)).collect();
    let rest = match all.len().saturating_sub(NAMED) {
        0 => String::new(),
        rest => format!(" and {rest} more"),
    };
    let times = counted(report.hidden_opens, "time");
    (!all.is_empty()).then(|| format!("hidden, opened {times}: {}{rest}", named.join(", ")))
}

/// What was moved away, and where it is now.
fn quarantined(report: &RunReport) -> Option<String> {
    let all = &report.quarantined;
    let named: Vec<_> = all.iter().take(NAMED).map(|path| harmless(path)).collect();
    let rest = match all.len().saturating_sub(NAMED) {
        0 => String::new(),
        rest => format!(" and {rest} more"),
    };
    let ledger = format!("`kvro-jail ledger show {}` says where", report.run);
    (!all.is_empty()).then(|| format!("quarantined: {}{rest}; {ledger}", named.join(", ")))
}

/// Of each kind the first few.
fn alerts(all: &[Alert]) -> Vec<String> {
    let mut kinds: Vec<(&str, u64)> = Vec::new();
    let mut lines = Vec::new();
    for Alert { what, detail } in all {
        let place = kinds.iter().position(|(kind, _)| kind == what).unwrap_or(kinds.len());
        if place == kinds.len() {
            kinds.push((what, 0));
        }
        let Some((_, count)) = kinds.get_mut(place) else { continue };
        *count += 1;
        if *count <= NAMED as u64 {
            lines.push(format!("alert: {}: {}", harmless(what), harmless(detail)));
        }
    }
    let more = |(what, count): (&str, u64)| {
        let more = count.saturating_sub(NAMED as u64);
        (more > 0).then(|| format!("alert: {}: {} more", harmless(what), grouped(more)))
    };
    lines.extend(kinds.into_iter().filter_map(more));
    lines
}

/// A duration as a person says it.
#[must_use]
pub fn span(milliseconds: u64) -> String {
    let seconds = milliseconds / 1000;
    match seconds {
        0..60 => format!("{seconds}.{} s", milliseconds % 1000 / 100),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

fn counted(count: u64, noun: impl Display) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", grouped(count))
}

/// Digits in groups of three.
fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

impl Style {
    fn faint(self, text: &str) -> String {
        self.wrapped("2", text)
    }

    fn loud(self, text: &str) -> String {
        self.wrapped("1;31", text)
    }

    fn wrapped(self, code: &str, text: &str) -> String {
        match self {
            Self::Plain => text.to_owned(),
            Self::Coloured => format!("\x1b[{code}m{text}\x1b[0m"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kvro_evidence::report::Tokens;

    fn report() -> RunReport {
        RunReport {
            duration_ms: Some(12_345),
            exit_code: Some(0),
            ended_by: Some(EndedBy::Exit),
            ..RunReport::from_entries("/state/ledger.jsonl", [])
        }
    }

    fn refused(kind: &str, what: &str, reason: &str, count: u64) -> Refused {
        let [kind, what, reason] = [kind, what, reason].map(str::to_owned);
        Refused { kind, what, reason, count }
    }

    #[test]
    fn a_quiet_run_ends_in_three_lines() {
        let expected = "\
kvro-jail: the command ended after 12.3 s, exit code 0
kvro-jail: 0 turns, 0 calls; tokens: none; $0
kvro-jail: ledger: /state/ledger.jsonl
";
        assert_eq!(summary(&report(), Style::Plain), expected);
    }

    #[test]
    fn an_eventful_run_says_what_was_refused_and_what_it_cost() {
        let mut all: Vec<_> = (1..=6)
            .map(|n| refused("egress.attempted", &format!("192.0.2.{n}:81"), "", 1))
            .collect();
        all.push(refused("dns.refused", "denied.example", "host_not_listed", 1234));
        let report = RunReport {
            exit_code: Some(122),
            ended_by: Some(EndedBy::Limit),
            reason: "max_turns of 3".to_owned(),
            turns: 3,
            calls: 1,
            tokens: Tokens { input: 1_234_567, cache_read: 0, cache_write: 1, output: 999 },
            cost_usd: Cost::Known("0.0169".parse().unwrap()),
            refused: all,
            hidden_opened: vec![".env".to_owned(), "infra/.env".to_owned()],
            hidden_opens: 9,
            run: "20261130-161200-000001".to_owned(),
            quarantined: vec![".vscode".to_owned(), ".git/hooks/x".to_owned()],
            degraded: vec!["landlock".to_owned()],
            alerts: vec![Alert { what: "w".to_owned(), detail: "d".to_owned() }],
            ..report()
        };
        let expected = "\
kvro-jail: ended: a ceiling was reached after 12.3 s, exit code 122: max_turns of 3
kvro-jail: 3 turns, 1 call; tokens: 1,234,567 in, 1 written to cache, 999 out; $0.0169
kvro-jail: refused: name denied.example (host_not_listed), 1,234 times
kvro-jail: refused: attempt at 192.0.2.1:81
kvro-jail: refused: attempt at 192.0.2.2:81
kvro-jail: refused: attempt at 192.0.2.3:81
kvro-jail: refused: attempt at 192.0.2.4:81
kvro-jail: refused: 2 others, 2 times
kvro-jail: hidden, opened 9 times: .env, infra/.env
kvro-jail: without landlock
kvro-jail: quarantined: .vscode, .git/hooks/x; `kvro-jail ledger show 20261130-161200-000001` says where
kvro-jail: alert: w: d
kvro-jail: ledger: /state/ledger.jsonl
";
        assert_eq!(summary(&report, Style::Plain), expected);
    }

    #[test]
    fn a_flood_of_alerts_of_one_kind_does_not_push_out_another() {
        let alert = |what: &str, detail: String| Alert { what: what.to_owned(), detail };
        let mut all: Vec<Alert> = (0..2000).map(|n| alert("link", n.to_string())).collect();
        all.push(alert("set_id_file", "x".to_owned()));
        let lines = alerts(&all);
        assert_eq!(lines.len(), NAMED + 2);
        assert_eq!(lines[NAMED..], ["alert: set_id_file: x", "alert: link: 1,995 more"]);
    }

    #[test]
    fn an_unknown_cost_is_never_shown_as_zero() {
        let shown = summary(&RunReport { cost_usd: Cost::Unknown, ..report() }, Style::Plain);
        assert!(shown.contains("cost unknown") && !shown.contains("$0"), "{shown}");
    }

    #[test]
    fn what_an_agent_named_cannot_act_on_the_terminal() {
        let evil = "\x1b]0;x\x07\n\u{202e}";
        let report = RunReport {
            reason: evil.to_owned(),
            refused: vec![refused("dns.refused", evil, evil, 1)],
            hidden_opened: vec![evil.to_owned()],
            hidden_opens: 1,
            quarantined: vec![evil.to_owned()],
            degraded: vec![evil.to_owned()],
            alerts: vec![Alert { what: evil.to_owned(), detail: evil.to_owned() }],
            ledger: evil.to_owned(),
            ..report()
        };
        let shown = summary(&report, Style::Plain);
        assert!(!shown.contains(['\x1b', '\x07', '\u{202e}']), "{shown:?}");
        assert_eq!(shown.lines().count(), 8);
        assert!(shown.lines().all(|line| line.starts_with("kvro-jail: ")));
    }

    #[test]
    fn colours_are_only_for_those_who_want_them() {
        let ended = RunReport { ended_by: Some(EndedBy::Wall), ..report() };
        let shown = summary(&ended, Style::Coloured);
        let first = "\x1b[2mkvro-jail:\x1b[0m \x1b[1;31mended: its time was up after 12.3 s, exit code 0\x1b[0m";
        assert_eq!(shown.lines().next(), Some(first));
    }

    #[test]
    fn spans_are_said_in_two_units_at_most() {
        let said = [0, 59_999, 60_000, 3_599_999, 3_600_000, 90_061_000].map(span);
        let expected = ["0.0 s", "59.9 s", "1 min 0 s", "59 min 59 s", "1 h 0 min", "25 h 1 min"];
        assert_eq!(said, expected);
    }
}
