//! Compiles the table, and what seccompiler cannot express, to the one filter of the agent.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;

use seccompiler::{
    SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch,
};

use super::bpf::{
    self, ALLOW, NATIVE, RETURN, Step, any_of, at_least, equal, load_arch, load_argument,
    load_call, one_after_the_other,
};
use super::notify::{Names, WRITING, notifying};
use super::table::{Answer, FIRST_UNKNOWN, REFUSED, Refusal, When};
use crate::sys;

/// The flags of open(2) under which a mode counts: `O_CREAT`, and the bit of `O_TMPFILE` that is no
/// other flag's.
const CREATING: [u32; 2] = [0o100, 0o20_000_000];

/// The calls that open a file, and which of their arguments are the flags.
const OPENING: &[(libc::c_long, usize)] = &[
    (libc::SYS_openat, 2),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, 1),
];

/// Installs the filter on this process; what it refuses stays refused for all its children. Calls
/// that wait for a verdict arrive on the descriptor.
pub(crate) fn install(names: Names) -> io::Result<OwnedFd> {
    sys::install_with_listener(&whole(names)?)
}

/// All of it in one program: of several the kernel runs each at every call that one of them looks
/// at closer, and an open is most of what a search through files is made of.
fn whole(names: Names) -> io::Result<Vec<Step>> {
    let mut filter = entry_points().map_err(io::Error::other)?;
    let refused = [compile(Answer::NotThere)?, compile(Answer::NotPermitted)?];
    let notifying = notifying(names).map_err(io::Error::other)?;
    let rest = one_after_the_other(&[&refused[0], &refused[1], &notifying]);
    filter.extend(rest.map_err(io::Error::other)?);
    Ok(filter)
}

/// Refuses every call through a foreign entry point (32-bit and x32) and every call that is newer
/// than the table, so that nothing is allowed only because nobody knew it; allows an open that only
/// looks. What is left is decided behind it.
///
/// x32 calls carry bit 30, and thus lie above every known number.
fn entry_points() -> Result<Vec<Step>, std::num::TryFromIntError> {
    // Defence::SeccompEntryPoints: kernel::agent_cannot_call_a_number_of_a_later_kernel.
    let mut filter = vec![
        load_arch(),
        equal(NATIVE, 1, 0),
        bpf::answer(bpf::refuse(libc::ENOSYS)),
        load_call(),
        at_least(FIRST_UNKNOWN, 0, 1),
        bpf::answer(bpf::refuse(libc::ENOSYS)),
    ];
    for &(call, flags) in OPENING {
        filter.extend([
            equal(u32::try_from(call)?, 0, 4),
            load_argument(flags),
            any_of(WRITING | CREATING[0] | CREATING[1], 1, 0),
            bpf::answer(ALLOW),
            load_call(),
        ]);
    }
    Ok(filter)
}

fn compile(answer: Answer) -> io::Result<Vec<Step>> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for refusal in REFUSED.iter().filter(|refusal| refusal.answer == answer) {
        let of_call = rules.entry(refusal.call).or_default();
        of_call.extend(conditions(refusal).map_err(io::Error::other)?);
    }
    let errno = match answer {
        Answer::NotPermitted => libc::EPERM,
        Answer::NotThere => libc::ENOSYS,
    };
    let filter = SeccompFilter::new(
        rules,
        SeccompAction::Allow,
        SeccompAction::Errno(errno.cast_unsigned()),
        TargetArch::try_from(std::env::consts::ARCH).map_err(io::Error::other)?,
    );
    let program: seccompiler::BpfProgram =
        filter.and_then(TryInto::try_into).map_err(io::Error::other)?;
    let steps = program.into_iter();
    Ok(refusing_foreign_calls(
        steps
            .map(|seccompiler::sock_filter { code, jt, jf, k }| Step { code, jt, jf, k })
            .collect(),
    ))
}

/// seccompiler ends a process that comes by a foreign entry point, and of all filters' answers the
/// kernel takes the hardest. A refusal is easier to read than a death.
fn refusing_foreign_calls(mut program: Vec<Step>) -> Vec<Step> {
    let kill = u32::from(SeccompAction::KillProcess);
    for step in program.iter_mut().filter(|step| step.code == RETURN && step.k == kill) {
        step.k = bpf::refuse(libc::ENOSYS);
    }
    program
}

/// The rules under which a call is refused; none means always.
fn conditions(refusal: &Refusal) -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    let dword = SeccompCmpArgLen::Dword;
    match refusal.when {
        When::Always => Ok(Vec::new()),
        When::Masked { arg, mask, value } => {
            let op = SeccompCmpOp::MaskedEq(mask.into());
            let condition = SeccompCondition::new(arg, dword, op, value.into())?;
            Ok(vec![SeccompRule::new(vec![condition])?])
        }
        // One rule a bit: rules of a call are alternatives.
        When::AnyOf { arg, mask } => (0..u32::BITS)
            .map(|bit| 1_u32 << bit)
            .filter(|bit| mask & bit != 0)
            .map(|bit| {
                let op = SeccompCmpOp::MaskedEq(bit.into());
                SeccompRule::new(vec![SeccompCondition::new(arg, dword.clone(), op, bit.into())?])
            })
            .collect(),
        When::Creates { flags, mode, mask } => {
            let bits = (0..u32::BITS).map(|bit| 1_u32 << bit).filter(|bit| mask & bit != 0);
            let has = |arg, bit: u32| {
                let op = SeccompCmpOp::MaskedEq(bit.into());
                SeccompCondition::new(arg, dword.clone(), op, bit.into())
            };
            let rules = bits.flat_map(|bit| CREATING.map(|flag| (flag, bit)));
            rules
                .map(|(flag, bit)| SeccompRule::new(vec![has(flags, flag)?, has(mode, bit)?]))
                .collect()
        }
        // Conditions of a rule hold together.
        When::NoneOf { arg, values } => {
            let differs = |value: &u32| {
                SeccompCondition::new(arg, dword.clone(), SeccompCmpOp::Ne, (*value).into())
            };
            let conditions = values.iter().map(differs).collect::<Result<Vec<_>, _>>()?;
            Ok(vec![SeccompRule::new(conditions)?])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::bpf::{NOTIFY, Seen, run};
    use super::*;

    /// What the kernel would make of the parts, each installed by itself: a refusal beats a wait,
    /// and a wait beats a pass.
    fn by_parts(names: Names, seen: Seen) -> u32 {
        let mut entry = entry_points().unwrap();
        entry.push(bpf::answer(ALLOW));
        let parts = [
            entry,
            compile(Answer::NotThere).unwrap(),
            compile(Answer::NotPermitted).unwrap(),
            notifying(names).unwrap(),
        ];
        let answers = parts.map(|part| run(&part, seen));
        let is_refusal = |answer: &&u32| **answer != ALLOW && **answer != NOTIFY;
        let refusal = answers.iter().find(is_refusal);
        let waits = answers.iter().find(|answer| **answer == NOTIFY);
        refusal.or(waits).copied().unwrap_or(ALLOW)
    }

    #[test]
    fn the_whole_answers_what_its_parts_would() {
        let bits = (0..u32::BITS).map(|bit| 1 << bit);
        let values: Vec<u32> = bits.chain([0, 0o4755, 0o6777, 0x5412, 0x1002, u32::MAX]).collect();
        let mut kinds = std::collections::BTreeSet::new();
        for names in [Names::Guarded, Names::Free] {
            let whole = whole(names).unwrap();
            for call in (0..FIRST_UNKNOWN + 3).chain([1 << 30]) {
                for arch in [NATIVE, 0x4000_0003] {
                    for (at, &value) in values.iter().enumerate() {
                        let mut args = [value; 6];
                        args[at % 6] = values[at * 7 % values.len()];
                        let seen = Seen { arch, call, args };
                        let answer = run(&whole, seen);
                        assert_eq!(answer, by_parts(names, seen), "{seen:?}");
                        kinds.insert(answer);
                    }
                }
            }
        }
        let errno = |errno| bpf::refuse(errno);
        let all = [ALLOW, NOTIFY, errno(libc::ENOSYS), errno(libc::EPERM)];
        assert_eq!(kinds, all.into());
    }

    #[test]
    fn an_open_that_only_looks_is_decided_in_a_few_steps() {
        for &(call, flags) in OPENING {
            let mut args = [u32::MAX; 6];
            args[flags] = (libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC).cast_unsigned();
            let seen = Seen { arch: NATIVE, call: u32::try_from(call).unwrap(), args };
            assert_eq!(run(&entry_points().unwrap(), seen), ALLOW);
        }
    }
}
