//! The plan of a rebase that was left unfinished: `git rebase --continue` goes on with it.

/// The lines of `todo` that run a command, each without the blanks around it.
#[must_use]
pub fn commands(todo: &[u8]) -> Vec<String> {
    todo.split(|byte| *byte == b'\n')
        .map(<[u8]>::trim_ascii)
        .filter(|line| {
            let word = line.split(u8::is_ascii_whitespace).next().unwrap_or_default();
            matches!(word, b"exec" | b"x")
        })
        .map(|line| String::from_utf8_lossy(line).into_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lines_that_run_something_are_commands() {
        let todo =
            b"pick 1234 exec x\n# exec y\n  exec make test\nx\ttrue\r\nedit 5 x\nexecute z\n";
        assert_eq!(commands(todo), ["exec make test", "x\ttrue"]);
        assert_eq!(commands(b""), [""; 0]);
    }
}
