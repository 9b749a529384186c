//! Reads a TOML text key by key, with the place of every value.
//!
//! Why not `#[derive(Deserialize)]`: an entry may be a plain value or a table with a `why`, and
//! serde's untagged enums lose the place of what is inside them; an unknown key should be answered
//! with the known ones, and a key of a later version with a word of its own. Here a key is known
//! because somebody asked for it, so the list of known keys cannot lag behind the reading code.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use memchr::memchr_iter;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::entry::{Entry, Origin};
use super::error::{Mistake, PolicyError, Problem, nearest};

/// A policy's text and where it comes from.
#[derive(Debug, Clone)]
pub(super) struct Source {
    pub(super) layer: Arc<str>,
    pub(super) body: Arc<str>,
    /// What relative paths and `~` stand for.
    pub(super) anchors: Anchors,
}

/// What the relative paths of a policy are relative to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Anchors {
    pub(super) workspace: PathBuf,
    pub(super) home: PathBuf,
    /// The directory of the file itself; a built-in text has none.
    pub(super) file_dir: Option<PathBuf>,
}

impl Anchors {
    /// Follows `~` and takes what is relative from `base`. Purely by name: no link is followed.
    pub(super) fn absolute(&self, word: &str, base: &Path) -> PathBuf {
        let path = match word.strip_prefix("~/") {
            Some(rest) => self.home.join(rest),
            None if word == "~" => self.home.clone(),
            None => base.join(word),
        };
        lexical(&path)
    }
}

/// Takes `.` and `..` out of an absolute path by name.
#[must_use]
pub fn lexical(path: &Path) -> PathBuf {
    use std::path::Component;
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                clean.pop();
            }
            Component::RootDir | Component::Prefix(_) | Component::Normal(_) => clean.push(part),
        }
    }
    clean
}

impl Source {
    /// Parses the text and hands its top level to `read`, which must ask for every known key.
    pub(super) fn read<T>(
        &self,
        read: impl FnOnce(&mut Section<'_>) -> Result<T, PolicyError>,
    ) -> Result<T, PolicyError> {
        let table = DeTable::parse(&self.body).map_err(|error| {
            let span = error.span().unwrap_or(0..0);
            self.problem(Mistake::Syntax, error.message().replace('\n', ", "), &span)
        })?;
        let mut top = Section::new(self, "the top level".to_owned(), table.span(), table.get_ref());
        let value = read(&mut top)?;
        top.finish()?;
        Ok(value)
    }

    pub(super) fn problem(
        &self,
        mistake: Mistake,
        what: impl Into<String>,
        span: &Range<usize>,
    ) -> Problem {
        Problem::at(mistake, what, &self.layer, &self.body, span)
    }

    fn origin(&self, span: &Range<usize>) -> Origin {
        let before = self.body.get(..span.start).unwrap_or_default();
        let line = memchr_iter(b'\n', before.as_bytes()).count() + 1;
        Origin { layer: Arc::clone(&self.layer), line }
    }
}

/// One table, whose keys are taken out of it as they are read.
pub(super) struct Section<'d> {
    source: &'d Source,
    name: String,
    span: Range<usize>,
    rest: BTreeMap<&'d str, (Range<usize>, Value<'d>)>,
    asked: Vec<&'static str>,
}

impl<'d> Section<'d> {
    fn new(source: &'d Source, name: String, span: Range<usize>, table: &'d DeTable<'d>) -> Self {
        let rest = table.iter().map(|(key, value)| {
            let value_of = Value { source, value: value.get_ref(), span: value.span() };
            (key.get_ref().as_ref(), (key.span(), value_of))
        });
        Self { source, name, span, rest: rest.collect(), asked: Vec::new() }
    }

    /// Takes `key`, if it is there.
    pub(super) fn take(&mut self, key: &'static str) -> Option<Value<'d>> {
        self.asked.push(key);
        self.rest.remove(key).map(|(_, value)| value)
    }

    pub(super) fn required(&mut self, key: &'static str) -> Result<Value<'d>, PolicyError> {
        self.take(key).ok_or_else(|| {
            let what = format!("{} lacks the key `{key}`", self.name);
            self.source.problem(Mistake::MissingKey, what, &self.span).into()
        })
    }

    pub(super) fn section(&mut self, key: &'static str) -> Result<Option<Self>, PolicyError> {
        self.take(key).map(|value| value.section(format!("[{key}]"))).transpose()
    }

    /// Refuses `key`, which this version cannot enforce.
    pub(super) fn refuse(&mut self, key: &'static str) -> Result<(), PolicyError> {
        let Some((span, _)) = self.rest.remove(key) else {
            return Ok(());
        };
        let what = format!("`{key}` in {} is not supported yet", self.name);
        let hint = "take it out: this version would not enforce it";
        Err(self.source.problem(Mistake::NotSupported, what, &span).hint(hint).into())
    }

    /// Takes every key that is left, in the order of the text.
    pub(super) fn take_rest(&mut self) -> Vec<Key<'d>> {
        let rest = std::mem::take(&mut self.rest).into_iter();
        let mut rest: Vec<_> =
            rest.map(|(word, (span, value))| Key { word, span, value }).collect();
        rest.sort_by_key(|key| key.span.start);
        rest
    }

    /// Every key that is left is unknown.
    pub(super) fn finish(&mut self) -> Result<(), PolicyError> {
        let Some(Key { word, span, .. }) = self.take_rest().into_iter().next() else {
            return Ok(());
        };
        let what = format!("unknown key `{word}` in {}", self.name);
        let hint = match nearest(word, self.asked.iter().copied()) {
            Some(word) => format!("did you mean `{word}`?"),
            None => format!("known keys here: {}", self.asked.join(", ")),
        };
        Err(self.source.problem(Mistake::UnknownKey, what, &span).hint(hint).into())
    }
}

/// A key that the text chose, and what it holds.
pub(super) struct Key<'d> {
    word: &'d str,
    span: Range<usize>,
    pub(super) value: Value<'d>,
}

impl Key<'_> {
    /// The key itself, read as a `T`.
    pub(super) fn parsed<T>(&self, mistake: Mistake) -> Result<T, PolicyError>
    where
        T: FromStr<Err: std::fmt::Display>,
    {
        let at = Value { span: self.span.clone(), ..self.value.clone() };
        self.word.parse().map_err(|error: T::Err| at.refusal(mistake, self.word, &error))
    }
}

/// One value and its place.
#[derive(Clone)]
pub(super) struct Value<'d> {
    source: &'d Source,
    value: &'d DeValue<'d>,
    span: Range<usize>,
}

impl<'d> Value<'d> {
    pub(super) fn source(&self) -> &'d Source {
        self.source
    }

    pub(super) fn origin(&self) -> Origin {
        self.source.origin(&self.span)
    }

    pub(super) fn problem(&self, mistake: Mistake, what: impl Into<String>) -> Problem {
        self.source.problem(mistake, what, &self.span)
    }

    pub(super) fn section(self, name: String) -> Result<Section<'d>, PolicyError> {
        let DeValue::Table(table) = self.value else {
            return Err(self.expected("a table"));
        };
        Ok(Section::new(self.source, name, self.span, table))
    }

    /// A plain value, or a table of `value` and `why`.
    pub(super) fn entry<T>(
        &self,
        parse: impl FnOnce(&Self) -> Result<T, PolicyError>,
    ) -> Result<Entry<T>, PolicyError> {
        if !matches!(self.value, DeValue::Table(_)) {
            return Ok(Entry { value: parse(self)?, why: None, origin: self.origin() });
        }
        self.table(|table| parse(&table.required("value")?))
    }

    /// A table of what `parse` takes, and `why`.
    pub(super) fn table<T>(
        &self,
        parse: impl FnOnce(&mut Section<'d>) -> Result<T, PolicyError>,
    ) -> Result<Entry<T>, PolicyError> {
        let origin = self.origin();
        let mut table = self.clone().section("this entry".to_owned())?;
        let value = parse(&mut table)?;
        let why = table.take("why").map(|why| why.text().map(Arc::from)).transpose()?;
        table.finish()?;
        Ok(Entry { value, why, origin })
    }

    /// An array of entries.
    pub(super) fn entries<T>(
        &self,
        mut parse: impl FnMut(&Self) -> Result<T, PolicyError>,
    ) -> Result<Vec<Entry<T>>, PolicyError> {
        self.items()?.iter().map(|item| item.entry(&mut parse)).collect()
    }

    pub(super) fn items(&self) -> Result<Vec<Self>, PolicyError> {
        let DeValue::Array(array) = self.value else {
            return Err(self.expected("an array"));
        };
        Ok(array.iter().map(|item| self.of(item)).collect())
    }

    fn of(&self, item: &'d Spanned<DeValue<'d>>) -> Self {
        Self { source: self.source, value: item.get_ref(), span: item.span() }
    }

    pub(super) fn text(&self) -> Result<&'d str, PolicyError> {
        self.value.as_str().ok_or_else(|| self.expected("a string"))
    }

    /// A string that `T` reads, else a mistake of the sort given.
    pub(super) fn parsed<T>(&self, mistake: Mistake) -> Result<T, PolicyError>
    where
        T: FromStr<Err: std::fmt::Display>,
    {
        let word = self.text()?;
        word.parse().map_err(|error: T::Err| self.refusal(mistake, word, &error))
    }

    /// A whole number in `range`.
    pub(super) fn number(&self, range: Range<u64>) -> Result<u64, PolicyError> {
        let integer = self.value.as_integer().ok_or_else(|| self.expected("a whole number"))?;
        let number = u64::from_str_radix(integer.as_str(), integer.radix()).ok();
        number.filter(|number| range.contains(number)).ok_or_else(|| {
            let what =
                format!("a number from {} to {} is expected here", range.start, range.end - 1);
            self.problem(Mistake::Value, what).into()
        })
    }

    /// A number with or without a decimal point, as it was typed.
    pub(super) fn decimal(&self) -> Result<&'d str, PolicyError> {
        let whole = self.value.as_integer().filter(|number| number.radix() == 10);
        let typed = whole.map(toml::de::DeInteger::as_str);
        let typed = typed.or_else(|| self.value.as_float().map(toml::de::DeFloat::as_str));
        typed.ok_or_else(|| self.expected("a number"))
    }

    /// `word` cannot be read, for the reason that `cause` gives.
    pub(super) fn refusal(
        &self,
        mistake: Mistake,
        word: &str,
        cause: &dyn std::fmt::Display,
    ) -> PolicyError {
        let noun = match mistake {
            Mistake::Glob => "pattern",
            Mistake::Server => "server",
            Mistake::Amount => "amount",
            Mistake::Duration => "duration",
            Mistake::Size => "size",
            Mistake::Path => "path",
            Mistake::Syntax
            | Mistake::UnknownKey
            | Mistake::NotSupported
            | Mistake::MissingKey
            | Mistake::WrongType
            | Mistake::Value
            | Mistake::Rule
            | Mistake::Extends => "value",
        };
        self.problem(mistake, format!("bad {noun} {word:?}: {cause}")).into()
    }

    pub(super) fn expected(&self, wanted: &str) -> PolicyError {
        let found = match self.value {
            DeValue::String(_) => "a string",
            DeValue::Integer(_) => "a whole number",
            DeValue::Float(_) => "a number",
            DeValue::Boolean(_) => "a boolean",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "an array",
            DeValue::Table(_) => "a table",
        };
        self.problem(Mistake::WrongType, format!("{wanted} is expected here, not {found}")).into()
    }
}
