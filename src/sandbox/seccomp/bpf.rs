//! Programs of the kernel's socket filter machine, as seccomp(2) runs them.

use std::mem::offset_of;

// From include/uapi/linux/bpf_common.h.
const LOAD: u16 = 0x20;
const EQUAL: u16 = 0x15;
const AT_LEAST: u16 = 0x35;
const ANY_OF: u16 = 0x45;
const JUMP: u16 = 0x05;
pub(super) const RETURN: u16 = 0x06;

// From include/uapi/linux/audit.h.
#[cfg(target_arch = "x86_64")]
pub(super) const NATIVE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
pub(super) const NATIVE: u32 = 0xc000_00b7;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("the system call tables of this architecture are not known");

pub(super) const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
pub(super) const NOTIFY: u32 = libc::SECCOMP_RET_USER_NOTIF;

pub(super) const fn refuse(errno: i32) -> u32 {
    libc::SECCOMP_RET_ERRNO | errno.cast_unsigned()
}

/// One step.
pub(super) type Step = libc::sock_filter;

const fn step(code: u16, jt: u8, jf: u8, k: u32) -> Step {
    Step { code, jt, jf, k }
}

#[expect(clippy::cast_possible_truncation, reason = "a struct of 64 bytes")]
const fn load(offset: usize) -> Step {
    step(LOAD, 0, 0, offset as u32)
}

pub(super) const fn load_arch() -> Step {
    load(offset_of!(libc::seccomp_data, arch))
}

pub(super) const fn load_call() -> Step {
    load(offset_of!(libc::seccomp_data, nr))
}

/// The lower half of an argument, on machines that count from the little end.
pub(super) const fn load_argument(at: usize) -> Step {
    load(offset_of!(libc::seccomp_data, args) + at * size_of::<u64>())
}

/// Whether what is loaded is `value`; skips so many steps if so, and if not.
pub(super) const fn equal(value: u32, yes: u8, no: u8) -> Step {
    step(EQUAL, yes, no, value)
}

pub(super) const fn at_least(value: u32, yes: u8, no: u8) -> Step {
    step(AT_LEAST, yes, no, value)
}

/// Whether what is loaded has one of these bits.
pub(super) const fn any_of(bits: u32, yes: u8, no: u8) -> Step {
    step(ANY_OF, yes, no, bits)
}

pub(super) const fn answer(value: u32) -> Step {
    step(RETURN, 0, 0, value)
}

/// One program of several: each decides about what those before it allow.
pub(super) fn one_after_the_other(programs: &[&[Step]]) -> Result<Vec<Step>, TooLong> {
    let Some((last, before)) = programs.split_last() else { return Ok(Vec::new()) };
    let mut whole = Vec::new();
    for program in before {
        for (at, &one) in program.iter().enumerate() {
            let is_over = one.code == RETURN && one.k == ALLOW;
            let rest = u32::try_from(program.len() - at - 1).map_err(|_too_long| TooLong)?;
            whole.push(if is_over { step(JUMP, 0, 0, rest) } else { one });
        }
    }
    whole.extend_from_slice(last);
    if whole.len() > MOST { Err(TooLong) } else { Ok(whole) }
}

/// As many steps as the kernel takes (`BPF_MAXINSNS`).
const MOST: usize = 4096;

/// The filter is longer than the kernel takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the filter has more than {MOST} steps")]
pub(super) struct TooLong;

/// A call, as a filter sees it.
#[cfg(test)]
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    pub(super) arch: u32,
    pub(super) call: u32,
    /// Lower halves; the upper ones are zero.
    pub(super) args: [u32; 6],
}

/// What `program` answers to `seen`, run as the kernel does.
#[cfg(test)]
pub(super) fn run(program: &[Step], seen: Seen) -> u32 {
    const AND: u16 = 0x54;
    const ABOVE: u16 = 0x25;
    let arguments = offset_of!(libc::seccomp_data, args);
    let word = |offset: usize| match offset {
        0 => seen.call,
        4 => seen.arch,
        at if at >= arguments && (at - arguments).is_multiple_of(8) => {
            seen.args[(at - arguments) / 8]
        }
        at if at >= arguments => 0,
        at => panic!("a filter loads from {at}"),
    };
    let (mut at, mut loaded) = (0, 0);
    loop {
        let Step { code, jt, jf, k } = program[at];
        at += 1;
        let mut jump = |yes: bool| at += usize::from(if yes { jt } else { jf });
        match code {
            LOAD => loaded = word(k as usize),
            AND => loaded &= k,
            EQUAL => jump(loaded == k),
            AT_LEAST => jump(loaded >= k),
            ABOVE => jump(loaded > k),
            ANY_OF => jump(loaded & k != 0),
            JUMP => at += k as usize,
            RETURN => return k,
            other => panic!("a filter has the step {other:#x}"),
        }
    }
}
