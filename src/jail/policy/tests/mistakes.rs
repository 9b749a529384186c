//! Every mistake names its place, shows the line and says what to do.

use super::super::error::Mistake;
use super::draft;

/// The text of the mistake in `[section]` with `line`, and its sort.
fn mistake(body: &str) -> (Mistake, String) {
    let error = draft(body).expect_err("the text has a mistake");
    (error.mistake().expect("the mistake is in the text"), error.to_string())
}

#[test]
fn an_unknown_key_is_answered_with_the_nearest_known_one() {
    let (sort, text) = mistake("version = 1\n[fs]\nhidee = [\"a\"]\n");
    assert_eq!(sort, Mistake::UnknownKey);
    assert_eq!(
        text,
        "unknown key `hidee` in [fs]\n\
         \x20--> kvro-jail.toml:3:1\n\
         \x20 |\n\
         3 | hidee = [\"a\"]\n\
         \x20 | ^^^^^\n\
         \n\
         hint: did you mean `hide`?"
    );
}

#[test]
fn an_unknown_section_is_answered_with_the_known_ones() {
    let (sort, text) = mistake("version = 1\n[wat]\n");
    assert_eq!(sort, Mistake::UnknownKey);
    assert_eq!(
        text,
        "unknown key `wat` in the top level\n\
         \x20--> kvro-jail.toml:2:2\n\
         \x20 |\n\
         2 | [wat]\n\
         \x20 |  ^^^\n\
         \n\
         hint: known keys here: version, extends, fs, net, limits, resources, isolation, env, price"
    );
}

#[test]
fn a_wrong_type_names_both_types() {
    let (sort, text) = mistake("version = 1\n[limits]\nmax_turns = \"many\"\n");
    assert_eq!(sort, Mistake::WrongType);
    assert_eq!(
        text,
        "a whole number is expected here, not a string\n\
         \x20--> kvro-jail.toml:3:13\n\
         \x20 |\n\
         3 | max_turns = \"many\"\n\
         \x20 |             ^^^^^^"
    );
}

#[test]
fn the_caret_stands_under_the_entry_inside_a_list() {
    let (sort, text) = mistake("version = 1\n[fs]\nhide = [\n\t\"ä\", \"a[b\",\n]\n");
    assert_eq!(sort, Mistake::Glob);
    assert_eq!(
        text,
        "bad pattern \"a[b\": unclosed character class; missing ']'\n\
         \x20--> kvro-jail.toml:4:7\n\
         \x20 |\n\
         4 | \t\"ä\", \"a[b\",\n\
         \x20 | \t     ^^^^^"
    );
}

#[test]
fn each_sort_of_bad_word_is_told_apart() {
    let cases = [
        ("[fs]\nhide = [\"**\"]", Mistake::Glob, "it would cover the whole workspace"),
        ("[fs]\nprotect = [\"../x\"]", Mistake::Glob, "relative to the workspace"),
        ("[fs]\nwrite = [\"/\"]", Mistake::Path, "open the whole machine"),
        ("[fs]\nread = [\"~root/x\"]", Mistake::Path, "only for your own home"),
        ("[fs]\nread = [\"*.rs\"]", Mistake::Path, "without wildcards"),
        ("[net]\nallow = [\"https://x.example/\"]", Mistake::Server, "not a URL"),
        ("[net]\ndanger_private = [\"127.0.0.1\"]", Mistake::Server, "10.0.0.0/8"),
        ("[net]\nconnect_to = { \"a.example\" = \"b:1\" }", Mistake::Server, "a port is missing"),
        ("[net]\nmode = \"open\"", Mistake::Value, "`closed` or goes through the `proxy`"),
        ("[net]\nports = [70000]", Mistake::Value, "from 1 to 65535"),
        ("[net.inference]\n\"x.example\" = \"acme\"", Mistake::Value, "a provider is one of"),
        ("[limits]\nmax_usd = \"5,00\"", Mistake::Amount, "digits with at most one point"),
        ("[limits]\nmax_usd = \"-5\"", Mistake::Amount, "digits with at most one point"),
        ("[limits]\nmax_usd = 5.0", Mistake::WrongType, "a string is expected here"),
        ("[limits]\nmax_turns = -1", Mistake::Value, "a number from 1"),
        ("[limits]\nmax_wall = \"45\"", Mistake::Duration, "like 1h30m"),
        ("[limits]\nwarn_at = [120]", Mistake::Value, "from 1 to 100"),
        ("[limits]\non_limit = \"stop\"", Mistake::Value, "one of: kill, deny"),
        ("[resources]\nmemory = \"lots\"", Mistake::Size, "like 512M"),
        ("[resources]\ncpus = 0", Mistake::Value, "number of processors"),
        ("[isolation]\nrequire = \"none\"", Mistake::Value, "`full`"),
        ("[env]\npass = [\"A B\"]", Mistake::Value, "a variable's name"),
        ("[env.set]\n\"A=B\" = \"1\"", Mistake::Value, "a variable's name"),
        ("[[price]]\nmodel = \"m\"\ninput = \"1\"", Mistake::MissingKey, "lacks the key `output`"),
        (
            "[[price]]\nmodel = \"m\"\ninput = \"0.0000001\"\noutput = \"1\"",
            Mistake::Amount,
            "6 digits",
        ),
        ("[fs]\nwrite = [{ why = \"x\" }]", Mistake::MissingKey, "lacks the key `value`"),
        (
            "[fs]\nwrite = [{ value = \".\", wy = \"x\" }]",
            Mistake::UnknownKey,
            "did you mean `why`?",
        ),
        ("[fs\nwrite = []", Mistake::Syntax, "kvro-jail.toml:2:4"),
    ];
    for (body, sort, words) in cases {
        let (found, text) = mistake(&format!("version = 1\n{body}\n"));
        assert_eq!(found, sort, "{body}\n{text}");
        assert!(text.contains(words), "{body}\n{text}");
    }
}

#[test]
fn a_rule_that_says_the_opposite_of_another_or_nothing_is_refused() {
    let cases = [
        ("hide = [\"a/b\", \"!a/b\"]", "\"!a/b\" says the opposite of \"a/b\" in line 3"),
        ("hide = [\"!*.pem\",\n \"*.pem\"]", "\"*.pem\" says the opposite of \"!*.pem\" in line 3"),
        ("protect = [\"./x\", \"!x/\"]", ""),
        (
            "hide = [\"infra\", \"!infra/README.md\"]",
            "can never match: \"infra\" in line 3 covers infra as a whole",
        ),
        ("protect = [\"*.d/\", \"!a/b.d/c/*.md\"]", "covers a/b.d as a whole"),
        ("hide = [\"a\"]\nprotect = [\"b\", \"a\"]", "\"a\" is hidden by line 3"),
    ];
    for (body, words) in cases {
        let text = format!("version = 1\n[fs]\n{body}\n");
        if words.is_empty() {
            draft(&text).unwrap();
            continue;
        }
        let (sort, text) = mistake(&text);
        assert_eq!(sort, Mistake::Rule, "{body}\n{text}");
        assert!(text.contains(words) && text.contains("hint: "), "{body}\n{text}");
    }
    // What takes back parts, and what may speak of another text's patterns, is sound.
    for body in [
        "hide = [\"infra/**\", \"!infra/README.md\"]",
        "hide = [\"!**/.env.example\"]",
        "hide = [\"a\", \"!b/a\"]",
        "hide = [\"a\", \"a\"]",
        "hide = [\"a\"]\nprotect = [\"a/**\", \"./a\", \"!a\"]",
    ] {
        draft(&format!("version = 1\n[fs]\n{body}\n")).unwrap();
    }
}

#[test]
fn an_allow_list_entry_that_could_mean_everything_is_refused() {
    for word in ["", ".", "*", "*.", "com", "*.com", "https://x/", "ex ample", "a.*.example"] {
        let (sort, text) = mistake(&format!("version = 1\n[net]\nallow = [\"{word}\"]\n"));
        assert_eq!(sort, Mistake::Server, "{word:?}\n{text}");
    }
}

#[test]
fn what_this_version_cannot_enforce_is_refused_by_name() {
    for body in [
        "[[net.rule]]\nhost = \"a.example\"",
        "[net]\npublish = [3000]",
        "[net]\nhost_ports = [5432]",
        "[secrets.KEY]\nfrom = \"env\"",
        "[production]\nx = 1",
        "[alert]\nx = 1",
        "[pools]\nx = 1",
    ] {
        let (sort, text) = mistake(&format!("version = 1\n{body}\n"));
        assert_eq!(sort, Mistake::NotSupported, "{body}\n{text}");
        assert!(text.contains("is not supported yet"), "{text}");
    }
}

#[test]
fn a_file_says_which_version_it_is_written_for() {
    assert_eq!(mistake("[fs]\n").0, Mistake::MissingKey);
    assert_eq!(mistake("version = 2\n").0, Mistake::Value);
}

#[test]
fn a_project_leans_on_built_in_policies_only() {
    assert_eq!(mistake("version = 1\nextends = [\"../x.toml\"]\n").0, Mistake::Extends);
    let (sort, text) = mistake("version = 1\nextends = [\"builtin:defaults\"]\n");
    assert_eq!(sort, Mistake::Extends);
    assert!(text.contains("known: default, ci, strict, test"), "{text}");
}

#[test]
fn nothing_in_a_text_reaches_the_terminal_as_a_command() {
    let (_, text) = mistake("version = 1\n[net]\nallow = [\"\\u001b[2J\"]\n");
    assert!(text.contains("bad server \"\\u{1b}[2J\""), "{text}");
    let (_, text) = mistake("version = 1\n\u{1b}[2Jx = \u{202e}\n");
    assert!(!text.contains(['\u{1b}', '\u{202e}']), "{text:?}");
    let (_, text) = mistake("version = 1\n[fs]\n\"\\u202Ex\" = 1\n");
    assert!(!text.contains('\u{202e}'), "{text:?}");
}
