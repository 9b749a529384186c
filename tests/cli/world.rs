//! One test's world: a home, a workspace, and the program called in them with an environment by
//! list, so that what the machine's owner set up cannot change an answer.
//!
//! It lies in /var/tmp, because the jail has a `/tmp` of its own.

use std::fmt;
use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

use crate::census;

/// What takes longer than this hangs.
const LONGEST: Duration = Duration::from_secs(30);
/// Between two looks at a condition.
const LOOK: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(crate) struct World {
    directory: TempDir,
}

/// What came of a call.
pub(crate) struct Ran {
    /// As a shell would say it: 128 + n when signal n ended the program itself.
    pub(crate) code: i32,
    pub(crate) out: Vec<u8>,
    pub(crate) notes: String,
}

impl fmt::Debug for Ran {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { code, out, notes } = self;
        write!(f, "exit {code}\nout:\n{}\nnotes:\n{notes}", String::from_utf8_lossy(out))
    }
}

impl Ran {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.out).unwrap()
    }

    pub(crate) fn lines(&self) -> Vec<&str> {
        self.text().lines().collect()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

impl World {
    pub(crate) fn new() -> Self {
        let directory =
            tempfile::Builder::new().prefix("kvro-cli-").tempdir_in("/var/tmp").unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        for name in ["home", "work"] {
            fs::create_dir(directory.path().join(name)).unwrap();
        }
        Self { directory }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes `text` to `name` below the world, with the directories on the way.
    pub(crate) fn put(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.path("home/.local/state/kvro-jail")
    }

    /// The names of the runs that left a directory.
    pub(crate) fn runs(&self) -> Vec<String> {
        let Ok(listing) = fs::read_dir(self.state().join("runs")) else { return Vec::new() };
        let mut runs: Vec<String> =
            listing.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        runs.sort_unstable();
        runs
    }

    /// Every ledger of this home, one after the other.
    pub(crate) fn ledger(&self) -> String {
        let read =
            |run| fs::read_to_string(self.state().join("runs").join(run).join("ledger.jsonl"));
        self.runs().iter().map(|run| read(run).unwrap()).collect()
    }

    /// The program with `args`, in the workspace.
    pub(crate) fn program(&self, args: &[&str]) -> Command {
        let mut command = self.tool(&program());
        command.args(args);
        command
    }

    /// Any program of the machine's, in the same surroundings.
    pub(crate) fn tool(&self, name: &Path) -> Command {
        let mut command = new_command(name);
        command
            .env_clear()
            .env("HOME", self.path("home"))
            .env("PATH", "/usr/bin:/bin")
            .env("LANG", "C.UTF-8")
            .env("TERM", "xterm")
            .current_dir(self.path("work"))
            .stdin(Stdio::null());
        command
    }

    /// Calls the program and waits for its end.
    pub(crate) fn call(&self, args: &[&str]) -> Ran {
        self.finish(self.program(args))
    }

    /// Runs `script` in the jail's shell, with nothing of our own words.
    pub(crate) fn jail(&self, script: &str) -> Ran {
        self.call(&["-q", "--", "sh", "-c", script])
    }

    /// Runs `command` to its end.
    pub(crate) fn finish(&self, mut command: Command) -> Ran {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        self.started(command).end()
    }

    /// Starts `command` with its streams as they were set.
    pub(crate) fn started(&self, mut command: Command) -> Started {
        let mut child = command.spawn().unwrap();
        let out = child.stdout.take().map(collect);
        let notes = child.stderr.take().map(collect);
        Started { child, out, notes }
    }

    /// Calls the program with `--report`, and gives what it wrote as well.
    pub(crate) fn report(&self, args: &[&str]) -> (Ran, Value) {
        let file = self.path("report.json");
        let mut command = self.program(&["--report"]);
        command.arg(&file).args(args);
        let ran = self.finish(command);
        let report = serde_json::from_slice(&fs::read(&file).unwrap_or_default());
        let report = report.unwrap_or_else(|error| panic!("no report, {error}: {ran:?}"));
        (ran, report)
    }

    /// Who has the home in their environment, or this world in their mounts: whatever of the jail
    /// lives, pid 1 too.
    pub(crate) fn living(&self) -> Vec<u32> {
        let mark = self.path("home").display().to_string();
        let mut living = census::marked(&mark);
        let place = self.path("work").display().to_string();
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            let mounts = fs::read_to_string(format!("/proc/{pid}/mountinfo"));
            if mounts.is_ok_and(|mounts| mounts.contains(&place)) && !living.contains(&pid) {
                living.push(pid);
            }
        }
        living
    }

    /// Binds the words of a snapshot that differ from run to run.
    pub(crate) fn snapshot(&self, name: &str, text: &str) {
        let mut settings = insta::Settings::clone_current();
        settings.add_filter(&self.directory.path().display().to_string(), "[world]");
        settings.add_filter(r"\d{8}-\d{6}-[0-9a-f]{6}", "[run]");
        settings.add_filter(r"work-[0-9a-f]{16}", "work-[hash]");
        settings.add_filter(r"after \d+\.\d s", "after [time]");
        settings.set_omit_expression(true);
        settings.bind(|| insta::assert_snapshot!(name, text));
    }
}

/// A program on its way.
#[derive(Debug)]
pub(crate) struct Started {
    child: Child,
    out: Option<JoinHandle<Vec<u8>>>,
    notes: Option<JoinHandle<Vec<u8>>>,
}

impl Started {
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().try_into().unwrap())
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap();
    }

    pub(crate) fn stdin(&mut self) -> std::process::ChildStdin {
        self.child.stdin.take().unwrap()
    }

    /// Waits for the end; a program that hangs is killed, and the test fails.
    pub(crate) fn end(mut self) -> Ran {
        let begin = Instant::now();
        let mut is_late = false;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if begin.elapsed() > LONGEST && !is_late {
                is_late = true;
                self.child.kill().unwrap();
            }
            thread::park_timeout(LOOK);
        };
        let text = |stream: Option<JoinHandle<Vec<u8>>>| stream.map(|s| s.join().unwrap());
        let code = status.code().or(status.signal().map(|signal| 128 + signal)).unwrap();
        let notes = text(self.notes.take()).unwrap_or_default();
        let notes = String::from_utf8_lossy(&notes).into_owned();
        let ran = Ran { code, out: text(self.out.take()).unwrap_or_default(), notes };
        assert!(!is_late, "the program hung: {ran:?}");
        ran
    }
}

impl Drop for Started {
    /// A test that fails leaves nobody behind. One that ended has nobody to kill.
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn collect(mut stream: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        bytes
    })
}

/// Waits until `condition` holds; `what` names it when it never does.
pub(crate) fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < LONGEST, "waited in vain: {what}");
        thread::park_timeout(LOOK);
    }
}

/// The program under test.
pub(crate) fn program() -> PathBuf {
    let built = std::env::var_os("KVRO_BIN").map(PathBuf::from);
    built.unwrap_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_kvro-jail")))
}

#[expect(clippy::disallowed_methods, reason = "a test starts programs; that is its work")]
fn new_command(program: &Path) -> Command {
    Command::new(program)
}
