//! What must go on working inside: a jail that breaks programs is left open by those who need them.

use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;

use super::{number, ok, processes};
use crate::identity::new_command;
use crate::raw::{self, Side};

pub(super) fn perform(words: &[&str]) -> Option<io::Result<String>> {
    let done = match *words {
        ["thread"] => in_a_thread(),
        ["pipe-from-child"] => pipe_from_child(),
        ["shared-memory-file", path] => shared_memory_file(path),
        ["run-from-memory"] => run_from_memory(),
        ["program-memory"] => raw::map_program_memory(),
        ["local-socket", path] => local_socket(path),
        ["lock", path] => lock(path),
        ["watch", path] => watch(path),
        ["temporary-file", path] => fs::write(path, "x"),
        ["flood", most] => return Some(number(most).and_then(flood)),
        ["leave-zombies", count] => return Some(number(count).and_then(leave_zombies)),
        _ => return None,
    };
    Some(done.map(|()| ok()))
}

fn in_a_thread() -> io::Result<()> {
    let answered = thread::spawn(|| true).join().unwrap_or(false);
    if answered { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
}

fn pipe_from_child() -> io::Result<()> {
    let child = new_command("/proc/self/exe".as_ref())
        .args([super::ARGUMENT, "thread"])
        .stdout(Stdio::piped())
        .spawn()?;
    let output = child.wait_with_output()?;
    if output.stdout == b"ok\n" { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
}

/// What shm_open(3) and sem_open(3) do.
fn shared_memory_file(path: &str) -> io::Result<()> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?;
    file.set_len(4096)?;
    raw::write_through_mapping(file.as_fd())
}

fn run_from_memory() -> io::Result<()> {
    let memory = memfd_create(c"kvro", MFdFlags::empty())?;
    let mut file = fs::File::from(memory);
    io::copy(&mut fs::File::open("/proc/self/exe")?, &mut file)?;
    // Opened again, because a file that is open for writing cannot be run.
    let program = fs::File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    drop(file);
    let path = format!("/proc/self/fd/{}", program.as_raw_fd());
    let inherited = nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty());
    nix::fcntl::fcntl(&program, inherited)?;
    let output = new_command(path.as_ref()).args([super::ARGUMENT, "thread"]).output()?;
    if output.stdout == b"ok\n" { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
}

fn local_socket(path: &str) -> io::Result<()> {
    let listener = UnixListener::bind(path)?;
    let mut outer = UnixStream::connect(path)?;
    let (mut inner, _) = listener.accept()?;
    outer.write_all(b"x")?;
    inner.read_exact(&mut [0])?;
    fs::remove_file(path)
}

fn lock(path: &str) -> io::Result<()> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map(drop).map_err(|(_, errno)| errno.into())
}

fn watch(path: &str) -> io::Result<()> {
    let watches = Inotify::init(InitFlags::IN_CLOEXEC)?;
    watches.add_watch(path, AddWatchFlags::IN_CREATE)?;
    Ok(())
}

/// Forks waiting children until the kernel refuses, at most `most`.
fn flood(most: u32) -> io::Result<String> {
    let mut children = Vec::new();
    let mut refused = None;
    for _ in 0..most {
        match raw::fork() {
            Ok(Side::Child) => loop {
                nix::unistd::pause();
            },
            Ok(Side::Parent { child }) => children.push(Pid::from_raw(child)),
            Err(error) => {
                refused = Some(error);
                break;
            }
        }
    }
    for child in children {
        nix::sys::signal::kill(child, nix::sys::signal::Signal::SIGKILL)?;
        waitpid(child, None)?;
    }
    match refused {
        Some(error) => Err(error),
        None => Ok("no end".to_owned()),
    }
}

/// Leaves `count` dead orphans to pid 1 and waits until it has buried them.
fn leave_zombies(count: u32) -> io::Result<String> {
    let child = match raw::fork()? {
        Side::Child => {
            for _ in 0..count {
                if let Ok(Side::Child) = raw::fork() {
                    raw::exit_now(0);
                }
            }
            raw::exit_now(0)
        }
        Side::Parent { child } => Pid::from_raw(child),
    };
    waitpid(child, None)?;
    let patience = Instant::now() + Duration::from_secs(5);
    while processes::zombies()? > 0 {
        if Instant::now() > patience {
            return Ok(format!("{} zombies", processes::zombies()?));
        }
        thread::park_timeout(Duration::from_millis(5));
    }
    Ok("buried".to_owned())
}
