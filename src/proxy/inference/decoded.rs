//! Undoes the content encoding of an answer as it passes.
//!
//! No encoding is asked for, and a provider may use one all the same. What cannot be read cannot be
//! metered, so it is undone here and goes on plain, which every client takes.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use async_compression::tokio::bufread::{BrotliDecoder, GzipDecoder, ZlibDecoder, ZstdDecoder};
use async_compression::zstd::DParameter;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body as HttpBody, Frame};
use tokio::io::AsyncRead;
use tokio_util::io::{StreamReader, poll_read_buf};

use super::decode::MAX_WINDOW_LOG;
use crate::body::{Body, BodyError};

/// So much is undone at a time, however little it was before.
const AT_ONCE: usize = 16 * 1024;

/// `body` without its `encoding`, or as it is where nobody here knows that.
pub(crate) fn decoded(encoding: &[u8], body: Body) -> Result<Body, Body> {
    let read = |body: Body| StreamReader::new(body.into_data_stream());
    let reader: Reader = match encoding.trim_ascii().to_ascii_lowercase().as_slice() {
        b"gzip" | b"x-gzip" => {
            let mut decoder = GzipDecoder::new(read(body));
            decoder.multiple_members(true);
            Box::pin(decoder)
        }
        b"deflate" => Box::pin(ZlibDecoder::new(read(body))),
        b"br" => Box::pin(BrotliDecoder::new(read(body))),
        b"zstd" => {
            let window = DParameter::window_log_max(MAX_WINDOW_LOG);
            Box::pin(ZstdDecoder::with_params(read(body), &[window]))
        }
        _ => return Err(body),
    };
    Ok(Decoded { reader, room: BytesMut::new() }.boxed())
}

type Reader = Pin<Box<dyn AsyncRead + Send + Sync>>;

/// A body as a decoder reads it.
struct Decoded {
    reader: Reader,
    room: BytesMut,
}

impl fmt::Debug for Decoded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoded").finish_non_exhaustive()
    }
}

impl HttpBody for Decoded {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Self { reader, room } = self.get_mut();
        room.reserve(AT_ONCE);
        Poll::Ready(match ready!(poll_read_buf(reader.as_mut(), cx, room)) {
            Ok(0) => None,
            Ok(_) => Some(Ok(Frame::data(room.split().freeze()))),
            Err(cause) => Some(Err(BodyError::Undecodable(cause))),
        })
    }
}

impl From<BodyError> for io::Error {
    fn from(error: BodyError) -> Self {
        Self::other(error)
    }
}
