//! The person at the terminal: types, reads, resizes, walks away.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use kvro_sandbox::WindowSize;
use nix::fcntl::{OFlag, open};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::pty::{grantpt, posix_openpt, ptsname_r, unlockpt};
use nix::sys::stat::Mode as FileMode;
use nix::sys::termios::{LocalFlags, tcgetattr};
use nix::unistd::pipe2;

use crate::world::{Started, World, program, wait_for};

/// How a terminal treats its keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// By lines, with an echo.
    Cooked,
    /// As they come.
    Raw,
    Other,
}

#[derive(Debug)]
pub(crate) struct Pty {
    master: File,
    program: OwnedFd,
    said: Arc<Mutex<Vec<u8>>>,
    /// Closing it ends the reader.
    stop: OwnedFd,
    reader: thread::JoinHandle<()>,
}

impl Pty {
    pub(crate) fn open(rows: u16, columns: u16) -> Self {
        // Not by openpty(3): every program of every test would inherit both ends, and a terminal
        // closes with the last of them.
        let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        let master = posix_openpt(flags).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let program = open(&*ptsname_r(&master).unwrap(), flags, FileMode::empty()).unwrap();
        let master = File::from(OwnedFd::from(master));
        WindowSize { rows, columns }.apply(master.as_fd()).unwrap();
        let (stopped, stop) = pipe2(OFlag::O_CLOEXEC).unwrap();
        let said = Arc::new(Mutex::new(Vec::new()));
        let (from, into) = (master.try_clone().unwrap(), Arc::clone(&said));
        let reader = thread::spawn(move || listen(from, &stopped, &into));
        Self { master, program, said, stop, reader }
    }

    /// The program with `args`, leading a session at this terminal.
    pub(crate) fn command(&self, world: &World, args: &[&str]) -> Command {
        let mut command = self.session(world);
        command.arg(program()).args(args);
        command
    }

    /// A shell with job control at this terminal.
    pub(crate) fn shell(&self, world: &World) -> Command {
        let mut command = self.session(world);
        command.args(["bash", "--norc", "--noprofile", "--noediting", "-i"]);
        command
    }

    fn session(&self, world: &World) -> Command {
        let end = || Stdio::from(self.program.try_clone().unwrap());
        let mut command = world.tool(Path::new("setsid"));
        // It does not fork here, so that the pid is the program's.
        command.arg("--ctty").stdin(end()).stdout(end()).stderr(end());
        command
    }

    pub(crate) fn start(&self, world: &World, args: &[&str]) -> Started {
        world.started(self.command(world, args))
    }

    pub(crate) fn press(&self, keys: &str) {
        (&self.master).write_all(keys.as_bytes()).unwrap();
    }

    pub(crate) fn resize(&self, rows: u16, columns: u16) {
        WindowSize { rows, columns }.apply(self.master.as_fd()).unwrap();
    }

    /// What was on the screen so far.
    pub(crate) fn said(&self) -> String {
        String::from_utf8_lossy(&self.said.lock().unwrap()).into_owned()
    }

    pub(crate) fn wait_for(&self, words: &str) {
        let what = format!("{words:?} on the terminal");
        wait_for(&what, || self.said().contains(words));
    }

    /// The terminal's mode, which both of its sides share.
    pub(crate) fn mode(&self) -> Mode {
        let flags = tcgetattr(&self.master).unwrap().local_flags;
        let keys = LocalFlags::ICANON | LocalFlags::ECHO | LocalFlags::ISIG;
        match flags & keys {
            all if all == keys => Mode::Cooked,
            none if none.is_empty() => Mode::Raw,
            _ => Mode::Other,
        }
    }

    pub(crate) fn wait_for_mode(&self, mode: Mode) {
        wait_for(&format!("{mode:?}"), || self.mode() == mode);
    }

    /// Walks away: the terminal hangs up.
    pub(crate) fn close(self) {
        let Self { master, program, stop, reader, .. } = self;
        drop(stop);
        reader.join().unwrap();
        drop((master, program));
    }
}

fn listen(mut terminal: File, stopped: &OwnedFd, said: &Mutex<Vec<u8>>) {
    let mut bytes = [0; 4096];
    loop {
        let (keys, stop) = {
            let mut waits = [
                PollFd::new(terminal.as_fd(), PollFlags::POLLIN),
                PollFd::new(stopped.as_fd(), PollFlags::empty()),
            ];
            poll(&mut waits, PollTimeout::NONE).unwrap();
            (waits[0].any().unwrap(), waits[1].any().unwrap())
        };
        if stop {
            return;
        }
        if keys {
            let Ok(length) = terminal.read(&mut bytes) else { return };
            said.lock().unwrap().extend_from_slice(&bytes[..length]);
        }
    }
}
