//! Undoes a request body's content encoding, up to a size.

use std::io::{self, Read};

use bytes::Bytes;
use flate2::read::{MultiGzDecoder, ZlibDecoder};

use super::denial::Denial;
use super::members::Malformed;

/// The largest request, before and after decoding.
pub(crate) const MAX_REQUEST: usize = 64 * 1024 * 1024;

/// How much of a brotli body is read at a time.
const READ_AT_ONCE: usize = 16 * 1024;

/// The largest zstd window: a frame may ask for any, and it is allocated up front.
pub(super) const MAX_WINDOW_LOG: u32 = 26;

/// `body` without its `encoding`.
pub(crate) fn decode(encoding: Option<&str>, body: &Bytes) -> Result<Bytes, Denial> {
    let broken = |cause| Denial::Malformed(Malformed::Compression(cause));
    match encoding.map(str::trim).map(str::to_ascii_lowercase).as_deref() {
        None | Some("" | "identity") => Ok(body.clone()),
        Some("gzip" | "x-gzip") => read(MultiGzDecoder::new(&body[..])),
        Some("deflate") => read(ZlibDecoder::new(&body[..])),
        Some("br") => read(brotli_decompressor::Decompressor::new(&body[..], READ_AT_ONCE)),
        Some("zstd") => {
            let mut decoder = zstd::Decoder::with_buffer(&body[..]).map_err(broken)?;
            decoder.window_log_max(MAX_WINDOW_LOG).map_err(broken)?;
            read(decoder)
        }
        Some(_) => Err(Denial::Malformed(Malformed::Encoding)),
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
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    fn gzip(pieces: impl Iterator<Item = Vec<u8>>) -> Bytes {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        pieces.for_each(|piece| encoder.write_all(&piece).unwrap());
        Bytes::from(encoder.finish().unwrap())
    }

    async fn brotli(text: &[u8]) -> Bytes {
        let mut encoder = async_compression::tokio::write::BrotliEncoder::new(Vec::new());
        encoder.write_all(text).await.unwrap();
        encoder.shutdown().await.unwrap();
        Bytes::from(encoder.into_inner())
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
        for (encoding, body) in [
            (None, &plain),
            (Some("identity"), &plain),
            (Some("gzip"), &gzip),
            (Some(" GZIP"), &gzip),
            (Some("deflate"), &zlib),
            (Some("zstd"), &zstd),
            (Some("br"), &brotli(text).await),
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
