//! Who is alive: finds the processes that carry a mark in their environment.
//!
//! A mark instead of a pid: what forked twice and took a session of its own still has it.

use std::fs;

/// The pids of the living processes with `mark` in their environment. Zombies are dead: they have
/// no environment left.
pub(crate) fn marked(mark: &str) -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid: &u32| {
        fs::read(format!("/proc/{pid}/environ")).is_ok_and(|environ| carries(&environ, mark))
    })
    .collect()
}

fn carries(environ: &[u8], mark: &str) -> bool {
    environ.split(|&byte| byte == 0).any(|variable| variable.ends_with(mark.as_bytes()))
}
