//! The command line as typed.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::styling::{AnsiColor, Styles};
use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use kvro_ledger::PicoUsd;
use kvro_proxy::HostPattern;

use super::{doctor, explain, kill, ledger, policy, profile, ps};
use crate::failure::EXIT_CODES;
use crate::limits::OnLimit;
use crate::policy::{
    ByteSize, Cpus, EnvWord, Level, NetMode, Overlay, PathGlob, PolicyChoice, Span,
};

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold());

const EXAMPLES: &str = "\
Examples:
  kvro-jail -- claude                      an agent at the terminal
  kvro-jail --max-usd 5 -- claude -p 'fix the tests'
  kvro-jail --no-net -- cargo test         no connection of any kind
  kvro-jail --dry-run -- codex             what the jail would be made of
  kvro-jail explain host example.com       why a server is allowed or not";

/// Runs a coding agent so that what it must not do, it cannot do, and what it did is on record.
#[derive(Debug, Parser)]
#[command(
    name = "kvro-jail",
    version,
    about,
    styles = STYLES,
    after_help = EXAMPLES,
    after_long_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"),
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Option<Subcommands>,
    #[command(flatten)]
    pub run: RunArgs,
}

/// Everything that is not a bare run.
#[derive(Debug, Subcommand)]
pub enum Subcommands {
    /// Run a command in a jail; the word `run` may be left out
    #[command(after_long_help = EXIT_CODES)]
    Run(Box<RunArgs>),
    /// What this machine can enforce, and the exact fix for what it cannot
    Doctor(doctor::DoctorArgs),
    /// The decision about a server, a path or a variable, and the rule behind it
    #[command(visible_alias = "why")]
    Explain(explain::ExplainArgs),
    /// Write, show, check or trust a policy
    Policy(policy::PolicyArgs),
    /// What profiles there are and what each shows of the home
    Profile(profile::ProfileArgs),
    /// Read and verify what is on record
    Ledger(ledger::LedgerArgs),
    /// The runs that are alive
    Ps(ps::PsArgs),
    /// End a run and everything in it
    Kill(kill::KillArgs),
    /// Print a completion script for a shell
    Completions { shell: clap_complete::Shell },
    /// Print the manual page
    Man,
}

/// The options of a run.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// The agent's profile; guessed from the command's name otherwise
    #[arg(short = 'P', long, value_name = "NAME")]
    pub profile: Option<String>,
    /// A policy file, or builtin:NAME, in place of the ones that would be found
    #[arg(long, value_name = "FILE")]
    pub policy: Option<PolicyChoice>,
    /// Where the agent works
    #[arg(short = 'C', long, value_name = "DIR", default_value = ".")]
    pub workspace: PathBuf,

    /// Show a path read-only
    #[arg(long, value_name = "PATH", help_heading = "Files")]
    pub read: Vec<PathBuf>,
    /// Show a path read-write
    #[arg(long, value_name = "PATH", help_heading = "Files")]
    pub write: Vec<PathBuf>,
    /// Hide what matches, relative to the workspace
    #[arg(long, value_name = "GLOB", visible_aliases = ["deny", "mask"], help_heading = "Files")]
    pub hide: Vec<PathGlob>,
    /// Keep what matches as it is, relative to the workspace
    #[arg(long, value_name = "GLOB", help_heading = "Files")]
    pub protect: Vec<PathGlob>,

    /// `closed` for no way out at all, `proxy` for one metered door
    #[arg(long, value_name = "MODE", help_heading = "Network")]
    pub net: Option<NetMode>,
    /// The same as --net closed
    #[arg(long, conflicts_with = "net", help_heading = "Network")]
    pub no_net: bool,
    /// Allow a server: HOST, *.DOMAIN or HOST:PORT
    #[arg(
        long,
        value_name = "HOST[:PORT]",
        visible_alias = "allow-domain",
        help_heading = "Network"
    )]
    pub allow_host: Vec<HostPattern>,
    /// Refuse a server, whatever allows it
    #[arg(long, value_name = "HOST", help_heading = "Network")]
    pub deny_host: Vec<HostPattern>,

    /// Let a variable in, or set one
    #[arg(long, value_name = "NAME[=VALUE]", help_heading = "Environment")]
    pub env: Vec<EnvWord>,

    /// Dollars that inference may cost
    #[arg(
        long,
        value_name = "AMOUNT",
        visible_aliases = ["max-cost", "max-budget-usd"],
        help_heading = "Ceilings"
    )]
    pub max_usd: Option<PicoUsd>,
    /// Generation calls that a provider accepts
    #[arg(long, value_name = "N", help_heading = "Ceilings")]
    pub max_turns: Option<u64>,
    /// Tokens of every kind, summed over the run
    #[arg(long, value_name = "N", help_heading = "Ceilings")]
    pub max_tokens: Option<u64>,
    /// Tokens of context in one call
    #[arg(long, value_name = "N", help_heading = "Ceilings")]
    pub max_context: Option<u64>,
    /// Wall time: 90s, 45m, 2h
    #[arg(long, value_name = "TIME", visible_alias = "timeout", help_heading = "Ceilings")]
    pub max_wall: Option<Span>,
    /// Percentages of a ceiling at which to warn
    #[arg(
        long,
        value_name = "P,P",
        value_delimiter = ',',
        value_parser = clap::value_parser!(u8).range(1..=100),
        help_heading = "Ceilings"
    )]
    pub warn_at: Option<Vec<u8>>,
    /// What follows a ceiling: end the run, or only refuse calls
    #[arg(long, value_name = "kill|deny", help_heading = "Ceilings")]
    pub on_limit: Option<LimitWord>,
    /// Time between SIGTERM and SIGKILL at the end
    #[arg(long, value_name = "TIME", default_value = "3s", help_heading = "Ceilings")]
    pub grace: Span,

    /// Memory: 512M, 4G
    #[arg(long, value_name = "SIZE", help_heading = "Resources")]
    pub memory: Option<ByteSize>,
    /// Processes and threads
    #[arg(long, value_name = "N", help_heading = "Resources")]
    pub pids: Option<u64>,
    /// Processors: 2, 0.5
    #[arg(long, value_name = "N", help_heading = "Resources")]
    pub cpus: Option<Cpus>,
    /// The weakest isolation to accept
    #[arg(long, value_name = "LEVEL", help_heading = "Resources")]
    pub require: Option<Level>,

    /// Write the run's report as JSON
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub report: Option<PathBuf>,
    /// Say nothing at start and end
    #[arg(short, long, help_heading = "Output")]
    pub quiet: bool,
    /// Log what the supervisor does; twice for more (KVRO_LOG refines it)
    #[arg(short, long, action = ArgAction::Count, help_heading = "Output")]
    pub verbose: u8,
    /// Print the plan of the jail and run nothing
    #[arg(long, help_heading = "Output")]
    pub dry_run: bool,

    /// The command to run, with its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        value_name = "CMD",
        value_hint = clap::ValueHint::CommandWithArguments
    )]
    pub command: Vec<OsString>,
}

/// `--on-limit` as typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LimitWord {
    Kill,
    Deny,
}

impl RunArgs {
    /// The flags that change the policy.
    #[must_use]
    pub fn overlay(&self) -> Overlay {
        let net = if self.no_net { Some(NetMode::Closed) } else { self.net };
        Overlay {
            policy: self.policy.clone(),
            read: self.read.clone(),
            write: self.write.clone(),
            hide: self.hide.clone(),
            protect: self.protect.clone(),
            net,
            allow_host: self.allow_host.clone(),
            deny_host: self.deny_host.clone(),
            env: self.env.clone(),
            max_turns: self.max_turns,
            max_usd: self.max_usd,
            max_tokens: self.max_tokens,
            max_context_tokens: self.max_context,
            max_wall: self.max_wall,
            warn_at: self.warn_at.clone(),
            on_limit: self.on_limit.map(|word| match word {
                LimitWord::Kill => OnLimit::Kill,
                LimitWord::Deny => OnLimit::Deny,
            }),
            memory: self.memory,
            pids: self.pids,
            cpus: self.cpus,
            require: self.require,
        }
    }
}
