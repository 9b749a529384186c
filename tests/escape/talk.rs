//! A talk with a prisoner: the judge asks for one probe after the other while the host goes on.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, ensure};

use crate::run::{wait_at_most, wait_until};
use crate::world::{Side, World};

/// What takes longer is no answer.
const LONGEST: Duration = Duration::from_secs(30);

/// How soon what one side does must be seen on the other, with room for a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(5);

/// A prisoner that waits for its next probe; killed when dropped.
#[derive(Debug)]
pub(crate) struct Talk<'w> {
    world: &'w World,
    side: Side,
    child: Child,
    questions: Option<ChildStdin>,
    answers: Receiver<String>,
}

impl<'w> Talk<'w> {
    /// With a prisoner in a jail.
    pub(crate) fn inside(world: &'w World, options: &[&str]) -> anyhow::Result<Self> {
        Self::start(world, Side::Inside, world.jail(options, &["converse"])?)
    }

    /// With the same prisoner outside of any.
    pub(crate) fn outside(world: &'w World) -> anyhow::Result<Self> {
        Self::start(world, Side::Outside, world.outside(world.identity, &["converse"])?)
    }

    fn start(world: &'w World, side: Side, mut command: Command) -> anyhow::Result<Self> {
        let errors = File::create(world.path("stderr"))?;
        let mut child = command
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()?;
        let (questions, stdout) = (child.stdin.take(), child.stdout.take());
        let stdout = stdout.context("no output")?;
        let (answered, answers) = sync_channel(1);
        thread::spawn(move || {
            let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
            while lines.next().is_some_and(|line| answered.send(line).is_ok()) {}
        });
        let mut talk = Self { world, side, child, questions, answers };
        // Whoever answers is in.
        ensure!(talk.ask(&["thread"])? == "ok", "it does not answer");
        Ok(talk)
    }

    /// Has `words` performed; `{here}` in them is where the prisoner works.
    pub(crate) fn ask(&mut self, words: &[&str]) -> anyhow::Result<String> {
        let words: Vec<String> =
            words.iter().map(|word| self.world.resolve(word, self.side)).collect();
        let mut question = serde_json::to_string(&words)?;
        question.push('\n');
        let asked = self.questions.as_mut().context("the talk is over")?;
        asked.write_all(question.as_bytes()).with_context(|| self.last_words())?;
        let answer = self.answers.recv_timeout(LONGEST);
        answer.with_context(|| format!("no answer to {words:?}: {}", self.last_words()))
    }

    /// Waits until `words` are answered with `answer`.
    pub(crate) fn wait_for(&mut self, words: &[&str], answer: &str) -> anyhow::Result<()> {
        let mut last = String::new();
        wait_at_most(SOON, &mut || {
            last = self.ask(words)?;
            Ok(last == answer)
        })
        .with_context(|| format!("{words:?}: {last:?} instead of {answer:?}"))
    }

    /// Ends it; says with which code.
    pub(crate) fn end(mut self) -> anyhow::Result<Option<i32>> {
        self.questions = None;
        self.wait()
    }

    /// Waits for an end that comes by itself.
    pub(crate) fn wait(&mut self) -> anyhow::Result<Option<i32>> {
        let mut status = None;
        wait_until(|| {
            status = self.child.try_wait()?;
            Ok(status.is_some())
        })?;
        Ok(status.and_then(|status| status.code()))
    }

    fn last_words(&self) -> String {
        std::fs::read_to_string(self.world.path("stderr")).unwrap_or_default()
    }
}

impl Drop for Talk<'_> {
    fn drop(&mut self) {
        // Both fail where it has ended already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
