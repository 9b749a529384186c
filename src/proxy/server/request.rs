//! What the head of every request must say, whether it came in clear or by interception.

use http::header::HOST;
use http::{Method, Request};

use crate::rules::{Reason, Server, ServerName, split_port};

/// Checks that a request is put to `server` itself and names no other.
///
/// The connection decides what is dialled, so a deviating `Host` could only reach a neighbour
/// behind the same address, one that no rule was asked about.
pub(super) fn check<B>(request: &Request<B>, server: &Server) -> Result<(), Reason> {
    if request.method() == Method::CONNECT || request.uri().authority().is_some() {
        return Err(Reason::ProxyForm);
    }
    let mut hosts = request.headers().get_all(HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return Err(Reason::HostHeaderMismatch);
    };
    let named = host.to_str().ok().and_then(|host| split_port(host).ok());
    match named {
        Some((name, port))
            if name.parse::<ServerName>().as_ref() == Ok(&server.name)
                && port.is_none_or(|port| port == server.port) =>
        {
            Ok(())
        }
        Some(_) | None => Err(Reason::HostHeaderMismatch),
    }
}

/// The server that a request names, however it does so.
pub(super) fn asked<B>(request: &Request<B>) -> Option<String> {
    let target = request.uri().host();
    let header = || request.headers().get(HOST).and_then(|host| host.to_str().ok());
    let text = target.or_else(|| split_port(header()?).ok().map(|(name, _)| name))?;
    text.parse::<ServerName>().ok().map(|name| name.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(method: &str, target: &str, hosts: &[&str]) -> Result<(), Reason> {
        let mut request = Request::builder().method(method).uri(target);
        for host in hosts {
            request = request.header(HOST, *host);
        }
        check(&request.body(()).unwrap(), &"api.example.com:80".parse().unwrap())
    }

    #[test]
    fn the_host_header_names_the_server_of_the_connection() {
        for host in ["api.example.com", "API.example.com", "api.example.com.", "api.example.com:80"]
        {
            assert_eq!(verdict("GET", "/", &[host]), Ok(()), "{host}");
        }
        for hosts in [
            &[][..],
            &[""],
            &["other.example.com"],
            &["api.example.com:8080"],
            &["api.example.com:"],
            &["x@api.example.com"],
            &["api.example.com", "api.example.com"],
            &["api.example.com, other.example"],
            &["[api.example.com]"],
        ] {
            assert_eq!(verdict("GET", "/", hosts), Err(Reason::HostHeaderMismatch), "{hosts:?}");
        }
    }

    #[test]
    fn the_door_is_no_proxy() {
        let host = ["api.example.com"];
        assert_eq!(verdict("CONNECT", "api.example.com:80", &host), Err(Reason::ProxyForm));
        assert_eq!(verdict("GET", "http://other.example/", &host), Err(Reason::ProxyForm));
        assert_eq!(verdict("GET", "http://api.example.com/", &host), Err(Reason::ProxyForm));
        assert_eq!(verdict("OPTIONS", "*", &host), Ok(()));
    }
}
