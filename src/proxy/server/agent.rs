//! The agent's end of a connection: what was read ahead is read again, and bytes are counted.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf, copy};
use tokio::net::TcpStream;
use tokio::time::timeout;

const FAREWELL_LIMIT: Duration = Duration::from_secs(1);
const FAREWELL_BYTES: u64 = 256 * 1024;

/// Bytes that passed, as the agent sees it.
#[derive(Debug, Default)]
pub(super) struct Counts {
    sent: AtomicU64,
    received: AtomicU64,
}

impl Counts {
    pub(super) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    pub(super) fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }
}

/// A connection that the agent opened.
#[derive(Debug)]
pub(super) struct AgentStream {
    /// What was read to find out where the connection leads.
    ahead: Bytes,
    stream: TcpStream,
    counts: Arc<Counts>,
}

impl AgentStream {
    pub(super) fn new(stream: TcpStream, ahead: Vec<u8>) -> Self {
        Self { ahead: ahead.into(), stream, counts: Arc::default() }
    }

    pub(super) fn counts(&self) -> Arc<Counts> {
        Arc::clone(&self.counts)
    }

    /// Ends the connection so that the agent sees an error, never a clean end.
    pub(super) fn reset(self) {
        if let Err(error) = self.stream.set_zero_linger() {
            tracing::debug!(%error, "a connection is closed instead of reset");
        }
    }

    /// Sends last words and closes. What still comes in is read and dropped for a moment, since
    /// unread bytes would make the kernel reset the connection and take the last words with it.
    pub(super) async fn close_with(mut self, words: &[u8]) -> io::Result<()> {
        self.stream.write_all(words).await?;
        self.stream.shutdown().await?;
        let mut rest = self.stream.take(FAREWELL_BYTES);
        let mut nowhere = tokio::io::sink();
        match timeout(FAREWELL_LIMIT, copy(&mut rest, &mut nowhere)).await {
            Ok(drained) => drained.map(drop),
            Err(_elapsed) => Ok(()),
        }
    }
}

impl AsyncRead for AgentStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        if self.ahead.has_remaining() {
            let length = self.ahead.remaining().min(buf.remaining());
            buf.put_slice(&self.ahead.split_to(length));
        } else {
            std::task::ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        }
        let read = buf.filled().len() - before;
        self.counts.sent.fetch_add(read as u64, Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for AgentStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = std::task::ready!(Pin::new(&mut self.stream).poll_write(cx, buf))?;
        self.counts.received.fetch_add(written as u64, Ordering::Relaxed);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = std::task::ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, bufs))?;
        self.counts.received.fetch_add(written as u64, Ordering::Relaxed);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
