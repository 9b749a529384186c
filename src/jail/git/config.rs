//! Reads git's configuration files as git does.
//!
//! A library would do this with two dozen crates behind it, and follow includes; here the text of
//! one file is judged, and an `include` in it is itself a finding. What git refuses is refused
//! here, so that nothing is judged by another reading than git's.

use std::fmt;

/// The name of a setting: `remote.origin.url`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// In lower case.
    pub section: String,
    /// As it was written, in any encoding.
    pub subsection: Option<Vec<u8>>,
    /// In lower case.
    pub name: String,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.subsection {
            None => write!(f, "{}.{}", self.section, self.name),
            Some(sub) => {
                write!(f, "{}.{}.{}", self.section, String::from_utf8_lossy(sub), self.name)
            }
        }
    }
}

/// One line that sets something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    pub key: Key,
    /// `None` where the name stands alone, which means `true`.
    pub value: Option<Vec<u8>>,
}

/// A text that git refuses to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("line {line} is no line of a git configuration")]
pub struct NotAConfig {
    pub line: usize,
}

/// Every variable of `text`, in its order.
pub fn parse(text: &[u8]) -> Result<Vec<Variable>, NotAConfig> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    Reader { text, at: 0, line: 1 }.read()
}

struct Reader<'t> {
    text: &'t [u8],
    at: usize,
    line: usize,
}

type Read<T> = Result<T, NotAConfig>;

impl Reader<'_> {
    fn read(mut self) -> Read<Vec<Variable>> {
        let mut variables = Vec::new();
        // What stands before the first header is in no section, and means nothing to git.
        let mut header = (String::new(), None);
        while let Some(byte) = self.next() {
            match byte {
                b'\n' | b' ' | b'\t' | b'\r' => {}
                b'#' | b';' => self.skip_line(),
                b'[' => header = self.header()?,
                first if first.is_ascii_alphabetic() => {
                    let (section, subsection) = header.clone();
                    let name = self.name(first);
                    let value = self.value_after_name()?;
                    variables.push(Variable { key: Key { section, subsection, name }, value });
                }
                _ => return Err(self.wrong()),
            }
        }
        Ok(variables)
    }

    /// The next byte. A line may end in CR LF, which is one line feed.
    fn next(&mut self) -> Option<u8> {
        let byte = *self.text.get(self.at)?;
        self.at += 1;
        if byte == b'\r' && self.peek() == Some(b'\n') {
            self.at += 1;
            self.line += 1;
            return Some(b'\n');
        }
        if byte == b'\n' {
            self.line += 1;
        }
        Some(byte)
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    const fn wrong(&self) -> NotAConfig {
        NotAConfig { line: self.line }
    }

    fn skip_line(&mut self) {
        while self.next().is_some_and(|byte| byte != b'\n') {}
    }

    /// What stands between `[` and `]`.
    fn header(&mut self) -> Read<(String, Option<Vec<u8>>)> {
        let mut section = String::new();
        loop {
            match self.next() {
                Some(b']') => break,
                Some(b' ' | b'\t') => return Ok((section, Some(self.subsection()?))),
                Some(byte) if byte == b'.' || is_of_name(byte) => {
                    section.push(char::from(byte.to_ascii_lowercase()));
                }
                Some(_) | None => return Err(self.wrong()),
            }
        }
        if section.is_empty() {
            return Err(self.wrong());
        }
        // `[a.b]` is an old way to write `[a "b"]`.
        Ok(match section.split_once('.') {
            Some((section, sub)) => (section.to_owned(), Some(sub.as_bytes().to_vec())),
            None => (section, None),
        })
    }

    fn subsection(&mut self) -> Read<Vec<u8>> {
        let mut open = self.next();
        while matches!(open, Some(b' ' | b'\t')) {
            open = self.next();
        }
        if open != Some(b'"') {
            return Err(self.wrong());
        }
        let mut name = Vec::new();
        loop {
            match self.next().ok_or(self.wrong())? {
                b'\n' | 0 => return Err(self.wrong()),
                b'"' => break,
                b'\\' => match self.next().ok_or(self.wrong())? {
                    b'\n' | 0 => return Err(self.wrong()),
                    byte => name.push(byte),
                },
                byte => name.push(byte),
            }
        }
        if self.next() == Some(b']') { Ok(name) } else { Err(self.wrong()) }
    }

    fn name(&mut self, first: u8) -> String {
        let mut name = String::from(char::from(first.to_ascii_lowercase()));
        while let Some(byte) = self.peek().filter(|byte| is_of_name(*byte)) {
            name.push(char::from(byte.to_ascii_lowercase()));
            self.at += 1;
        }
        name
    }

    /// Nothing, or `=` and a value.
    fn value_after_name(&mut self) -> Read<Option<Vec<u8>>> {
        loop {
            match self.next() {
                Some(b' ' | b'\t') => {}
                None | Some(b'\n') => return Ok(None),
                Some(b'=') => return self.value().map(Some),
                Some(_) => return Err(self.wrong()),
            }
        }
    }

    fn value(&mut self) -> Read<Vec<u8>> {
        let mut value = Vec::new();
        // How much of it stays when the blanks at its end are cut off.
        let mut kept = 0;
        let mut is_quoted = false;
        loop {
            match self.next() {
                None | Some(b'\n') if is_quoted => return Err(self.wrong()),
                None | Some(b'\n') => break,
                // To git the value would end here, to others it would not.
                Some(0) => return Err(self.wrong()),
                Some(b'#' | b';') if !is_quoted => {
                    self.skip_line();
                    break;
                }
                Some(b' ' | b'\t' | b'\r') if !is_quoted && value.is_empty() => {}
                Some(byte @ (b' ' | b'\t' | b'\r')) if !is_quoted => value.push(byte),
                Some(b'"') => {
                    is_quoted = !is_quoted;
                    kept = value.len();
                }
                Some(b'\\') => {
                    // Also where the line goes on: the blanks before it are in the value.
                    kept = value.len();
                    match self.next() {
                        // At its end a file counts as ending in a line feed.
                        None | Some(b'\n') => continue,
                        Some(b't') => value.push(b'\t'),
                        Some(b'b') => value.push(0x08),
                        Some(b'n') => value.push(b'\n'),
                        Some(byte @ (b'\\' | b'"')) => value.push(byte),
                        Some(_) => return Err(self.wrong()),
                    }
                    kept = value.len();
                }
                Some(byte) => {
                    value.push(byte);
                    kept = value.len();
                }
            }
        }
        value.truncate(kept);
        Ok(value)
    }
}

const fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<(String, Option<String>)> {
        let text_of = |value: Vec<u8>| String::from_utf8(value).unwrap();
        let variables = parse(text.as_bytes()).unwrap().into_iter();
        variables.map(|v| (v.key.to_string(), v.value.map(text_of))).collect()
    }

    fn set(key: &str, value: &str) -> (String, Option<String>) {
        (key.to_owned(), Some(value.to_owned()))
    }

    #[test]
    fn what_git_writes_is_read() {
        let text = "[core]\n\trepositoryformatversion = 0\n\tbare = false\n\
                    [remote \"origin\"]\n\turl = https://x.example/a.git\n\
                    \tfetch = +refs/heads/*:refs/remotes/origin/*\n";
        assert_eq!(
            read(text),
            [
                set("core.repositoryformatversion", "0"),
                set("core.bare", "false"),
                set("remote.origin.url", "https://x.example/a.git"),
                set("remote.origin.fetch", "+refs/heads/*:refs/remotes/origin/*"),
            ]
        );
    }

    #[test]
    fn no_way_to_write_a_key_hides_it() {
        for text in [
            "[core]\nfsmonitor=evil",
            "[CORE] FsMonitor = evil # why",
            "\u{feff}[core]\r\n\tfsmonitor = evil\r\n",
            "[core]fsmonitor=\\\nevil",
            "# [x]\n;\n[core]\n\n fsmonitor =\te\"vi\"l ; c",
            "[other]\na\n[core]\nfsmonitor = \"evil\"",
        ] {
            assert!(read(text).contains(&set("core.fsmonitor", "evil")), "{text:?}");
        }
        assert_eq!(read("[a.B]\nc"), [("a.b.c".to_owned(), None)]);
        assert_eq!(read("[a \"B\\\"\\\\x\"] c = 1"), [set("a.B\"\\x.c", "1")]);
        assert_eq!(read("[a]b=\" x; \" y  # z"), [set("a.b", " x;  y")]);
        assert_eq!(read("[a]b=1\\t2\\n3"), [set("a.b", "1\t2\n3")]);
        assert_eq!(read("[a]b=1 \\\n"), [set("a.b", "1 ")]);
        assert_eq!(read("a = b\n[c]d=1\u{c}"), [set(".a", "b"), set("c.d", "1\u{c}")]);
    }

    #[test]
    fn what_git_refuses_is_refused() {
        for (text, line) in [
            ("[core", 1),
            ("[]", 1),
            ("[core]\n= x", 2),
            ("[core]\na \"x\"", 2),
            ("[core]\na = \"x\n", 3),
            ("[core]\na = \\q", 2),
            ("[core \"x]\n", 2),
            ("[co_re]", 1),
            ("[core]\na = x\0y", 2),
            ("[core]\n\u{1b}", 2),
            ("[core]\n\u{c}a", 2),
            ("core.fsmonitor = x", 1),
        ] {
            assert_eq!(parse(text.as_bytes()), Err(NotAConfig { line }), "{text:?}");
        }
    }
}
