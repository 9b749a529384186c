//! The policies and profiles that the program is built with.

macro_rules! texts {
    ($folder:literal: $($name:literal),+ $(,)?) => {
        &[$((
            $name,
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/", $folder, "/", $name, ".toml")),
        )),+]
    };
}

const POLICIES: &[(&str, &str)] = texts!("policies": "default", "ci", "strict", "test");

const PROFILES: &[(&str, &str)] = texts!(
    "sandbox-profiles":
    "base", "claude", "codex", "gemini", "generic", "node", "python", "rust"
);

/// The text of a built-in policy, as it can be read and copied.
#[must_use]
pub fn policy(name: &str) -> Option<&'static str> {
    find(POLICIES, name)
}

/// The text of a built-in profile.
#[must_use]
pub fn profile(name: &str) -> Option<&'static str> {
    find(PROFILES, name)
}

/// The names of the built-in policies.
#[must_use]
pub fn policy_names() -> Vec<&'static str> {
    POLICIES.iter().map(|&(name, _)| name).collect()
}

/// The names of the built-in profiles.
#[must_use]
pub fn profile_names() -> Vec<&'static str> {
    PROFILES.iter().map(|&(name, _)| name).collect()
}

fn find(texts: &[(&str, &'static str)], name: &str) -> Option<&'static str> {
    texts.iter().find(|(known, _)| *known == name).map(|&(_, text)| text)
}
