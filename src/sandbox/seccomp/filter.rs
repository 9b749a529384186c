//! Compiles the table and installs it.

use std::collections::BTreeMap;
use std::io;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter,
};

use super::notify;
use super::table::{Answer, REFUSED, Refusal, When};

/// The flags of open(2) under which a mode counts: `O_CREAT`, and the bit of `O_TMPFILE` that is no
/// other flag's.
const CREATING: [u32; 2] = [0o100, 0o20_000_000];

/// Installs the filters on this process; what they refuse stays refused for all its children.
pub(crate) fn install() -> io::Result<()> {
    notify::install_entry_points()?;
    for answer in [Answer::NotThere, Answer::NotPermitted] {
        apply_filter(&compile(answer)?).map_err(io::Error::other)?;
    }
    Ok(())
}

fn compile(answer: Answer) -> io::Result<BpfProgram> {
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
    let program = filter.and_then(TryInto::try_into).map_err(io::Error::other)?;
    Ok(refusing_foreign_calls(program))
}

/// seccompiler ends a process that comes by a foreign entry point, and of all filters' answers the
/// kernel takes the hardest. A refusal is easier to read than a death.
fn refusing_foreign_calls(mut program: BpfProgram) -> BpfProgram {
    let kill = u32::from(SeccompAction::KillProcess);
    let refuse = u32::from(SeccompAction::Errno(libc::ENOSYS.cast_unsigned()));
    for step in program.iter_mut().filter(|step| step.code == notify::RETURN && step.k == kill) {
        step.k = refuse;
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
