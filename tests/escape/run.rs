//! Starting programs and waiting for facts, always with a deadline.

use std::fmt;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use serde_json::Value;

/// What takes longer has failed; nothing waits this long for a fact that comes.
const LONGEST: Duration = Duration::from_secs(60);

/// How often a fact is looked for.
const LOOK: Duration = Duration::from_millis(2);

/// What came of a run.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A program that runs; its words go to files, so that nobody has to read along.
#[derive(Debug)]
pub(crate) struct Running<'d> {
    pub(crate) child: Child,
    directory: &'d Path,
}

/// Starts `command` in a process group of its own, with its words in files in `directory`.
pub(crate) fn start<'d>(command: &mut Command, directory: &'d Path) -> anyhow::Result<Running<'d>> {
    use std::os::unix::process::CommandExt as _;
    let file =
        |name: &str| Ok::<_, anyhow::Error>(Stdio::from(File::create(directory.join(name))?));
    let child = command
        .process_group(0)
        .stdout(file("stdout")?)
        .stderr(file("stderr")?)
        .spawn()
        .with_context(|| format!("cannot start {}", command.get_program().display()))?;
    Ok(Running { child, directory })
}

impl Running<'_> {
    /// Waits for its end; a program that does not end is killed and an error.
    pub(crate) fn end(mut self) -> anyhow::Result<Ran> {
        let mut code = None;
        let ended = wait_until(|| {
            let status = self.child.try_wait()?;
            code = status.and_then(|status| status.code());
            Ok(status.is_some())
        });
        if let Err(error) = ended {
            self.child.kill()?;
            self.child.wait()?;
            bail!("{error:#}: {}", self.words(None));
        }
        Ok(self.words(code))
    }

    fn words(&self, code: Option<i32>) -> Ran {
        let read = |name: &str| {
            let bytes = fs::read(self.directory.join(name)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        Ran { code, stdout: read("stdout"), stderr: read("stderr") }
    }
}

/// Waits until `fact` holds.
pub(crate) fn wait_until(mut fact: impl FnMut() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    wait_at_most(LONGEST, &mut fact)
}

/// Waits until `fact` holds, which must be before `patience` is over.
pub(crate) fn wait_at_most(
    patience: Duration,
    fact: &mut dyn FnMut() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let deadline = Instant::now() + patience;
    while !fact()? {
        if Instant::now() > deadline {
            bail!("still not so after {} s", patience.as_secs_f64());
        }
        thread::park_timeout(LOOK);
    }
    Ok(())
}

/// A report as `--report` wrote it.
pub(crate) fn report(path: &Path) -> anyhow::Result<Value> {
    let bytes = fs::read(path).with_context(|| format!("no report {}", path.display()))?;
    Ok(serde_json::from_slice(&bytes)?)
}

impl fmt::Display for Ran {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "exit {:?}\nstdout:\n{}\nstderr:\n{}", self.code, self.stdout, self.stderr)
    }
}
