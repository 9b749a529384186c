//! What `/proc` says of a process of the jail (proc(5)).
//!
//! Everything is as it was a moment ago: whoever reads makes sure that the process is still the one
//! that was meant. What cannot be read is `None`, most often because the process is gone.

use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Who a thread belongs to, from `/proc/TID/status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Belongs {
    /// The process.
    pub(super) process: u32,
    /// The process as it sees itself, in the innermost pid namespace.
    pub(super) inside: u32,
    pub(super) parent: u32,
}

pub(super) fn belongs(thread: u32) -> Option<Belongs> {
    let mut room = [0; 4096];
    parse_belongs(read(&format!("/proc/{thread}/status"), &mut room)?)
}

/// The process of `thread`; a thread that nothing is known of stands for itself.
pub(super) fn process_of(thread: u32) -> u32 {
    belongs(thread).map_or(thread, |belongs| belongs.process)
}

fn parse_belongs(status: &[u8]) -> Option<Belongs> {
    // The name of a program need not be UTF-8.
    let field = |name: &[u8]| {
        let line = status.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(name))?;
        std::str::from_utf8(line).ok()?.split_whitespace().last()?.parse().ok()
    };
    let (process, inside, parent) = (field(b"Tgid:")?, field(b"NStgid:")?, field(b"PPid:")?);
    Some(Belongs { process, inside, parent })
}

/// Whether a process has a program at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Life {
    Running,
    /// In the middle of an exec: the last program is gone and the next one not laid out.
    Between,
    /// A zombie, without any memory.
    Dead,
}

/// What tells one program of a process from the next, from `/proc/PID/stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stat {
    /// Whether the process ran a program of its own since it was forked (`PF_FORKNOEXEC`).
    pub(super) has_execed: bool,
    pub(super) life: Life,
    /// Clock ticks after boot; together with the pid this names a process.
    pub(super) born: u64,
    /// Where the kernel laid the code and the arguments: an exec lays them anew, at random.
    pub(super) layout: [u64; 3],
}

impl Stat {
    /// How many bytes the arguments take.
    pub(super) const fn args_len(&self) -> u64 {
        let [_, start, end] = self.layout;
        end.saturating_sub(start)
    }
}

pub(super) fn stat(process: u32) -> Option<Stat> {
    let mut room = [0; 2048];
    parse_stat(read(&format!("/proc/{process}/stat"), &mut room)?)
}

fn parse_stat(line: &[u8]) -> Option<Stat> {
    const FORKED_AND_NOT_EXECED: u64 = 0x40;
    // The name before it is the program's own choice, parentheses included.
    let name_end = line.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(line.get(name_end + 1..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    // Fields count from 1; the state is the third. Each call goes on behind the last one.
    let mut next = 3;
    let mut field = |number: usize| {
        let field = fields.nth(number - next)?;
        next = number + 1;
        Some(field)
    };
    let is_dead = matches!(field(3)?, "Z" | "X");
    let mut number = |place| field(place)?.parse::<u64>().ok();
    let has_execed = number(9)? & FORKED_AND_NOT_EXECED == 0;
    let born = number(22)?;
    // The code is noted after the arguments are laid (load_elf_binary in fs/binfmt_elf.c). Of a
    // program that we may not look into, a 1 stands for it and zeroes for the arguments.
    let layout = [number(26)?, number(48)?, number(49)?];
    let life = match layout {
        _ if is_dead => Life::Dead,
        [0, ..] => Life::Between,
        _ => Life::Running,
    };
    Some(Stat { has_execed, life, born, layout })
}

/// So many arguments are kept, and so many bytes of them.
const MOST_ARGS: usize = 256;
const MOST_BYTES: usize = 4096;

/// The arguments that a program was started with.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Args {
    pub(super) kept: Vec<OsString>,
    /// The bytes of those that are left out.
    pub(super) omitted: u64,
}

/// The arguments of a process, of which `stat` was read.
pub(super) fn args(process: u32, stat: &Stat) -> Option<Args> {
    let mut room = [0; MOST_BYTES];
    let bytes = read(&format!("/proc/{process}/cmdline"), &mut room)?;
    Some(parse_args(bytes, stat.args_len()))
}

/// Half an argument could hold half a secret, which nobody would recognise as one: only whole ones
/// are kept.
fn parse_args(bytes: &[u8], all: u64) -> Args {
    if bytes.is_empty() {
        return Args { kept: Vec::new(), omitted: all };
    }
    let whole = bytes.iter().rposition(|byte| *byte == 0).and_then(|end| bytes.get(..end));
    let whole = match whole {
        Some(whole) => whole,
        // A program that writes over its arguments need not end them.
        None if bytes.len() < MOST_BYTES => bytes,
        None => return Args { kept: Vec::new(), omitted: all.max(bytes.len() as u64) },
    };
    let mut kept: Vec<OsString> = Vec::new();
    let mut length = 0_u64;
    for arg in whole.split(|byte| *byte == 0).take(MOST_ARGS) {
        length += arg.len() as u64 + 1;
        kept.push(OsString::from_vec(arg.to_vec()));
    }
    Args { kept, omitted: all.saturating_sub(length) }
}

/// The file that a process runs.
#[derive(Debug)]
pub(super) struct Program {
    /// As the jail sees it.
    pub(super) path: PathBuf,
    /// With what it is now; `None` when it may be run but not read.
    pub(super) file: Option<(File, Metadata)>,
}

pub(super) fn program(process: u32) -> Option<Program> {
    let link = format!("/proc/{process}/exe");
    let mut path = fs::read_link(&link).ok()?;
    let open = || {
        let file = File::open(&link)?;
        let facts = file.metadata()?;
        Ok::<_, io::Error>((file, facts))
    };
    let file = open().ok();
    if let Some(before) = path.as_os_str().as_bytes().strip_suffix(b" (deleted)")
        && file.as_ref().is_none_or(|(_, facts)| facts.nlink() == 0)
    {
        path = Path::new(std::ffi::OsStr::from_bytes(before)).to_owned();
    }
    Some(Program { path, file })
}

/// The directory a thread is in, as the jail sees it.
pub(super) fn directory(thread: u32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{thread}/cwd")).ok()
}

/// The command name (`comm`) of a thread.
pub(super) fn command(thread: u32) -> Option<String> {
    let mut room = [0; 64];
    let name = read(&format!("/proc/{thread}/comm"), &mut room)?;
    Some(String::from_utf8_lossy(name).trim_end().to_owned())
}

/// One read, which the kernel fills as far as it can: none of these files has a size.
fn read<'r>(path: &str, room: &'r mut [u8]) -> Option<&'r [u8]> {
    let length = File::open(path).ok()?.read(room).ok()?;
    room.get(..length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_the_programs_own_choice_misleads_nobody() {
        let status = b"Name:\t\xff\\nTgid:\t9\nTgid:\t70\nPid:\t71\nPPid:\t3\nNStgid:\t70\t5\n";
        assert_eq!(parse_belongs(status), Some(Belongs { process: 70, inside: 5, parent: 3 }));
        let mut line = b"70 (a) Z 1 (\xff) S 3 70 3 0 -1 64".to_vec();
        (10..=52).for_each(|field| line.extend(format!(" {field}").bytes()));
        let life = Life::Running;
        let stat = Stat { has_execed: false, life, born: 22, layout: [26, 48, 49] };
        assert_eq!(parse_stat(&line), Some(stat));
        assert_eq!(parse_stat(&line[..60]), None);
    }

    #[test]
    fn a_program_that_is_not_laid_out_yet_is_none() {
        let life = |state: &str, code: u32| {
            let mut line = format!("70 (a) {state} 3 70 3 0 -1 0");
            for field in 10..=52 {
                let value = if field == 26 { code } else { field };
                line += &format!(" {value}");
            }
            parse_stat(line.as_bytes()).unwrap().life
        };
        assert_eq!(life("R", 26), Life::Running);
        assert_eq!(life("D", 0), Life::Between);
        // One that may not be looked into.
        assert_eq!(life("R", 1), Life::Running);
        assert_eq!(life("Z", 0), Life::Dead);
    }

    #[test]
    fn a_process_is_read_as_it_is() {
        let own = std::process::id();
        let parent = std::os::unix::process::parent_id();
        assert_eq!(belongs(own), Some(Belongs { process: own, inside: own, parent }));
        let stat = stat(own).unwrap();
        assert_eq!((stat.has_execed, stat.life), (true, Life::Running));
        let args: Vec<OsString> = std::env::args_os().collect();
        assert_eq!(super::args(own, &stat), Some(Args { kept: args, omitted: 0 }));
        assert_eq!(program(own).unwrap().path, std::env::current_exe().unwrap());
        assert_eq!(directory(own), std::env::current_dir().ok());
    }

    #[test]
    fn arguments_are_kept_whole_or_not_at_all() {
        let parsed = |bytes: &[u8], all| {
            let Args { kept, omitted } = parse_args(bytes, all);
            (kept.into_iter().map(OsString::into_vec).collect::<Vec<_>>(), omitted)
        };
        assert_eq!(parsed(b"a\0\0\xff b\0", 7), (vec![b"a".into(), vec![], b"\xff b".into()], 0));
        assert_eq!(parsed(b"\0", 1), (vec![vec![]], 0));
        assert_eq!(parsed(b"", 0), (vec![], 0));
        // A title that a program wrote over its arguments.
        assert_eq!(parsed(b"nginx: master", 13), (vec![b"nginx: master".into()], 0));
        // Cut in the middle of the second one.
        let mut cut = b"a\0".to_vec();
        cut.resize(MOST_BYTES, b's');
        assert_eq!(parsed(&cut, 9000), (vec![b"a".into()], 8998));
        assert_eq!(parsed(&cut[2..], 9000).0, vec![cut[2..].to_vec()]);
        cut[1] = b's';
        assert_eq!(parsed(&cut, 9000), (vec![], 9000));
        let many = b"x\0".repeat(300);
        assert_eq!(parsed(&many, 600), (vec![b"x".to_vec(); MOST_ARGS], 88));
    }
}
