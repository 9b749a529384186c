//! How long a jail outlives its supervisor: from SIGKILL until nothing of it is alive.
//!
//! `cargo bench --bench kill` prints the median and the longest. It is no test: a shared machine is
//! too noisy for a verdict. Who belongs to the jail is everybody below its supervisor; who is left
//! is looked for once more, by the jail's pid namespace and by a mark in the environment.

#[path = "../support/census.rs"]
mod census;
mod figures;
mod place;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::iter;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use figures::{median, millis, percentile};
use place::Place;

const RUNS: usize = 15;
const CHILDREN: usize = 50;
/// Between two looks: short beside a kill, and long enough to leave it the processor.
const LOOK: Duration = Duration::from_micros(100);
/// Who lives longer than this survived.
const LONGEST: Duration = Duration::from_secs(10);

fn main() -> anyhow::Result<()> {
    let place = Place::new()?;
    let mut taken = Vec::new();
    let mut processes = 0;
    for _ in 0..RUNS {
        let jail = Jail::start(&place)?;
        processes = jail.members.len();
        taken.push(millis(jail.kill_supervisor()?));
    }
    let (middle, longest) = (median(taken.iter().copied()), percentile(taken, 100));
    writeln!(
        io::stdout(),
        "SIGKILL of the supervisor: {middle:.2} ms until nobody of {processes} was alive, at most \
         {longest:.2} ms ({RUNS} runs)",
    )?;
    Ok(())
}

/// A jail full of children.
struct Jail {
    supervisor: Child,
    mark: String,
    namespace: Option<PathBuf>,
    /// By their pids outside; the jail's pid 1 is among them.
    members: BTreeSet<u32>,
}

impl Jail {
    fn start(place: &Place) -> anyhow::Result<Self> {
        let mark = format!("kvro-kill-{}", place.path("").display());
        let script = format!(
            "n=0; while [ $n -lt {CHILDREN} ]; do sleep 600 & n=$((n + 1)); done; echo ready; wait"
        );
        let variable = format!("KVRO_BENCH_MARK={mark}");
        let mut command = place.jail(&["--env", &variable], &["sh", "-c", &script]);
        let supervisor = command.stdout(Stdio::piped()).spawn()?;
        // From here on, whatever fails takes the supervisor along.
        let (namespace, members) = (None, BTreeSet::new());
        let mut jail = Self { supervisor, mark, namespace, members };
        let stdout = jail.supervisor.stdout.take().context("no pipe")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        ensure!(line == "ready\n", "the jail said {line:?} instead of being ready");

        // One that is just being replaced by its program has no environment yet.
        let start = Instant::now();
        let mut marked = census::marked(&jail.mark);
        while marked.len() <= CHILDREN {
            ensure!(start.elapsed() < LONGEST, "only {} processes are marked", marked.len());
            thread::sleep(LOOK);
            marked = census::marked(&jail.mark);
        }
        jail.members = descendants(jail.supervisor.id())?;
        // Beside the children there are the shell and pid 1.
        let inside = jail.members.len();
        ensure!(inside >= CHILDREN + 2, "only {inside} processes are in the jail");
        ensure!(marked.iter().all(|pid| jail.members.contains(pid)), "marked, but not inside");
        let outside = namespace_of(std::process::id());
        jail.namespace = marked.first().and_then(|&pid| namespace_of(pid));
        ensure!(jail.namespace.is_some() && jail.namespace != outside, "this is no jail");
        Ok(jail)
    }

    /// How long it took until nobody was alive.
    fn kill_supervisor(mut self) -> anyhow::Result<Duration> {
        let start = Instant::now();
        self.supervisor.kill()?;
        let supervisor = self.supervisor.id();
        for &pid in self.members.iter().chain([&supervisor]) {
            while is_alive(pid) {
                ensure!(start.elapsed() < LONGEST, "process {pid} survived");
                thread::sleep(LOOK);
            }
        }
        let taken = start.elapsed();
        let status = self.supervisor.wait()?;
        ensure!(status.signal() == Some(9), "the supervisor ended by itself: {status}");
        // Who was born meanwhile is in nobody's list.
        let born = pids()?.filter(|&pid| namespace_of(pid) == self.namespace);
        let left: Vec<u32> =
            born.chain(census::marked(&self.mark)).filter(|&pid| is_alive(pid)).collect();
        ensure!(left.is_empty(), "nobody counted {left:?}, who survived");
        Ok(taken)
    }
}

impl Drop for Jail {
    fn drop(&mut self) {
        // One that has ended has nobody to kill.
        drop(self.supervisor.kill());
        drop(self.supervisor.wait());
    }
}

/// Everybody below `ancestor`. An ordinary user may ask no more than this of the jail's pid 1, and
/// none inside can leave it: orphans become its children.
fn descendants(ancestor: u32) -> io::Result<BTreeSet<u32>> {
    let parents: BTreeMap<u32, u32> =
        pids()?.filter_map(|pid| Some((pid, stat(pid)?.parent))).collect();
    let is_below = |&pid: &u32| {
        iter::successors(parents.get(&pid), |parent| parents.get(parent)).any(|&up| up == ancestor)
    };
    Ok(parents.keys().copied().filter(is_below).collect())
}

fn pids() -> io::Result<impl Iterator<Item = u32>> {
    let entries = fs::read_dir("/proc")?.flatten();
    Ok(entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()))
}

/// The pid namespace of a process that we may look at.
fn namespace_of(pid: u32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/ns/pid")).ok()
}

/// A zombie is dead: it only waits to be buried.
fn is_alive(pid: u32) -> bool {
    stat(pid).is_some_and(|stat| !matches!(stat.state, 'Z' | 'X'))
}

/// What proc(5) says of any process to anybody.
struct Stat {
    state: char,
    parent: u32,
}

fn stat(pid: u32) -> Option<Stat> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Behind the name, which may hold anything.
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut words = rest.split(' ');
    Some(Stat { state: words.next()?.parse().ok()?, parent: words.next()?.parse().ok()? })
}
