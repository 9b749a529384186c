//! A row: a probe, what it must answer inside, and the control.

use std::fmt;

use crate::needs::Need;

/// What of the program a row or a case is about: with it gone, the row is red. The code says where
/// it is (see `sources`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Defence {
    /// The table of refused calls.
    SeccompTable,
    /// The filter over entry points and unknown calls.
    SeccompEntryPoints,
    /// The judge of `connect`.
    ConnectJudge,
    /// A root made from a list.
    Root,
    /// Read-only covers in `/proc`, and a `/sys` of few pieces.
    ReadOnlyKernelFiles,
    /// Decoys over what is hidden.
    HiddenMask,
    /// Read-only views over what is protected.
    ProtectedMask,
    /// Names that hold for the whole run, whoever changes them.
    Guard,
    /// The second wall over files.
    Landlock,
    /// The domain that keeps processes outside of it apart.
    LandlockScope,
    NoCapabilities,
    NoNewPrivileges,
    /// The agent of a root caller is not the kernel's root.
    Identity,
    PidNamespace,
    IpcNamespace,
    NetworkNamespace,
    ClosedDescriptors,
    EnvironmentList,
    /// Pid 1 shows nothing of what started it.
    HiddenPid1,
    Keyring,
    CoreLimit,
    Ceilings,
    /// The door answers for every server, and refuses.
    Door,
    /// Workspaces that hold more than work are refused.
    Place,
    /// The end of the tree with its supervisor.
    Lifeline,
    /// SIGTERM, grace, SIGKILL.
    KillSwitch,
    /// Nothing: what is harmless must work.
    None,
}

/// What to do, in the prisoner's words.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Probe {
    /// `{name}` in a word stands for a place of the world.
    Words(&'static [&'static str]),
    /// Who answers this call: `passes` when the kernel would.
    Call(i64, &'static [u64]),
}

/// How it is known that the probe itself works.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Control {
    /// The same probe, by the same user, outside of any jail.
    Outside(Expect),
    /// The same probe outside, by root. Where nobody here is root, the inside stands alone.
    OutsideAsRoot(Expect),
    /// A harmless twin of the probe, inside.
    Twin(&'static [&'static str], Expect),
    /// Rows about what works are their own control.
    Itself,
}

/// An answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expect {
    Is(&'static str),
    /// Where the machine decides, any other answer than this.
    IsNot(&'static str),
}

/// A row of a table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) defence: Defence,
    pub(crate) needs: &'static [Need],
    pub(crate) probe: Probe,
    pub(crate) inside: Expect,
    pub(crate) control: Control,
}

impl Probe {
    /// The prisoner's command line.
    pub(crate) fn words(self) -> Vec<String> {
        match self {
            Self::Words(words) => words.iter().map(|&word| word.to_owned()).collect(),
            Self::Call(number, args) => {
                let numbers = args.iter().map(u64::to_string);
                ["passes".to_owned(), number.to_string()].into_iter().chain(numbers).collect()
            }
        }
    }
}

impl Expect {
    pub(crate) fn matches(self, said: &str) -> bool {
        match self {
            Self::Is(this) => said == this,
            Self::IsNot(this) => said != this,
        }
    }
}

impl fmt::Display for Expect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Is(this) => write!(f, "{this:?}"),
            Self::IsNot(this) => write!(f, "anything but {this:?}"),
        }
    }
}
