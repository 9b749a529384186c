//! The relay between the caller's terminal and the jail's.
//!
//! The agent never holds the caller's terminal, only one of the jail's own: what it types there or
//! asks of it does not reach the shell behind. Two threads copy bytes, blocking: the caller's
//! terminal is shared with their shell and must not be made non-blocking.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread::{self, JoinHandle};

use kvro_sandbox::{RawMode, Stream, WindowSize};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::termios::{OutputFlags, SetArg, tcgetattr, tcsetattr};
use nix::unistd::pipe2;

/// Which standard streams are terminals, and how large that terminal is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Streams {
    pub kinds: [Stream; 3],
    pub size: WindowSize,
}

const USUAL_SIZE: WindowSize = WindowSize { rows: 24, columns: 80 };

/// Looks at the supervisor's own standard streams.
#[must_use]
pub fn streams() -> Streams {
    let (stdin, stdout, stderr) = (io::stdin(), io::stdout(), io::stderr());
    let kind = |is_terminal| if is_terminal { Stream::Terminal } else { Stream::Given };
    let kinds = [kind(stdin.is_terminal()), kind(stdout.is_terminal()), kind(stderr.is_terminal())];
    let fds = [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()];
    let size = kinds.iter().zip(fds).find_map(|(kind, fd)| match kind {
        Stream::Terminal => WindowSize::of(fd).ok().filter(|size| size.rows > 0),
        Stream::Given => None,
    });
    Streams { kinds, size: size.unwrap_or(USUAL_SIZE) }
}

/// A relay at work.
#[derive(Debug)]
pub(super) struct Relay {
    master: OwnedFd,
    /// The caller's terminal, when it is where input comes from.
    raw: Option<RawMode>,
    /// Closing it ends the input thread.
    stop: Option<OwnedFd>,
    input: Option<JoinHandle<()>>,
    output: Option<JoinHandle<()>>,
}

impl Relay {
    /// Relays between the standard streams that are terminals and the jail's terminal `master`.
    pub(super) fn start(master: OwnedFd, streams: Streams) -> io::Result<Self> {
        let [stdin, stdout, _] = streams.kinds;
        let mut relay = Self { raw: None, stop: None, input: None, output: None, master };
        if stdin == Stream::Terminal {
            let terminal = io::stdin().as_fd().try_clone_to_owned()?;
            relay.raw = Some(RawMode::enter(terminal.try_clone()?)?);
            let (stopped, stop) = pipe2(OFlag::O_CLOEXEC)?;
            relay.stop = Some(stop);
            let to = File::from(relay.master.try_clone()?);
            let copy = move || copy_input(File::from(terminal), to, &stopped);
            relay.input = Some(thread::Builder::new().name("keys".to_owned()).spawn(copy)?);
        } else {
            // The caller's terminal is not in raw mode and does this itself.
            let mut modes = tcgetattr(&relay.master)?;
            modes.output_flags.remove(OutputFlags::OPOST);
            tcsetattr(&relay.master, SetArg::TCSANOW, &modes)?;
        }
        let screen = if stdout == Stream::Terminal {
            io::stdout().as_fd().try_clone_to_owned()?
        } else {
            io::stderr().as_fd().try_clone_to_owned()?
        };
        let from = File::from(relay.master.try_clone()?);
        let copy = move || copy_output(from, File::from(screen));
        relay.output = Some(thread::Builder::new().name("screen".to_owned()).spawn(copy)?);
        Ok(relay)
    }

    /// Hands the caller's new window size on.
    pub(super) fn resize(&self) {
        let own = streams().size;
        // A terminal that cannot be resized stays as it is.
        drop(own.apply(self.master.as_fd()));
    }

    /// Gives the terminal back to the caller's shell for a while.
    pub(super) fn suspend(&self) -> io::Result<()> {
        self.raw.as_ref().map_or(Ok(()), RawMode::suspend)
    }

    pub(super) fn resume(&self) -> io::Result<()> {
        self.resize();
        self.raw.as_ref().map_or(Ok(()), RawMode::resume)
    }

    /// Ends the relay after the jail's last output; the jail must be dead.
    pub(super) fn finish(mut self) {
        drop(self.stop.take());
        // Threads that panicked have nothing more to copy.
        for thread in [self.input.take(), self.output.take()].into_iter().flatten() {
            drop(thread.join());
        }
    }
}

fn copy_input(mut terminal: File, mut master: File, stopped: &OwnedFd) {
    let mut keys = [0; 4096];
    while wait_for_keys(terminal.as_fd(), stopped.as_fd()) {
        match terminal.read(&mut keys) {
            Ok(0) => return,
            Ok(length) => {
                if master.write_all(keys.get(..length).unwrap_or_default()).is_err() {
                    return;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

/// Waits for input; false at the end of the relay. What is typed after it stays for the shell.
fn wait_for_keys(terminal: BorrowedFd<'_>, stopped: BorrowedFd<'_>) -> bool {
    loop {
        let mut waits =
            [PollFd::new(terminal, PollFlags::POLLIN), PollFd::new(stopped, PollFlags::empty())];
        match poll(&mut waits, PollTimeout::NONE) {
            Err(Errno::EINTR) => {}
            Err(_) => return false,
            Ok(_) => return !waits[1].any().unwrap_or(true),
        }
    }
}

fn copy_output(mut master: File, mut screen: File) {
    let mut bytes = [0; 16 * 1024];
    loop {
        match master.read(&mut bytes) {
            Ok(0) => return,
            Ok(length) => {
                // A screen that is gone must not stop the agent: its output is read and dropped.
                drop(screen.write_all(bytes.get(..length).unwrap_or_default()));
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // EIO: nobody holds the other side any more.
            Err(_) => return,
        }
    }
}
