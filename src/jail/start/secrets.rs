//! Values that must not reach the ledger: what the agent's environment calls a secret.

use kvro_ledger::Redactions;

use super::story::Request;

/// How variables that hold secrets are called.
const MARKS: [&str; 8] =
    ["KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "AUTH", "PASSPHRASE"];

/// Shorter values would redact ordinary words.
const SHORTEST: usize = 8;

/// Redacts the values that come in from the caller's environment, from the policy and from flags.
pub(super) fn redactions(request: &Request<'_>) -> anyhow::Result<Redactions> {
    let env = &request.loaded.policy.env;
    let passed = request.surroundings.env.iter().filter_map(|(name, value)| {
        let (name, value) = (name.to_str()?, value.to_str()?);
        env.passing(name).map(|_| (name, value))
    });
    let set = env.set.iter().map(|entry| (entry.value.name.as_str(), entry.value.value.as_str()));
    let secrets = passed.chain(set).filter(|(name, value)| is_secret(name, value));
    Ok(Redactions::new(secrets.map(|(name, value)| (name, value.as_bytes())))?)
}

fn is_secret(name: &str, value: &str) -> bool {
    let name = name.to_ascii_uppercase();
    value.len() >= SHORTEST && MARKS.iter().any(|mark| name.contains(mark))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_long_values_of_telling_names_are_secrets() {
        assert!(is_secret("ANTHROPIC_API_KEY", "sk-ant-0123456789"));
        assert!(is_secret("gh_token", "0123456789"));
        assert!(!is_secret("API_KEY", "none"));
        assert!(!is_secret("TERM", "xterm-256color"));
    }
}
