//! The last step of the agent's process: its own program.

use std::convert::Infallible;
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;

use crate::plan::Command;
use crate::sys;

/// What execvp(3) searches when there is no `PATH`.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Becomes `command`; only returns the error.
///
/// Finds the program as execvp(3) does, in the command's own `PATH`: a name that is there but
/// cannot be run is told from one that is not there, and a script without a `#!` line is the
/// shell's.
pub(crate) fn replace(command: &Command) -> io::Result<Infallible> {
    let program = c_string(command.program.as_bytes())?;
    let mut args = vec![program.clone()];
    for arg in &command.args {
        args.push(c_string(arg.as_bytes())?);
    }
    let env: Vec<CString> = command.env.iter().map(variable).collect::<io::Result<_>>()?;
    if command.program.as_bytes().contains(&b'/') {
        return run(&program, &args, &env);
    }
    let path = command.env.iter().find(|(name, _)| name == "PATH");
    let path = path.map_or(OsStr::new(DEFAULT_PATH), |(_, path)| path.as_os_str());
    let mut refused = None;
    for directory in path.as_bytes().split(|&byte| byte == b':') {
        let directory = if directory.is_empty() { &b"."[..] } else { directory };
        let candidate = c_string(&[directory, b"/", command.program.as_bytes()].concat())?;
        let Err(error) = run(&candidate, &args, &env);
        match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENOTDIR) => {}
            Some(libc::EACCES) => refused = Some(error),
            _ => return Err(error),
        }
    }
    Err(refused.unwrap_or_else(|| io::Error::from_raw_os_error(libc::ENOENT)))
}

fn run(program: &CString, args: &[CString], env: &[CString]) -> io::Result<Infallible> {
    let Err(error) = sys::replace_program(program, args, env);
    if error.raw_os_error() != Some(libc::ENOEXEC) {
        return Err(error);
    }
    let mut with_shell = vec![c_string(b"sh")?, program.clone()];
    with_shell.extend(args.iter().skip(1).cloned());
    sys::replace_program(c"/bin/sh", &with_shell, env)
}

fn variable((name, value): &(OsString, OsString)) -> io::Result<CString> {
    c_string(&[name.as_bytes(), b"=", value.as_bytes()].concat())
}

fn c_string(bytes: &[u8]) -> io::Result<CString> {
    CString::new(bytes).map_err(io::Error::from)
}
