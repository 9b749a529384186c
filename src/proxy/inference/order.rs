//! Turns a held request into what may be sent: read, admitted, and edited where the permit says so.

use bytes::Bytes;

use super::Provider;
use super::decode::decode;
use super::denial::Denial;
use super::dialect::{Dialect, Inspection, UsageAsk};
use super::members::{Malformed, Members};
use super::openai_chat::USAGE_OPTION;
use crate::gate::{Ask, Gate, Permit};

/// A request that was admitted and has not left. Dropped, it gives its money back.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) body: Bytes,
    pub(crate) form: Form,
    pub(crate) usage: UsageAsk,
    pub(crate) permit: Permit,
}

/// How a request is sent on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    AsReceived,
    /// Written anew, without a content encoding.
    Edited,
}

/// A request that does not leave.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) model: String,
    pub(crate) denial: Denial,
}

/// Has `gate` judge a request's `body`; may wait for the disk. `model` is the one that the path
/// names, if it names one.
pub(crate) fn prepare(
    provider: Provider,
    dialect: &Dialect,
    model: Option<String>,
    encoding: Option<&str>,
    body: &Bytes,
    gate: &dyn Gate,
) -> Result<Order, Refused> {
    let unread = |denial| Refused { model: String::new(), denial };
    let malformed = |cause| {
        unread(match cause {
            Malformed::Background => Denial::Unmetered,
            cause @ (Malformed::Json(_)
            | Malformed::Twice
            | Malformed::TwoLimits
            | Malformed::Encoding
            | Malformed::Compression(_)) => Denial::Malformed(cause),
        })
    };
    let text = decode(encoding, body).map_err(unread)?;
    let members = Members::parse(&text).map_err(malformed)?;
    let mut inspection = (dialect.inspect)(&members).map_err(malformed)?;
    if let Some(model) = model {
        inspection.model = model;
    }
    let (limit_field, usage) = (inspection.limit_field, inspection.usage);
    let ask = ask(provider, dialect, inspection);
    let permit = match gate.admit(&ask) {
        Ok(permit) => permit.hold(),
        Err(refusal) => {
            return Err(Refused { model: ask.model, denial: Denial::Ceiling(refusal) });
        }
    };
    let mut edits = Vec::new();
    if let Some(limit) = permit.reservation().output_limit
        && ask.output.limit != Some(limit)
    {
        edits.extend(members.edit(limit_field, limit.to_string()));
    }
    if usage == UsageAsk::Inject {
        edits.extend(members.edit(&USAGE_OPTION, "true".to_owned()));
    }
    // A request that needs no edit is sent byte by byte as it came.
    let (body, form) = if edits.is_empty() {
        (body.clone(), Form::AsReceived)
    } else {
        (Bytes::from(members.with(&edits)), Form::Edited)
    };
    Ok(Order { body, form, usage, permit })
}

fn ask(provider: Provider, dialect: &Dialect, inspection: Inspection) -> Ask {
    Ask {
        provider,
        model: inspection.model,
        kind: dialect.kind,
        input: inspection.input,
        output: inspection.output,
        terms: inspection.terms,
        context_at_least: inspection.context_at_least,
    }
}
