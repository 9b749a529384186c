//! Undoes the content encoding of an answer as it passes.
//!
//! No encoding is asked for, and a provider may use one all the same. What cannot be read cannot be
//! metered, so it is undone here and goes on plain, which every client takes.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use async_compression::tokio::bufread::{BrotliDecoder, GzipDecoder, ZlibDecoder, ZstdDecoder};
use async_compression::zstd::DParameter;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body as HttpBody, Frame};
use tokio::io::AsyncRead;
use tokio_util::io::{StreamReader, poll_read_buf};

use super::decode::{AT_ONCE, Coding, MAX_WINDOW_LOG};
use crate::body::{Body, BodyError};

/// `body` without its `coding`.
pub(crate) fn decoded(coding: Coding, body: Body) -> Body {
    let read = |body: Body| StreamReader::new(body.into_data_stream());
    let reader: Reader = match coding {
        Coding::Identity => return body,
        Coding::Gzip => {
            let mut decoder = GzipDecoder::new(read(body));
            decoder.multiple_members(true);
            Box::pin(decoder)
        }
        Coding::Deflate => Box::pin(ZlibDecoder::new(read(body))),
        Coding::Brotli => Box::pin(BrotliDecoder::new(read(body))),
        Coding::Zstd => {
            let window = DParameter::window_log_max(MAX_WINDOW_LOG);
            Box::pin(ZstdDecoder::with_params(read(body), &[window]))
        }
    };
    Decoded { reader, room: BytesMut::new() }.boxed()
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

/// Where [`encoded`] stops.
#[cfg(test)]
#[derive(Clone, Copy)]
pub(super) enum Until {
    End,
    /// All of the text is out, and more may come.
    Flush,
}

/// `text` in `encoding`.
#[cfg(test)]
pub(super) async fn encoded(encoding: &str, text: &[u8], until: Until) -> Vec<u8> {
    use async_compression::tokio::write::{BrotliEncoder, GzipEncoder, ZlibEncoder, ZstdEncoder};
    use tokio::io::AsyncWriteExt;

    macro_rules! write {
        ($encoder:ident) => {{
            let mut encoder = $encoder::new(Vec::new());
            encoder.write_all(text).await.unwrap();
            match until {
                Until::End => encoder.shutdown().await.unwrap(),
                Until::Flush => encoder.flush().await.unwrap(),
            }
            encoder.into_inner()
        }};
    }
    match Coding::named(encoding.as_bytes()).unwrap() {
        Coding::Identity => text.to_vec(),
        Coding::Gzip => write!(GzipEncoder),
        Coding::Deflate => write!(ZlibEncoder),
        Coding::Brotli => write!(BrotliEncoder),
        Coding::Zstd => write!(ZstdEncoder),
    }
}
