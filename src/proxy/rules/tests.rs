use super::*;
use proptest::prelude::*;

fn name(text: &str) -> ServerName {
    text.parse().unwrap()
}

fn server(text: &str) -> Server {
    text.parse().unwrap()
}

fn patterns(texts: &[&str]) -> Vec<HostPattern> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn verdict(rules: &Rules, text: &str) -> &'static str {
    match rules.judge(&server(text)) {
        Decision::Allow(_) => "allowed",
        Decision::Deny(reason) => reason.code(),
    }
}

#[test]
fn a_rule_ends_at_label_boundaries() {
    let rules = Rules::new(patterns(&["example.com", "*.cdn.example.net"]), Vec::new());
    let table = [
        ("example.com:443", "allowed"),
        ("example.com:80", "allowed"),
        ("EXAMPLE.com.:443", "allowed"),
        ("www.example.com:443", "host_not_listed"),
        ("evil-example.com:443", "host_not_listed"),
        ("notexample.com:443", "host_not_listed"),
        ("example.com.evil.test:443", "host_not_listed"),
        ("example.comx:443", "host_not_listed"),
        ("example.co:443", "host_not_listed"),
        ("cdn.example.net:443", "host_not_listed"),
        ("a.cdn.example.net:443", "allowed"),
        ("a.b.cdn.example.net:443", "allowed"),
        ("xcdn.example.net:443", "host_not_listed"),
        ("a.xcdn.example.net:443", "host_not_listed"),
        ("example.com:22", "port_not_listed"),
    ];
    for (text, expected) in table {
        assert_eq!(verdict(&rules, text), expected, "{text}");
    }
}

#[test]
fn deny_wins_over_allow_at_any_width() {
    let rules = Rules::new(
        patterns(&["*.example.com", "*.example.com:22", "new.example.com"]),
        patterns(&["secret.example.com", "*.example.com:22", "*.internal.example.com"]),
    );
    let table = [
        ("a.example.com:443", "allowed"),
        ("secret.example.com:443", "host_denied"),
        ("SECRET.example.com.:443", "host_denied"),
        ("a.secret.example.com:443", "allowed"),
        ("a.example.com:22", "host_denied"),
        ("new.example.com:443", "allowed"),
        ("x.internal.example.com:443", "host_denied"),
        ("secret.example.com:8080", "host_denied"),
    ];
    for (text, expected) in table {
        assert_eq!(verdict(&rules, text), expected, "{text}");
    }
}

#[test]
fn an_empty_list_allows_nothing() {
    assert_eq!(verdict(&Rules::closed(), "example.com:443"), "host_not_listed");
    assert_eq!(
        Rules::closed().judge_name(&name("example.com")),
        Decision::Deny(Reason::HostNotListed)
    );
}

#[test]
fn a_name_is_known_when_any_port_of_it_is_open() {
    let rules = Rules::new(
        patterns(&["git.example.com:22", "*.example.com", "shut.example.org:9000"]),
        patterns(&["half.example.com:80", "gone.example.com", "shut.example.org:9000"]),
    );
    let known = |text: &str| match rules.judge_name(&name(text)) {
        Decision::Allow(rule) => rule.to_string(),
        Decision::Deny(reason) => reason.code().to_owned(),
    };
    assert_eq!(known("git.example.com"), "git.example.com:22");
    assert_eq!(known("half.example.com"), "*.example.com");
    assert_eq!(known("gone.example.com"), "host_denied");
    assert_eq!(known("shut.example.org"), "host_denied");
    assert_eq!(known("example.com"), "host_not_listed");
}

#[test]
fn the_door_listens_on_the_web_ports_and_on_the_listed_ones() {
    let rules = Rules::new(patterns(&["a.example", "b.example:22", "[2001:db8::1]:8443"]), vec![]);
    assert_eq!(rules.ports().into_iter().collect::<Vec<_>>(), [22, 80, 443, 8443]);
}

#[test]
fn a_name_has_one_form() {
    for text in ["api.example.com", "API.Example.COM", "api.example.com.", "api.example。com"] {
        assert_eq!(text.parse(), Ok(name("api.example.com")), "{text}");
    }
    assert_eq!(name("bücher.example").as_str(), "xn--bcher-kva.example");
    assert_eq!(name("XN--BCHER-KVA.example").as_str(), "xn--bcher-kva.example");
    assert_eq!(name("[::1]").as_str(), "::1");
    assert_eq!(name("2001:DB8::0:1").as_str(), "2001:db8::1");
    assert_eq!(name("::ffff:10.0.0.1").as_str(), "10.0.0.1");
    assert_eq!(name("_dmarc.example.com").as_str(), "_dmarc.example.com");
}

#[test]
fn a_text_without_one_reading_is_no_name() {
    let long_label = format!("{}.example.com", "a".repeat(64));
    let long_name = format!("{}com", "abcdefg.".repeat(32));
    let table = [
        ("", NameError::Empty),
        (".", NameError::EmptyLabel),
        ("..", NameError::EmptyLabel),
        (".example.com", NameError::EmptyLabel),
        ("example..com", NameError::EmptyLabel),
        ("example.com..", NameError::EmptyLabel),
        (long_label.as_str(), NameError::LabelTooLong),
        (long_name.as_str(), NameError::TooLong),
        ("ex ample.com", NameError::Character(' ')),
        ("example.com%2e", NameError::Character('%')),
        ("a\0.example.com", NameError::Character('\0')),
        ("a@example.com", NameError::Character('@')),
        ("-a.example.com", NameError::Hyphen),
        ("a-.example.com", NameError::Hyphen),
        ("[example.com]", NameError::Address),
        ("[::1", NameError::Address),
        ("fe80::1%eth0", NameError::Address),
        ("127.1", NameError::Address),
        ("2130706433", NameError::Address),
        ("0x7f.1", NameError::Address),
        ("example.0x7f", NameError::Address),
        ("127.0.0.01", NameError::Address),
        ("1.2.3.4.", NameError::Address),
        ("1.2.3.4.5", NameError::Address),
        ("\u{202e}.example", NameError::NotInternational),
    ];
    for (text, expected) in table {
        assert_eq!(text.parse::<ServerName>(), Err(expected), "{text:?}");
    }
}

#[test]
fn a_rule_that_says_too_much_or_nothing_is_refused() {
    let table = [
        ("", PatternError::Empty),
        ("https://x.example/", PatternError::Url),
        ("x.example/path", PatternError::NotAName),
        ("user@x.example", PatternError::NotAName),
        ("*", PatternError::Everything),
        ("*:443", PatternError::Everything),
        ("*.", PatternError::Name(NameError::Empty)),
        (".", PatternError::Name(NameError::EmptyLabel)),
        ("com", PatternError::TopLevel),
        ("*.com", PatternError::TopLevel),
        ("*.*.example.com", PatternError::Star),
        ("a*.example.com", PatternError::Star),
        ("www.*.com", PatternError::Star),
        ("*.10.0.0.1", PatternError::Star),
        ("*.[::1]", PatternError::Star),
        ("a.example:", PatternError::Port),
        ("a.example:0", PatternError::Port),
        ("a.example:+1", PatternError::Port),
        ("a.example:65536", PatternError::Port),
        ("a.example:http", PatternError::Port),
        ("10.0.0.0/8", PatternError::NotAName),
        ("ex ample.com", PatternError::Name(NameError::Character(' '))),
    ];
    for (text, expected) in table {
        assert_eq!(text.parse::<HostPattern>(), Err(expected), "{text:?}");
    }
}

#[test]
fn an_address_is_allowed_only_where_a_rule_lists_it() {
    let rules = Rules::new(patterns(&["192.0.2.7", "[2001:db8::1]:8443"]), Vec::new());
    assert_eq!(verdict(&rules, "192.0.2.7:443"), "allowed");
    assert_eq!(verdict(&rules, "192.0.2.8:443"), "host_not_listed");
    assert_eq!(verdict(&rules, "[2001:DB8:0::1]:8443"), "allowed");
    assert_eq!(verdict(&rules, "[2001:db8::1]:443"), "port_not_listed");
    assert_eq!(server("[2001:db8::1]:443").to_string(), "[2001:db8::1]:443");
}

proptest! {
    #[test]
    fn a_wildcard_covers_exactly_the_names_below(label in "[a-z0-9]{1,8}", deep in "[a-z]{1,5}") {
        let rules = Rules::new(patterns(&["*.example.com"]), Vec::new());
        let allowed = |text: String| matches!(
            rules.judge(&Server::new(name(&text), 443)), Decision::Allow(_));
        let inside = [format!("{label}.example.com"), format!("{deep}.{label}.example.com")];
        let outside = [
            format!("{label}example.com"),
            format!("example.com.{deep}"),
            format!("{label}.example.com.{deep}"),
        ];
        prop_assert_eq!(inside.map(allowed), [true, true]);
        prop_assert_eq!(outside.map(allowed), [false, false, false]);
    }

    #[test]
    fn parsing_never_panics_and_is_idempotent(text in "\\PC{0,40}|[a-zA-Z0-9.:*\\[\\]_-]{0,40}") {
        if let Ok(pattern) = text.parse::<HostPattern>() {
            prop_assert_eq!(pattern.to_string(), text.clone());
        }
        if let Ok(name) = text.parse::<ServerName>() {
            prop_assert_eq!(name.as_str().parse::<ServerName>(), Ok(name.clone()));
            prop_assert!(name.as_str().is_ascii());
        }
    }
}
