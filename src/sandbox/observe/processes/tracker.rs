//! Which processes there are, and what is not known of them yet.
//!
//! A process is followed from its first call that waits to its end. Memory is bounded by how many
//! live at the same time, and that by [`MOST_KNOWN`].

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::hash::{Hash, Hasher};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{SysconfVar, sysconf};

use super::exits::{self, Exits, Gone};
use super::seen::{
    MissedProcesses, ProcessEnd, ProcessExited, ProcessProgram, ProcessSeen, ProcessStarted,
    StartedBy, WhyMissed,
};
use crate::observe::procfs::{self, Args, Belongs, Life, Program, Stat};
use crate::sys;

/// So many processes are known at the same time.
const MOST_KNOWN: usize = 16 * 1024;
/// So many of them are held by a pidfd, where the limit of open files allows it.
const MOST_HELD: usize = 4096;
/// So many ancestors that ran no program of their own are looked up for one process.
const ANCESTORS: usize = 16;
/// When a process that asked for a program and was not heard of since is looked at: most execs take
/// less. Each further look waits twice as long.
const FIRST_LOOK: Duration = Duration::from_millis(2);

/// Follows the processes of one jail.
pub(in crate::observe) struct Tracker<T> {
    tell: T,
    exits: Exits,
    known: HashMap<u32, Process>,
    /// Who is to be looked at, and when.
    due: BTreeSet<(Instant, u32)>,
    /// The jail's pid namespace, when somebody in it was met.
    namespace: Option<File>,
    /// Pid 1 of the jail, when it was met.
    pid_1: Option<u32>,
    count: u64,
    held: usize,
    most_held: usize,
    most_known: usize,
    /// Whether there are processes that ran a program and are not known.
    has_forgotten: bool,
}

/// A process that is alive, or not collected yet.
struct Process {
    number: u64,
    pid: u32,
    parent: Option<u64>,
    parent_pid: u32,
    hold: Hold,
    /// The program that it was last seen to run, if any of its own.
    program: Option<Shape>,
    asked: Option<Asked>,
    is_on_record: bool,
    /// Since when it is at its exit, or dead.
    exiting: Option<Instant>,
}

/// Whether a process may be in the middle of an exec while it is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pose {
    /// It waits for us.
    Still,
    Moving,
}

/// What makes sure that a pid is still this process.
enum Hold {
    Pidfd(OwnedFd),
    /// When it was born; its end will not be told.
    Birth(Option<u64>),
}

/// A program that a process asked for.
struct Asked {
    at: Instant,
    cwd: Option<PathBuf>,
    due: Instant,
    patience: Duration,
    /// Whether it was not there when the process went to its exit.
    has_failed: bool,
}

/// What tells a running program from the next one in the same process.
#[derive(PartialEq, Eq)]
struct Shape {
    layout: [u64; 3],
    file: Option<(u64, u64)>,
    args: Option<u64>,
}

impl Shape {
    fn of(stat: &Stat, program: Option<&Program>, args: Option<&Args>) -> Self {
        let facts = program.and_then(|program| program.file.as_ref()).map(|(_, facts)| facts);
        let file = facts.map(|facts| (facts.dev(), facts.ino()));
        let args = args.map(|args| {
            let mut hasher = DefaultHasher::new();
            args.hash(&mut hasher);
            hasher.finish()
        });
        Self { layout: stat.layout, file, args }
    }

    /// Whether this is no more what `process` runs, of which `stat` was read.
    fn is_replaced(&self, process: u32, stat: &Stat) -> bool {
        if stat.life == Life::Dead {
            // What it ran last is gone with its memory.
            return false;
        }
        // Without randomisation of addresses two programs may be laid out alike.
        stat.layout != self.layout || {
            let (program, args) = (procfs::program(process), procfs::args(process, stat));
            Self::of(stat, program.as_ref(), args.as_ref()) != *self
        }
    }
}

impl Process {
    /// Whether `process` is still this one.
    fn is(&self, process: u32) -> bool {
        match &self.hold {
            Hold::Pidfd(pidfd) => sys::has_pid(pidfd.as_fd()),
            Hold::Birth(born) => procfs::stat(process).map(|stat| stat.born) == *born,
        }
    }

    fn started(&self, by: StartedBy, at: Instant) -> ProcessSeen {
        let &Self { number, parent, pid, parent_pid, .. } = self;
        ProcessSeen::Started(ProcessStarted { number, parent, pid, parent_pid, by, at })
    }
}

impl<T> AsFd for Tracker<T> {
    /// Readable when [`Tracker::take_exits`] has something to do.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.exits.as_fd()
    }
}

impl<T: FnMut(ProcessSeen)> Tracker<T> {
    pub(in crate::observe) fn new(tell: T) -> io::Result<Self> {
        let (files, _) = getrlimit(Resource::RLIMIT_NOFILE)?;
        // The other half is for connections.
        let most_held = usize::try_from(files / 2).unwrap_or(MOST_HELD).min(MOST_HELD);
        Ok(Self {
            tell,
            exits: Exits::new()?,
            known: HashMap::new(),
            due: BTreeSet::new(),
            namespace: None,
            pid_1: None,
            count: 0,
            held: 0,
            most_held,
            most_known: MOST_KNOWN,
            has_forgotten: false,
        })
    }

    /// `thread` asks for another program, and waits as long as `is_waiting` says so.
    pub(in crate::observe) fn exec_asked(&mut self, thread: u32, is_waiting: impl Fn() -> bool) {
        let Some(id) = self.follow(thread, is_waiting) else { return };
        // What it asked for before has run by now or never will.
        self.look(id, Pose::Still);
        let Some(process) = self.known.get_mut(&id) else { return };
        let at = Instant::now();
        let due = at + FIRST_LOOK;
        let cwd = procfs::directory(thread);
        let asked = Asked { at, cwd, due, patience: FIRST_LOOK, has_failed: false };
        if let Some(before) = process.asked.replace(asked) {
            self.due.remove(&(before.due, id));
        }
        self.due.insert((due, id));
    }

    /// `thread`, the first of its process, begins a program, and waits.
    pub(in crate::observe) fn begun(&mut self, thread: u32) {
        if self.is_known(thread) {
            self.look(thread, Pose::Still);
        }
    }

    /// The process of `thread` is about to exit with a status other than 0, and waits.
    pub(in crate::observe) fn exit_asked(&mut self, thread: u32) {
        // Most have nothing open.
        if self.due.is_empty() {
            return;
        }
        let id = if self.known.contains_key(&thread) {
            thread
        } else {
            procfs::belongs(thread).map_or(thread, |belongs| belongs.process)
        };
        self.look(id, Pose::Still);
        if let Some(asked) = self.known.get_mut(&id).and_then(|process| process.asked.as_mut()) {
            // It is looked for all the same: another thread's exec may still win.
            asked.has_failed = true;
        }
    }

    /// When [`Self::look_again`] has something to do.
    pub(in crate::observe) fn due(&self) -> Option<Instant> {
        self.due.first().map(|(due, _)| *due)
    }

    /// Looks at those who asked for a program and were not heard of since.
    pub(in crate::observe) fn look_again(&mut self, now: Instant) {
        while let Some(&(due, id)) = self.due.first().filter(|(due, _)| *due <= now) {
            self.due.pop_first();
            self.look(id, Pose::Moving);
            // Of one that is not held, this is how its end is noticed.
            if !self.is_known(id) {
                continue;
            }
            let asked = self.known.get_mut(&id).and_then(|process| process.asked.as_mut());
            if let Some(asked) = asked.filter(|asked| asked.due == due) {
                asked.patience *= 2;
                asked.due = now + asked.patience;
                self.due.insert((asked.due, id));
            }
        }
    }

    /// Takes in who ended.
    pub(in crate::observe) fn take_exits(&mut self) -> io::Result<()> {
        loop {
            let gone = self.exits.next()?;
            let is_all = gone.len() < exits::AT_ONCE;
            for (id, gone) in gone {
                self.take_exit(id, gone);
            }
            if is_all {
                return Ok(());
            }
        }
    }

    fn take_exit(&mut self, id: u32, gone: Gone) {
        // Of one that was killed it can still be seen whether it ran a program.
        self.look(id, Pose::Moving);
        let Some(process) = self.known.get_mut(&id) else { return };
        process.exiting.get_or_insert_with(Instant::now);
        if gone == Gone::Entirely
            && let Some(process) = self.known.remove(&id)
        {
            let end = match &process.hold {
                Hold::Pidfd(pidfd) => Exits::end(pidfd.as_fd()),
                Hold::Birth(_) => ProcessEnd::Unknown,
            };
            self.conclude(id, process, end);
        }
    }

    /// The jail is over: who is still known has no end that anybody was told of.
    pub(in crate::observe) fn finish(&mut self) {
        drop(self.take_exits());
        for (id, process) in std::mem::take(&mut self.known) {
            self.conclude(id, process, ProcessEnd::Unknown);
        }
    }

    fn conclude(&mut self, id: u32, process: Process, end: ProcessEnd) {
        let at = process.exiting.unwrap_or_else(Instant::now);
        let Process { number, pid, hold, asked, is_on_record, .. } = process;
        if let Some(asked) = asked {
            self.due.remove(&(asked.due, id));
            if !asked.has_failed {
                self.miss(MissedProcesses::Start(WhyMissed::Unconfirmed));
            }
        }
        match hold {
            Hold::Pidfd(_) => self.held -= 1,
            // Where it began is on record, and its end was counted then.
            Hold::Birth(_) => return,
        }
        if is_on_record {
            (self.tell)(ProcessSeen::Exited(ProcessExited { number, pid, end, at }));
        }
    }

    fn miss(&mut self, what: MissedProcesses) {
        (self.tell)(ProcessSeen::Missed(what));
    }

    /// The process of `thread`, which is known from here on.
    fn follow(&mut self, thread: u32, is_waiting: impl Fn() -> bool) -> Option<u32> {
        if self.is_known(thread) {
            return Some(thread);
        }
        // Only the first thread of a process has a pidfd.
        let pidfd = sys::open_pidfd(thread.cast_signed()).ok();
        let told = pidfd.as_ref().and_then(|pidfd| self.ask_kernel(pidfd, thread));
        let Some(belongs) = told.or_else(|| procfs::belongs(thread)) else {
            if is_waiting() {
                self.miss(MissedProcesses::Start(WhyMissed::Unreadable));
            }
            return None;
        };
        let id = belongs.process;
        if id == thread {
            return self.adopt(belongs, pidfd, ANCESTORS, is_waiting);
        }
        if self.is_known(id) {
            return Some(id);
        }
        let pidfd = sys::open_pidfd(id.cast_signed()).ok();
        self.adopt(belongs, pidfd, ANCESTORS, is_waiting)
    }

    /// What `/proc` would tell of a process, for a tenth of the time and on newer kernels only.
    fn ask_kernel(&mut self, pidfd: &OwnedFd, process: u32) -> Option<Belongs> {
        let namespace = match self.namespace.take() {
            Some(namespace) => namespace,
            None => File::open(format!("/proc/{process}/ns/pid")).ok()?,
        };
        let inside = sys::pid_inside(namespace.as_fd(), process);
        self.namespace = Some(namespace);
        Some(Belongs { process, inside: inside.ok()?, parent: sys::parent_of(pidfd.as_fd()).ok()? })
    }

    fn is_known(&mut self, id: u32) -> bool {
        match self.known.get(&id) {
            // Its end would have been heard of before its pid came back.
            Some(Process { hold: Hold::Pidfd(_), .. }) => true,
            Some(process) if process.is(id) => true,
            Some(_) => {
                if let Some(process) = self.known.remove(&id) {
                    self.conclude(id, process, ProcessEnd::Unknown);
                }
                false
            }
            None => false,
        }
    }

    /// Takes a process in. It is the one that was read about if `is_waiting` still says so when it
    /// is held.
    fn adopt(
        &mut self,
        belongs: Belongs,
        pidfd: Option<OwnedFd>,
        ancestors: usize,
        is_waiting: impl Fn() -> bool,
    ) -> Option<u32> {
        let Belongs { process: id, inside: pid, parent } = belongs;
        if self.known.len() >= self.most_known {
            self.has_forgotten = true;
            self.miss(MissedProcesses::Start(WhyMissed::TooMany));
            return None;
        }
        let may_hold = self.held < self.most_held;
        let pidfd = pidfd.filter(|pidfd| may_hold && self.exits.follow(pidfd, id).is_ok());
        let stat = if pidfd.is_none() || self.has_forgotten { procfs::stat(id) } else { None };
        let hold = pidfd.map_or(Hold::Birth(stat.map(|stat| stat.born)), Hold::Pidfd);
        if !is_waiting() {
            return None;
        }
        if let Hold::Pidfd(_) = hold {
            self.held += 1;
        }
        // Whoever is met for the first time has run no program, or was forgotten.
        let program = stat.filter(|stat| self.has_forgotten && stat.has_execed).map(|stat| {
            let (program, args) = (procfs::program(id), procfs::args(id, &stat));
            Shape::of(&stat, program.as_ref(), args.as_ref())
        });
        let (parent, parent_pid) = self.parent(parent, ancestors);
        self.count += 1;
        let number = self.count;
        let process = Process {
            number,
            pid,
            parent,
            parent_pid,
            hold,
            program,
            asked: None,
            is_on_record: false,
            exiting: None,
        };
        self.known.insert(id, process);
        Some(id)
    }

    /// The number of a parent and its pid inside.
    fn parent(&mut self, id: u32, ancestors: usize) -> (Option<u64>, u32) {
        const PID_1: (Option<u64>, u32) = (None, 1);
        if self.pid_1 == Some(id) {
            return PID_1;
        }
        if let Some(process) = self.known.get(&id) {
            let found = (Some(process.number), process.pid);
            // It lives: what it runs may be seen by now, and comes before its child.
            self.look(id, Pose::Moving);
            return found;
        }
        match procfs::belongs(id) {
            Some(Belongs { inside: 1, .. }) => {
                self.pid_1 = Some(id);
                PID_1
            }
            Some(belongs) if ancestors > 0 => {
                // It may be gone before it is held, and another have its pid; only a parent that
                // was there before and after is one.
                let is_there = || procfs::belongs(id) == Some(belongs);
                let pidfd = sys::open_pidfd(id.cast_signed()).ok();
                let found = self.adopt(belongs, pidfd, ancestors - 1, is_there);
                // One that was forgotten is on record under a number that nobody knows any more.
                let found = found.and_then(|id| self.known.get(&id));
                let number = found.filter(|parent| parent.program.is_none()).map(|p| p.number);
                if number.is_some() {
                    self.record_fork(id);
                }
                (number, belongs.inside)
            }
            Some(belongs) => (None, belongs.inside),
            None => (None, 0),
        }
    }

    /// Puts a process on record that is there without a program of its own.
    fn record_fork(&mut self, id: u32) {
        let Some(process) = self.known.get_mut(&id).filter(|process| !process.is_on_record) else {
            return;
        };
        process.is_on_record = true;
        let at = procfs::stat(id).and_then(|stat| moment(stat.born));
        let started = process.started(StartedBy::Fork, at.unwrap_or_else(Instant::now));
        (self.tell)(started);
        self.forget_unheld(id);
    }

    /// Looks whether the program that `id` asked for runs, and puts it on record if so.
    fn look(&mut self, id: u32, pose: Pose) {
        let Some(process) = self.known.get_mut(&id) else { return };
        if process.asked.is_none() {
            return;
        }
        let Some(stat) = procfs::stat(id).filter(|stat| stat.life != Life::Between) else { return };
        let has_run = match &process.program {
            None => stat.has_execed,
            Some(program) => program.is_replaced(id, &stat),
        };
        if !has_run {
            return;
        }
        let (program, args) = (procfs::program(id), procfs::args(id, &stat));
        // What was read in the middle of an exec is of two programs, and a pid may change hands.
        if pose == Pose::Moving && (procfs::stat(id) != Some(stat) || !process.is(id)) {
            return;
        }
        let Some(Asked { at, cwd, due, .. }) = process.asked.take() else { return };
        self.due.remove(&(due, id));
        process.program = Some(Shape::of(&stat, program.as_ref(), args.as_ref()));
        process.is_on_record = true;
        let (executable, file) = program.map(|program| (program.path, program.file)).unzip();
        let Args { kept: args, omitted } = args.unwrap_or_default();
        let file = file.flatten();
        let program = Box::new(ProcessProgram { executable, file, args, omitted, cwd });
        let started = process.started(StartedBy::Exec(program), at);
        (self.tell)(started);
        self.forget_unheld(id);
    }

    /// Lets go of a process on record whose end nobody will hear of.
    fn forget_unheld(&mut self, id: u32) {
        if let Some(Process { hold: Hold::Birth(_), .. }) = self.known.get(&id) {
            self.known.remove(&id);
            self.has_forgotten = true;
            self.miss(MissedProcesses::End(WhyMissed::TooMany));
        }
    }
}

/// The moment that is so many clock ticks after boot.
fn moment(ticks: u64) -> Option<Instant> {
    let rate = u64::try_from(sysconf(SysconfVar::CLK_TCK).ok()??).ok()?;
    let born = Duration::from_millis(ticks.saturating_mul(1000).checked_div(rate)?);
    let now = Duration::from(clock_gettime(ClockId::CLOCK_BOOTTIME).ok()?);
    Instant::now().checked_sub(now.saturating_sub(born))
}

#[cfg(test)]
#[path = "tracker_tests.rs"]
mod tests;
