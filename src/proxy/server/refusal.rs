//! Refusals as HTTP: a stable code, a sentence, and the policy line that would change it.

use std::time::Duration;

use http::header::{CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use tokio::time::timeout;

use crate::body::{Body, full};
use crate::rules::{Reason, Server};
use crate::upstream::UpstreamError;

const REASON: HeaderName = HeaderName::from_static("x-kvro-reason");
const DRAIN_BYTES: usize = 1024 * 1024;
const DRAIN_LIMIT: Duration = Duration::from_secs(1);

/// The answer to a request that a rule refused.
pub(super) fn denied(server: &Server, reason: Reason) -> Response<Body> {
    let status = match reason {
        Reason::ProxyForm => StatusCode::BAD_REQUEST,
        Reason::HostNotListed
        | Reason::HostDenied
        | Reason::PortNotListed
        | Reason::AddressWithoutName
        | Reason::SniMissing
        | Reason::SniMismatch
        | Reason::HostHeaderMismatch
        | Reason::AddressPrivate
        | Reason::AddressMetadata
        | Reason::ProtocolUnknown
        | Reason::NotMeterable
        | Reason::CaNotTrusted
        | Reason::NameMalformed
        | Reason::TooManyNames => StatusCode::FORBIDDEN,
    };
    let message = format!("{server}: {}", reason.sentence());
    answer(status, "kvro_denied", reason.code(), &message, reason.remedy(server))
}

/// The answer to a request whose server could not be reached.
pub(super) fn failed(server: &Server, error: &UpstreamError) -> Response<Body> {
    let remedy = error.refusal().and_then(|reason| reason.remedy(server));
    let message = format!("{server}: {}", error.detail());
    answer(StatusCode::BAD_GATEWAY, "kvro_upstream_failed", error.code(), &message, remedy)
}

fn answer(
    status: StatusCode,
    kind: &str,
    code: &'static str,
    message: &str,
    policy: Option<String>,
) -> Response<Body> {
    let mut error = serde_json::json!({ "type": kind, "code": code, "message": message });
    if let (Some(line), Some(error)) = (policy, error.as_object_mut()) {
        error.insert("policy".to_owned(), line.into());
    }
    let mut response = Response::new(full(serde_json::json!({ "error": error }).to_string()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(REASON, HeaderValue::from_static(code));
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Reads what is left of a refused request, within bounds: bytes left unread when the connection
/// closes would make the kernel reset it, and the answer could be lost on its way.
pub(super) async fn drain(request: Request<Incoming>) {
    let body = Limited::new(request.into_body(), DRAIN_BYTES);
    match timeout(DRAIN_LIMIT, body.collect()).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a refused request was not read to its end"),
        Err(_elapsed) => tracing::debug!("a refused request takes too long to be read"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn told(response: Response<Body>) -> (u16, String, String) {
        let status = response.status().as_u16();
        let reason = response.headers()[REASON].to_str().unwrap().to_owned();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, reason, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn a_refusal_says_which_line_would_allow_it() {
        let server = "denied.example:80".parse().unwrap();
        assert_eq!(
            told(denied(&server, Reason::HostNotListed)).await,
            (
                403,
                "host_not_listed".to_owned(),
                r#"{"error":{"code":"host_not_listed","message":"denied.example:80: the policy does not list this server","policy":"[net] allow = [\"denied.example\"]","type":"kvro_denied"}}"#
                    .to_owned()
            )
        );
    }

    #[tokio::test]
    async fn what_no_line_can_allow_names_none() {
        let server = "denied.example:80".parse().unwrap();
        let (status, _, body) = told(denied(&server, Reason::ProxyForm)).await;
        assert_eq!(status, 400);
        assert!(!body.contains("policy\":"), "{body}");
    }
}
