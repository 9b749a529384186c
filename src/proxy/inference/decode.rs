//! Content encodings, and how a request body's is undone, up to a size.

use std::io::{self, Read};

use bytes::Bytes;
use flate2::read::{MultiGzDecoder, ZlibDecoder};

use super::denial::Denial;
use super::members::Malformed;

/// The largest request, before and after decoding.
pub(crate) const MAX_REQUEST: usize = 64 * 1024 * 1024;

/// So much is undone at a time, however little it was before.
pub(super) const AT_ONCE: usize = 16 * 1024;

/// The largest zstd window: a frame may ask for any, and it is allocated up front.
pub(super) const MAX_WINDOW_LOG: u32 = 26;

/// A content encoding (RFC 9110, 8.4.1; RFC 7932 for `br`, RFC 8878 for `zstd`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coding {
    Identity,
    Gzip,
    Deflate,
    Brotli,
    Zstd,
}

impl Coding {
    /// The one of this name; `None` where nobody here knows it.
    pub(crate) fn named(name: &[u8]) -> Option<Self> {
        match name.trim_ascii().to_ascii_lowercase().as_slice() {
            b"" | b"identity" => Some(Self::Identity),
            b"gzip" | b"x-gzip" => Some(Self::Gzip),
            b"deflate" => Some(Self::Deflate),
            b"br" => Some(Self::Brotli),
            b"zstd" => Some(Self::Zstd),
            _ => None,
        }
    }
}

/// `body` without its `encoding`.
pub(crate) fn decode(encoding: Option<&str>, body: &Bytes) -> Result<Bytes, Denial> {
    let broken = |cause| Denial::Malformed(Malformed::Compression(cause));
    let coding = Coding::named(encoding.unwrap_or_default().as_bytes());
    match coding.ok_or(Denial::Malformed(Malformed::Encoding))? {
        Coding::Identity => Ok(body.clone()),
        Coding::Gzip => read(MultiGzDecoder::new(&body[..])),
        Coding::Deflate => read(ZlibDecoder::new(&body[..])),
        Coding::Brotli => read(brotli_decompressor::Decompressor::new(&body[..], AT_ONCE)),
        Coding::Zstd => {
            let mut decoder = zstd::Decoder::with_buffer(&body[..]).map_err(broken)?;
            decoder.window_log_max(MAX_WINDOW_LOG).map_err(broken)?;
            read(decoder)
        }
    }
}

fn read(decoder: impl Read) -> Result<Bytes, Denial> {
    let mut decoded = Vec::new();
    // One byte more than allowed tells a bomb from a body that just fits.
    let limit = MAX_REQUEST as u64 + 1;
    let length = decoder
        .take(limit)
        .read_to_end(&mut decoded)
        .map_err(|cause: io::Error| Denial::Malformed(Malformed::Compression(cause)))?;
    if length > MAX_REQUEST { Err(Denial::TooLarge) } else { Ok(Bytes::from(decoded)) }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::{GzEncoder, ZlibEncoder};

    use super::*;
    use crate::inference::decoded::{Until, encoded};

    fn gzip(pieces: impl Iterator<Item = Vec<u8>>) -> Bytes {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        pieces.for_each(|piece| encoder.write_all(&piece).unwrap());
        Bytes::from(encoder.finish().unwrap())
    }

    #[tokio::test]
    async fn each_encoding_of_a_body_decodes_to_it() {
        let text = b"{\"model\":\"m\"}";
        let plain = Bytes::from_static(text);
        let gzip = gzip(std::iter::once(text.to_vec()));
        let mut zlib = ZlibEncoder::new(Vec::new(), Compression::fast());
        zlib.write_all(text).unwrap();
        let zlib = Bytes::from(zlib.finish().unwrap());
        let zstd = Bytes::from(zstd::encode_all(&text[..], 1).unwrap());
        let brotli = Bytes::from(encoded("br", text, Until::End).await);
        for (encoding, body) in [
            (None, &plain),
            (Some("identity"), &plain),
            (Some("gzip"), &gzip),
            (Some(" GZIP"), &gzip),
            (Some("deflate"), &zlib),
            (Some("zstd"), &zstd),
            (Some("br"), &brotli),
        ] {
            assert_eq!(decode(encoding, body).unwrap(), plain, "{encoding:?}");
        }
        for (encoding, body) in [(Some("gzip"), &plain), (Some("zstd"), &gzip), (Some("br"), &gzip)]
        {
            let code = decode(encoding, body).unwrap_err().code();
            assert_eq!(code, "malformed", "{encoding:?}");
        }
    }

    #[test]
    fn a_bomb_is_too_large_and_a_body_that_just_fits_is_not() {
        let mebibytes = |count| (0..count).map(|_| vec![b' '; 1024 * 1024]);
        assert_eq!(decode(Some("gzip"), &gzip(mebibytes(64))).unwrap().len(), MAX_REQUEST);
        let bomb = gzip(mebibytes(65));
        assert!(bomb.len() < 512 * 1024);
        assert!(matches!(decode(Some("gzip"), &bomb), Err(Denial::TooLarge)));
    }
}
