//! The closed vocabulary of events, in the past tense.
//!
//! An event's name and its field names are a public format: they follow OpenTelemetry where it has
//! a name (`server.address`, `gen_ai.request.model`) and plain words with the unit in the name
//! elsewhere. Amounts are exact decimal strings, never floats. Strings that an agent controls are
//! recorded as they came, with invalid UTF-8 replaced; whoever prints them escapes them.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::PicoUsd;

/// Who observed an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Actor {
    Supervisor,
    Sandbox,
    Guard,
    Proxy,
    Meter,
    Ledger,
    User,
}

/// One fact. Serialized as `"event": <name>, "data": {…}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", content = "data")]
pub enum Event {
    #[serde(rename = "run.started")]
    RunStarted(RunStarted),
    #[serde(rename = "run.ended")]
    RunEnded(RunEnded),
    #[serde(rename = "isolation.applied")]
    IsolationApplied(IsolationApplied),
    #[serde(rename = "isolation.degraded")]
    IsolationDegraded(IsolationDegraded),
    #[serde(rename = "fs.hidden_opened")]
    HiddenOpened(HiddenOpened),
    #[serde(rename = "fs.exposed")]
    HiddenExposed(HiddenExposed),
    #[serde(rename = "fs.refused")]
    NameRefused(NameRefused),
    #[serde(rename = "fs.quarantined")]
    Quarantined(Quarantined),
    #[serde(rename = "dns.answered")]
    DnsAnswered(DnsAnswered),
    #[serde(rename = "dns.refused")]
    DnsRefused(DnsRefused),
    #[serde(rename = "egress.allowed")]
    EgressAllowed(EgressAllowed),
    #[serde(rename = "egress.denied")]
    EgressDenied(EgressDenied),
    #[serde(rename = "egress.attempted")]
    EgressAttempted(EgressAttempted),
    #[serde(rename = "egress.closed")]
    EgressClosed(EgressClosed),
    #[serde(rename = "door.opened")]
    DoorOpened(DoorOpened),
    #[serde(rename = "door.failed")]
    DoorFailed(DoorFailed),
    #[serde(rename = "upstream.failed")]
    UpstreamFailed(UpstreamFailed),
    #[serde(rename = "inference.requested")]
    InferenceRequested(InferenceRequested),
    #[serde(rename = "inference.settled")]
    InferenceSettled(InferenceSettled),
    #[serde(rename = "inference.refused")]
    InferenceRefused(InferenceRefused),
    #[serde(rename = "inference.aborted")]
    InferenceAborted(InferenceAborted),
    #[serde(rename = "budget.reserved")]
    BudgetReserved(BudgetReserved),
    #[serde(rename = "budget.warned")]
    BudgetWarned(BudgetWarned),
    #[serde(rename = "limit.reached")]
    LimitReached(LimitReached),
    #[serde(rename = "kill.requested")]
    KillRequested(KillRequested),
    #[serde(rename = "kill.completed")]
    KillCompleted(KillCompleted),
    #[serde(rename = "process.started")]
    ProcessStarted(ProcessStarted),
    #[serde(rename = "process.exited")]
    ProcessExited(ProcessExited),
    #[serde(rename = "recording.missed")]
    RecordingMissed(RecordingMissed),
    #[serde(rename = "alert.raised")]
    AlertRaised(AlertRaised),
    #[serde(rename = "ledger.recovered")]
    LedgerRecovered(LedgerRecovered),
    #[serde(rename = "ledger.repeated")]
    Repeated(Repeated),
}

/// The first event of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunStarted {
    /// The command line as given, lossily decoded.
    pub command: Vec<String>,
    pub workspace: String,
    pub profile: String,
    /// The policy's layers, outermost first.
    pub policy: Vec<PolicyLayer>,
    pub version: String,
    /// The user who called, as the kernel knows them.
    pub uid: u32,
    /// The supervisor.
    #[serde(rename = "process.pid")]
    pub pid: u32,
}

/// One file that had a say in the policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyLayer {
    /// A path, or `builtin:NAME`.
    pub source: String,
    pub sha256: String,
}

/// The last event of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunEnded {
    pub exit_code: u8,
    pub ended_by: EndedBy,
    pub reason: String,
    pub duration_ms: u64,
}

/// What ended a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndedBy {
    /// The command ended by itself.
    Exit,
    /// A signal ended the command.
    Signal,
    /// A ceiling was reached.
    Limit,
    /// The policy ended it.
    Policy,
    /// Wall time.
    Wall,
    /// The jail could not be set up.
    Setup,
    /// The supervisor could not go on.
    Failure,
    /// Somebody asked for the end.
    User,
}

/// The level in force and what makes it up: a run's second event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IsolationApplied {
    pub level: String,
    pub layers: Vec<Layer>,
    /// Rights that this kernel does not know, by name.
    pub missing: Vec<String>,
}

/// One layer of the jail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    /// `user_namespace`, `landlock`, `seccomp`, `resources`, …
    pub name: String,
    /// How it is in force: `abi 7`, `cgroup v2`, `resource limits`, …
    pub detail: String,
}

/// A layer that the user accepted to go without.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IsolationDegraded {
    pub layer: String,
    pub reason: String,
}

/// Something inside opened a hidden file and saw its decoy.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HiddenOpened {
    pub path: String,
}

/// The host made a hidden name in a directory that was not guarded. It was covered as soon as it was
/// seen, and may have been read before.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HiddenExposed {
    /// Relative to the workspace, lossily decoded.
    pub path: String,
}

/// A name that the policy closes was not to be changed, made, removed, renamed or linked.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NameRefused {
    /// Relative to the workspace where it is in there, lossily decoded.
    pub path: String,
    /// `open` (to change what is there), `create`, `remove`, `rename` or `link`.
    pub verb: String,
}

/// Something at a name that the policy closes was not there at launch, and was moved away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quarantined {
    /// Where it was, relative to the workspace.
    pub path: String,
    /// The policy's words that close the name.
    pub rule: String,
    /// Where it is now.
    pub kept: String,
}

/// An allowed name was answered with an address of the door's own range.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DnsAnswered {
    #[serde(rename = "dns.question.name")]
    pub name: String,
    /// `A`, `AAAA`, `HTTPS`, …
    #[serde(rename = "dns.question.type")]
    pub kind: String,
    pub address: String,
}

/// A name was refused.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DnsRefused {
    #[serde(rename = "dns.question.name")]
    pub name: String,
    #[serde(rename = "dns.question.type")]
    pub kind: String,
    /// A stable reason code, the same as in a 403 body.
    pub reason: String,
}

/// A connection through the door was let out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EgressAllowed {
    /// Counts the door's connections from 1; ties this event to its `egress.closed`.
    pub connection: u64,
    #[serde(rename = "server.address")]
    pub server: String,
    #[serde(rename = "server.port")]
    pub port: u16,
    /// The address dialled.
    #[serde(rename = "network.peer.address")]
    pub peer: String,
    pub via: Via,
    /// The policy's words that allowed it.
    pub rule: String,
}

/// How the door carried a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Via {
    /// TLS that the door cannot read.
    Tunnel,
    /// TLS that ends at the door.
    Intercept,
    /// Plain HTTP.
    Http,
    /// Bytes on a listed port.
    Tcp,
}

/// A connection reached the door and a rule refused it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct EgressDenied {
    /// The name asked for, else the address.
    #[serde(rename = "server.address")]
    pub server: String,
    #[serde(rename = "server.port")]
    pub port: u16,
    pub reason: String,
}

/// A packet went where the door does not listen.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct EgressAttempted {
    /// The address, or the name that the door's range stands for.
    #[serde(rename = "server.address")]
    pub server: String,
    #[serde(rename = "server.port")]
    pub port: u16,
    /// `tcp` or `udp`, else `ip:<protocol number>`.
    #[serde(rename = "network.transport")]
    pub transport: String,
    /// Who tried, as a pid inside the jail, where it can be known.
    #[serde(rename = "process.pid")]
    pub pid: Option<u32>,
    #[serde(rename = "process.command")]
    pub command: Option<String>,
}

/// A connection through the door ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EgressClosed {
    pub connection: u64,
    /// From the agent to the server.
    pub bytes_sent: u64,
    pub bytes_received: u64,
    pub duration_ms: u64,
}

/// The door listens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DoorOpened {
    pub ports: Vec<u16>,
    pub dns: bool,
}

/// The door cannot go on; the run ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DoorFailed {
    pub reason: String,
}

/// A permitted connection could not be made outside.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct UpstreamFailed {
    #[serde(rename = "server.address")]
    pub server: String,
    #[serde(rename = "server.port")]
    pub port: u16,
    /// A stable code: `name_not_found`, `address_private`, `unreachable`, `certificate`, …
    pub reason: String,
    pub detail: String,
}

/// A call was let through to a provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InferenceRequested {
    /// Counts the run's calls from 1.
    pub call: u64,
    #[serde(rename = "gen_ai.provider.name")]
    pub provider: String,
    #[serde(rename = "gen_ai.operation.name")]
    pub operation: String,
    #[serde(rename = "gen_ai.request.model")]
    pub model: String,
    #[serde(rename = "server.address")]
    pub server: String,
    /// What is held back until the call is settled; `None` when no price bounds it.
    pub reserved_usd: Option<PicoUsd>,
    pub request_bytes: u64,
}

/// A call was paid for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InferenceSettled {
    pub call: u64,
    /// The model that answered.
    #[serde(rename = "gen_ai.response.model")]
    pub model: String,
    /// `turn` when the provider accepted a generation, else `call`.
    pub kind: CallKind,
    #[serde(rename = "http.response.status_code")]
    pub status: u16,
    pub usage: TokenUsage,
    /// Input side of the last generation step.
    pub context_tokens: u64,
    pub cost_usd: Cost,
    pub basis: Basis,
    /// From the request's arrival at the door to the answer's last byte.
    pub duration_ms: u64,
    /// From the request's arrival to the first byte of the answer's body.
    pub first_byte_ms: Option<u64>,
}

/// Whether a settled call counts as a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallKind {
    Turn,
    Call,
}

/// Tokens by disjoint kind: their sum is what was billed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenUsage {
    #[serde(rename = "gen_ai.usage.input_tokens")]
    pub input: u64,
    #[serde(rename = "gen_ai.usage.cache_read.input_tokens")]
    pub cache_read: u64,
    #[serde(rename = "gen_ai.usage.cache_creation.input_tokens")]
    pub cache_write: u64,
    /// The part of `cache_write` at the longer lifetime's price.
    pub cache_write_long: u64,
    /// Includes reasoning.
    #[serde(rename = "gen_ai.usage.output_tokens")]
    pub output: u64,
    pub web_searches: u64,
}

impl TokenUsage {
    /// All that a model was given; never wraps, whatever a server says.
    #[must_use]
    pub const fn input_side(&self) -> u64 {
        self.input.saturating_add(self.cache_read).saturating_add(self.cache_write)
    }
}

/// A price, or that there is none. Unknown is never zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cost {
    Known(PicoUsd),
    Unknown,
}

impl Serialize for Cost {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Known(amount) => amount.serialize(serializer),
            Self::Unknown => serializer.serialize_str("unknown"),
        }
    }
}

impl<'de> Deserialize<'de> for Cost {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text == "unknown" {
            return Ok(Self::Unknown);
        }
        text.parse().map(Self::Known).map_err(de::Error::custom)
    }
}

/// Where a settled call's numbers come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// The provider said so.
    Reported,
    /// Nothing trustworthy was said; charged at its reservation.
    Reserved,
    /// The provider refused the call; nothing is charged.
    Rejected,
}

/// A call was refused at the door.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct InferenceRefused {
    #[serde(rename = "gen_ai.provider.name")]
    pub provider: String,
    #[serde(rename = "gen_ai.request.model")]
    pub model: String,
    /// `max_turns`, `max_usd`, `unknown_price`, …
    pub reason: String,
    #[serde(rename = "http.response.status_code")]
    pub status: u16,
}

/// A call's answer did not arrive whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InferenceAborted {
    pub call: u64,
    /// `agent_left`, `upstream_broke`, `limit_reached`, `killed`.
    pub reason: String,
}

/// Budget was made durable ahead of the calls that will use it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetReserved {
    pub slice_usd: PicoUsd,
    /// All that may have been spent if nothing more is recorded.
    pub through_usd: PicoUsd,
}

/// A ceiling is near.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetWarned {
    /// `max_usd`, `max_turns`, …
    pub limit: String,
    pub percent: u8,
    pub used: String,
    pub ceiling: String,
}

/// A ceiling was reached: the call that would have crossed it was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitReached {
    pub limit: String,
    pub used: String,
    pub ceiling: String,
}

/// The end of the tree was decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KillRequested {
    pub cause: EndedBy,
    pub reason: String,
}

/// Nothing of the jail is alive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KillCompleted {
    /// The signal that it took: `SIGTERM` or `SIGKILL`.
    pub signal: String,
    pub duration_ms: u64,
}

/// A process came to be, or runs another program from now on; seen by the kernel.
///
/// It is recorded up to a moment after it happened: `process.creation.time` says when it did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessStarted {
    /// Counts the run's processes from 1; ties all events of one process together, where a pid
    /// may come back for another. A process that replaces its program has several of this event.
    pub process: u64,
    /// The number of the parent; `None` for a child of the jail's pid 1.
    pub parent: Option<u64>,
    /// Inside the jail.
    #[serde(rename = "process.pid")]
    pub pid: u32,
    #[serde(rename = "process.parent_pid")]
    pub parent_pid: u32,
    pub by: StartedBy,
    /// The real path of what runs, as the jail sees it; `None` after a fork, and where it could
    /// not be read. Of a script this is its interpreter.
    #[serde(rename = "process.executable.path")]
    pub executable: Option<String>,
    /// Of the executable; `None` where it could not be read, or changed since.
    #[serde(rename = "process.executable.sha256")]
    pub sha256: Option<String>,
    /// As the kernel gave them to the program; whole arguments, the first ones of very many.
    #[serde(rename = "process.command_args")]
    pub args: Vec<String>,
    /// The bytes of the arguments that are left out.
    pub omitted_args_bytes: u64,
    /// Where it was started.
    #[serde(rename = "process.working_directory")]
    pub cwd: Option<String>,
    /// RFC 3339.
    #[serde(rename = "process.creation.time")]
    pub time: String,
}

/// How a process came to run what it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StartedBy {
    /// It goes on with its parent's program.
    Fork,
    Exec,
}

/// A recorded process ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessExited {
    pub process: u64,
    #[serde(rename = "process.pid")]
    pub pid: u32,
    #[serde(flatten)]
    pub end: ProcessEnd,
    /// RFC 3339.
    #[serde(rename = "process.exit.time")]
    pub time: String,
}

/// What the kernel told the parent of a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum ProcessEnd {
    Exited {
        #[serde(rename = "process.exit.code")]
        code: u8,
    },
    Signaled {
        /// `SIGKILL`, …; `signal 34` for one without a name.
        signal: String,
    },
    /// The kernel did not tell. Never guessed.
    Unknown,
}

/// Something happened that is not on record, this many times.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordingMissed {
    /// The event that there would be: `process.started`, or `process.exited` for an end that is
    /// not known.
    pub what: String,
    /// A stable code: `unconfirmed` when something was gone before it could be seen, `too_many`
    /// at once, `unreadable`, `too_fast` for the record.
    pub reason: String,
    pub count: u64,
}

/// Something a person should look at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlertRaised {
    pub what: String,
    pub detail: String,
}

/// A run that ended without its last words was closed by a later one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerRecovered {
    /// The run that was closed.
    pub recovered_run: String,
    /// The bytes of a torn last line, moved aside.
    pub torn_bytes: u64,
    /// The last whole entry.
    pub last_seq: u64,
}

/// An event that was recorded once happened again, this many times, with the same data; only the
/// process id of an attempt may differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repeated {
    /// The entry that says what happened.
    pub of_seq: u64,
    pub count: u64,
    /// RFC 3339, of the last repetition.
    pub last: String,
}
