//! Strings that an agent controls, made safe for a terminal.
//!
//! A file name may hold escape sequences that repaint the screen, or marks that turn text around,
//! so that a person reads something else than what was recorded. Such characters are shown by
//! their number; all others, letters of every script included, stay as they are.

use std::borrow::Cow;
use std::fmt::Write;

/// Longer strings are cut for a person; the ledger has them whole.
const LONGEST: usize = 200;

/// `text` on one line, with nothing in it that a terminal acts upon; cut if it is very long.
#[must_use]
pub fn harmless(text: &str) -> Cow<'_, str> {
    let is_short = text.len() <= LONGEST;
    if is_short && !text.contains(acts) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len().min(LONGEST));
    for (place, letter) in text.char_indices() {
        if place >= LONGEST {
            safe.push('…');
            break;
        }
        if acts(letter) {
            safe.extend(letter.escape_unicode());
        } else {
            safe.push(letter);
        }
    }
    Cow::Owned(safe)
}

/// The same JSON, with nothing in it that a terminal acts upon; its value does not change.
///
/// Outside of strings JSON has no such character but the line feed, which is left as it is; inside
/// they may be written by number.
#[must_use]
pub fn harmless_json(json: &str) -> Cow<'_, str> {
    let acts = |letter| letter != '\n' && acts(letter);
    if !json.contains(acts) {
        return Cow::Borrowed(json);
    }
    let mut safe = String::with_capacity(json.len() + 16);
    for letter in json.chars() {
        if acts(letter) {
            for unit in letter.encode_utf16(&mut [0; 2]) {
                // Writing to a string cannot fail.
                let _ok = write!(safe, "\\u{unit:04x}");
            }
        } else {
            safe.push(letter);
        }
    }
    Cow::Owned(safe)
}

/// Whether a terminal, or the order in which text is drawn, acts upon `letter`.
fn acts(letter: char) -> bool {
    letter.is_control()
        || matches!(
            letter,
            '\u{ad}'                      // soft hyphen
            | '\u{61c}' | '\u{200e}' | '\u{200f}' // direction marks
            | '\u{200b}'..='\u{200d}'     // zero width
            | '\u{2028}' | '\u{2029}'     // line and paragraph separators
            | '\u{202a}'..='\u{202e}'     // embeddings and overrides of direction
            | '\u{2060}'..='\u{206f}'     // invisible operators and isolates
            | '\u{180e}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}'   // tags: a second, invisible alphabet
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_acts_upon_is_shown_by_number() {
        for (text, shown) in [
            ("a\x1b[2J\x07b", "a\\u{1b}[2J\\u{7}b"),
            ("x\ny\r\tz", "x\\u{a}y\\u{d}\\u{9}z"),
            ("\u{9b}31m", "\\u{9b}31m"),
            ("exe.\u{202e}gnp", "exe.\\u{202e}gnp"),
            ("a\u{200b}b\u{feff}\u{e0041}", "a\\u{200b}b\\u{feff}\\u{e0041}"),
        ] {
            assert_eq!(harmless(text), shown);
        }
    }

    #[test]
    fn letters_of_every_script_stay() {
        for text in ["", ".env", "naïve/Ünïcode", "秘密/ключ", "a b 'c' \"d\" \\ e", "🦀"]
        {
            assert!(matches!(harmless(text), Cow::Borrowed(same) if same == text));
        }
    }

    #[test]
    fn a_very_long_string_is_cut_at_a_letter() {
        let shown = harmless(&"ä".repeat(5000)).into_owned();
        assert_eq!(shown, format!("{}…", "ä".repeat(100)));
    }

    #[test]
    fn harmless_json_has_the_same_value() {
        let value = serde_json::json!({"path": "a\u{202e}b\u{9b}\u{e0041}\x1b\\ü"});
        let json = value.to_string();
        let safe = harmless_json(&json);
        assert!(!safe.contains(acts), "{safe}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&safe).unwrap(), value);
        assert!(matches!(harmless_json("{\n\"a\":\"ü\"}"), Cow::Borrowed(_)));
    }
}
