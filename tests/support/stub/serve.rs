//! The stub's doors: accepts, reads a request whole, and chooses its answer.

use std::convert::Infallible;
use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HOST, UPGRADE};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::answer::{Answer, Part};
use super::ask::{Api, Ask};
use super::tally::{Entry, Tally};
use super::{Mode, Settings, Usage, anthropic, chat, gemini, responses};

/// The three listeners.
#[derive(Debug)]
pub(crate) struct Doors {
    pub(crate) tls: TcpListener,
    pub(crate) http: TcpListener,
    pub(crate) control: TcpListener,
}

/// Answers requests; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Provider {
    settings: Settings,
    tally: Tally,
}

/// Accepts on all doors until `stopped` fires or its sender is gone.
pub(crate) async fn serve(
    doors: Doors,
    acceptor: TlsAcceptor,
    provider: Provider,
    mut stopped: oneshot::Receiver<()>,
) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            _ = &mut stopped => return,
            Ok((socket, _)) = doors.tls.accept() => {
                connections.spawn(serve_tls(acceptor.clone(), socket, provider.clone()));
            }
            Ok((socket, _)) = doors.http.accept() => {
                connections.spawn(serve_http(socket, provider.clone()));
            }
            Ok((socket, _)) = doors.control.accept() => {
                connections.spawn(serve_control(socket, provider.clone()));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve_tls(acceptor: TlsAcceptor, socket: TcpStream, provider: Provider) {
    // A client that does not trust the authority hangs up here; that is its answer.
    if let Ok(socket) = acceptor.accept(socket).await {
        serve_http(socket, provider).await;
    }
}

async fn serve_http<S>(socket: S, provider: Provider)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(|request| provider.clone().respond(request));
    let server = auto::Builder::new(TokioExecutor::new());
    // A client may hang up whenever it likes.
    drop(server.serve_connection(TokioIo::new(socket), service).await);
}

async fn serve_control(socket: TcpStream, provider: Provider) {
    let service = service_fn(|request: Request<Incoming>| {
        let known = request.uri().path() == "/__totals";
        let totals = provider.tally.totals();
        async move {
            let body = if known { json!(totals).to_string() } else { String::new() };
            let status = if known { StatusCode::OK } else { StatusCode::NOT_FOUND };
            let mut response = Response::new(body);
            *response.status_mut() = status;
            Ok::<_, Infallible>(response)
        }
    });
    let server = auto::Builder::new(TokioExecutor::new());
    drop(server.serve_connection(TokioIo::new(socket), service).await);
}

impl Provider {
    pub(crate) fn new(settings: Settings, tally: Tally) -> Self {
        Self { settings, tally }
    }

    async fn respond(self, request: Request<Incoming>) -> Result<Response<Answer>, Infallible> {
        let (head, body) = request.into_parts();
        let host = head.uri.authority().map(|authority| authority.host().to_owned());
        let host = host.or_else(|| {
            let host = head.headers.get(HOST)?.to_str().ok()?;
            Some(host.rsplit_once(':').map_or(host, |(name, _)| name).to_owned())
        });
        let host = host.unwrap_or_default();
        let entry = Entry {
            method: head.method.to_string(),
            host: host.clone(),
            path: head.uri.path().to_owned(),
            status: 200,
            model: None,
            usage: None,
            whole: false,
        };
        let Ok(body) = body.collect().await.map(http_body_util::Collected::to_bytes) else {
            // The client left in the middle of its request: nothing was asked.
            return Ok(self.json(entry, 400, &responses::error(400, "the body broke off")));
        };

        let path = head.uri.path();
        let post = head.method == Method::POST;
        let response = if head.headers.contains_key(UPGRADE) {
            // Real clients fall back to plain HTTP at once on this status and on no other.
            let error = responses::error(426, "this server speaks no websocket");
            self.json(entry, 426, &error)
        } else if let Some(api) = Api::at(path).filter(|_| post) {
            self.generate(api, entry, &body)
        } else if path.ends_with("/count_tokens") {
            self.json(entry, 200, &json!({"input_tokens": self.settings.usage.input}))
        } else if path.ends_with("/models") {
            let none = json!({"object": "list", "data": [], "models": [], "has_more": false});
            self.json(entry, 200, &none)
        } else if host.starts_with("api.") || host == "127.0.0.1" {
            self.json(entry, 404, &anthropic::error(404, "no such path"))
        } else {
            let page = Bytes::from(format!("this is {host}\n"));
            self.reply(entry, 200, "text/plain", vec![Part { bytes: page, said: Usage::default() }])
        };
        Ok(response)
    }

    fn generate(&self, api: Api, mut entry: Entry, body: &Bytes) -> Response<Answer> {
        let shape = match api {
            Api::Messages => anthropic::error,
            Api::Responses | Api::Chat => responses::error,
            Api::Generate => gemini::error,
        };
        let Ok(request) = serde_json::from_slice::<Value>(body) else {
            self.tally.reject();
            return self.json(entry, 400, &shape(400, "the body is no JSON"));
        };
        if let Mode::Status(status) = self.settings.mode {
            self.tally.reject();
            return self.json(entry, status, &shape(status, "the stub was told to answer this"));
        }

        let number = self.tally.accept();
        let ask = Ask::read(api, &entry.path, number, &request, &self.settings);
        entry.model = Some(ask.model.clone());
        let answer = match (ask.api, ask.stream) {
            (Api::Messages, true) => anthropic::stream,
            (Api::Messages, false) => anthropic::whole,
            (Api::Responses, true) => responses::stream,
            (Api::Responses, false) => responses::whole,
            (Api::Chat, true) => chat::stream,
            (Api::Chat, false) => chat::whole,
            (Api::Generate, true) => gemini::stream,
            (Api::Generate, false) => gemini::whole,
        };
        let kind = if ask.stream { "text/event-stream" } else { "application/json" };
        let parts = answer(&ask, &self.settings.text);
        self.reply(entry, 200, kind, parts)
    }

    fn json(&self, entry: Entry, status: u16, body: &Value) -> Response<Answer> {
        self.reply(entry, status, "application/json", vec![Part::json(body, Usage::default())])
    }

    fn reply(
        &self,
        mut entry: Entry,
        status: u16,
        kind: &'static str,
        parts: Vec<Part>,
    ) -> Response<Answer> {
        entry.status = status;
        let pause = match self.settings.mode {
            Mode::Slow(pause) if kind == "text/event-stream" => pause,
            Mode::Slow(_) | Mode::Text | Mode::ToolLoop | Mode::Status(_) => Duration::ZERO,
        };
        let mut response = Response::new(Answer::new(parts, pause, entry, self.tally.clone()));
        *response.status_mut() =
            StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let kind = hyper::header::HeaderValue::from_static(kind);
        response.headers_mut().insert(CONTENT_TYPE, kind);
        response
    }
}
