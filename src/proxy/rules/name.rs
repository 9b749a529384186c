//! The one normal form of a server's name.
//!
//! Names reach the door by five ways (policy, DNS question, SNI, `Host`, request target). All of
//! them pass through this parser, so that two spellings of one name cannot be judged differently.
//! Whatever has no single reading is refused, above all the many spellings of an IPv4 address.

use std::borrow::Borrow;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use std::sync::Arc;

use idna::AsciiDenyList;
use idna::uts46::{DnsLength, Hyphens, Uts46};

/// A DNS name in lower case without its last dot, or an IP address in its one canonical form.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerName(Arc<str>);

/// A text that names no server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error("a server's name is empty")]
    Empty,
    #[error("a server's name has at most 253 characters")]
    TooLong,
    #[error("a label of a server's name is empty")]
    EmptyLabel,
    #[error("a label of a server's name has at most 63 characters")]
    LabelTooLong,
    #[error("{0:?} cannot stand in a server's name")]
    Character(char),
    #[error("a label of a server's name neither begins nor ends with a hyphen")]
    Hyphen,
    #[error("a server's name cannot be written in ASCII")]
    NotInternational,
    #[error("an address is written as four decimal numbers or as IPv6, without a zone")]
    Address,
}

impl ServerName {
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The address, when the server is named by one.
    #[must_use]
    pub fn address(&self) -> Option<IpAddr> {
        self.0.parse().ok()
    }

    /// Whether this name lies below `parent`, at a label boundary.
    #[must_use]
    pub fn is_below(&self, parent: &Self) -> bool {
        self.0.strip_suffix(&*parent.0).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
            && self.address().is_none()
    }

    pub(super) fn labels(&self) -> usize {
        self.0.split('.').count()
    }
}

impl FromStr for ServerName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        if text.is_ascii() {
            return parse_ascii(text);
        }
        Uts46::new()
            .to_ascii(text.as_bytes(), AsciiDenyList::STD3, Hyphens::Check, DnsLength::Verify)
            .map_or(Err(NameError::NotInternational), |ascii| parse_ascii(&ascii))
    }
}

fn parse_ascii(text: &str) -> Result<ServerName, NameError> {
    if let Some(inner) = text.strip_prefix('[') {
        let inner = inner.strip_suffix(']').ok_or(NameError::Address)?;
        return inner.parse::<Ipv6Addr>().map_or(Err(NameError::Address), |a| Ok(a.into()));
    }
    if text.contains(':') {
        return text.parse::<Ipv6Addr>().map_or(Err(NameError::Address), |a| Ok(a.into()));
    }
    let name = text.strip_suffix('.').unwrap_or(text);
    if name.is_empty() {
        return Err(if text.is_empty() { NameError::Empty } else { NameError::EmptyLabel });
    }
    if name.len() > 253 {
        return Err(NameError::TooLong);
    }
    name.split('.').try_for_each(check_label)?;
    let last = name.rsplit('.').next().unwrap_or(name);
    if is_number(last) {
        return text.parse::<Ipv4Addr>().map_or(Err(NameError::Address), |a| Ok(a.into()));
    }
    Ok(ServerName(name.to_ascii_lowercase().into()))
}

fn check_label(label: &str) -> Result<(), NameError> {
    if label.is_empty() {
        return Err(NameError::EmptyLabel);
    }
    if label.len() > 63 {
        return Err(NameError::LabelTooLong);
    }
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if let Some(odd) = label.chars().find(|&c| !fits(c)) {
        return Err(NameError::Character(odd));
    }
    if label.starts_with('-') || label.ends_with('-') {
        return Err(NameError::Hyphen);
    }
    Ok(())
}

/// Whether a resolver may take a name that ends in this label for an IPv4 address: `inet_aton`
/// reads `127.1`, `0x7f.1` and `2130706433` as addresses.
fn is_number(label: &str) -> bool {
    let hex = label.strip_prefix("0x").or_else(|| label.strip_prefix("0X"));
    hex.map_or_else(
        || label.bytes().all(|b| b.is_ascii_digit()),
        |digits| digits.bytes().all(|b| b.is_ascii_hexdigit()),
    )
}

/// An IPv4-mapped IPv6 address becomes the IPv4 address that it stands for.
impl From<IpAddr> for ServerName {
    fn from(address: IpAddr) -> Self {
        Self(address.to_canonical().to_string().into())
    }
}

impl From<Ipv4Addr> for ServerName {
    fn from(address: Ipv4Addr) -> Self {
        IpAddr::from(address).into()
    }
}

impl From<Ipv6Addr> for ServerName {
    fn from(address: Ipv6Addr) -> Self {
        IpAddr::from(address).into()
    }
}

impl Borrow<str> for ServerName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// A server at a port: what a rule judges and what the door dials.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Server {
    pub name: ServerName,
    pub port: u16,
}

impl Server {
    #[must_use]
    pub const fn new(name: ServerName, port: u16) -> Self {
        Self { name, port }
    }
}

/// `name:port`, with brackets around an IPv6 address.
impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.as_str().contains(':') {
            write!(f, "[{}]:{}", self.name, self.port)
        } else {
            write!(f, "{}:{}", self.name, self.port)
        }
    }
}

/// A text that is not `name:port`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ServerError {
    #[error("a port is missing")]
    NoPort,
    #[error("a port is a number from 1 to 65535")]
    Port,
    #[error(transparent)]
    Name(#[from] NameError),
}

impl FromStr for Server {
    type Err = ServerError;

    fn from_str(text: &str) -> Result<Self, ServerError> {
        let (name, port) = split_port(text)?;
        Ok(Self::new(name.parse()?, port.ok_or(ServerError::NoPort)?))
    }
}

/// Takes `name`, `name:port`, `[v6]`, `[v6]:port` or a bare IPv6 address apart.
pub(crate) fn split_port(text: &str) -> Result<(&str, Option<u16>), ServerError> {
    let colon = match text.rfind(']') {
        Some(bracket) => match &text[bracket + 1..] {
            "" => return Ok((text, None)),
            rest if rest.starts_with(':') => bracket + 1,
            _ => return Err(NameError::Address.into()),
        },
        None => match text.find(':') {
            Some(colon) if text.rfind(':') == Some(colon) => colon,
            Some(_) | None => return Ok((text, None)),
        },
    };
    let digits = &text[colon + 1..];
    // `u16::from_str` would take a plus sign.
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(ServerError::Port);
    }
    match digits.parse() {
        Ok(0) | Err(_) => Err(ServerError::Port),
        Ok(port) => Ok((&text[..colon], Some(port))),
    }
}
