//! What a stub is told when it starts: how to answer, and which numbers to report.
//!
//! Programs and tests say it in the same words, so that what a test did can be done by hand.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};

use super::Usage;

/// A stub's whole configuration.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// Where `ca.pem` and `requests.jsonl` go; it must exist.
    pub(crate) directory: PathBuf,
    pub(crate) mode: Mode,
    /// What every answer says.
    pub(crate) text: String,
    /// What every generation is said to have used.
    pub(crate) usage: Usage,
}

/// How generation requests are answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// With the text, at once.
    Text,
    /// With one more call of the client's shell tool, for ever.
    ToolLoop,
    /// With the text, this long before each part of a stream.
    Slow(Duration),
    /// With this error in the provider's shape; nothing is accepted.
    Status(u16),
}

impl Settings {
    /// Reads `--dir DIR [--mode ok|tool-loop|slow:MS|status:NNN] [--text T] [--usage I,CR,CW,O]`.
    pub(crate) fn from_arguments(words: impl IntoIterator<Item = String>) -> anyhow::Result<Self> {
        let mut words = words.into_iter();
        let mut settings = Self::pong(PathBuf::new());
        while let Some(flag) = words.next() {
            let value = words.next().with_context(|| format!("{flag} needs a value"))?;
            match flag.as_str() {
                "--dir" => settings.directory = PathBuf::from(value),
                "--mode" => settings.mode = parse_mode(&value)?,
                "--text" => settings.text = value,
                "--usage" => settings.usage = parse_usage(&value)?,
                _ => bail!("unknown flag {flag}"),
            }
        }
        if settings.directory.as_os_str().is_empty() {
            bail!("--dir is missing");
        }
        Ok(settings)
    }

    /// Answers `pong` and reports numbers whose price on `claude-opus-5-5` is known: $0.0169.
    fn pong(directory: PathBuf) -> Self {
        Self {
            directory,
            mode: Mode::Text,
            text: "pong".to_owned(),
            usage: Usage { input: 1_000, cache_read: 3_000, cache_write: 2_000, output: 40 },
        }
    }
}

fn parse_mode(text: &str) -> anyhow::Result<Mode> {
    match text.split_once(':') {
        None if text == "ok" => Ok(Mode::Text),
        None if text == "tool-loop" => Ok(Mode::ToolLoop),
        Some(("slow", millis)) => Ok(Mode::Slow(Duration::from_millis(millis.parse()?))),
        Some(("status", code)) => Ok(Mode::Status(code.parse()?)),
        _ => bail!("unknown mode {text:?}"),
    }
}

fn parse_usage(text: &str) -> anyhow::Result<Usage> {
    let numbers: Vec<u64> = text.split(',').map(str::parse).collect::<Result<_, _>>()?;
    let [input, cache_read, cache_write, output] = numbers[..] else {
        bail!("--usage takes input,cache_read,cache_write,output");
    };
    Ok(Usage { input, cache_read, cache_write, output })
}
