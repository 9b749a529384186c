//! Messages between the supervisor and the jail, over one socket pair.
//!
//! Each message is one packet of a `SOCK_SEQPACKET` socket, so that its descriptors travel with the
//! words that explain them. The socket is also the lifeline: the supervisor alone holds its end, and
//! an end of file there is the supervisor's death.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, Shutdown, SockFlag, SockType,
    recv, recvmsg, sendmsg, shutdown, socketpair,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::step::StepFailed;

/// The most descriptors in one message; the kernel allows 253.
pub(crate) const MAX_DESCRIPTORS: usize = 240;

/// What is longer must come in pieces: a socket holds not much more.
pub(crate) const LONG: usize = 32 * 1024;

/// What the jail reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum FromJail {
    /// The stage made pid 1; its pid as the supervisor sees it.
    Born {
        pid: i32,
    },
    /// The agent's process is made; its notifications arrive on the descriptor of this message.
    Listener,
    /// Every layer is in force and all waits for [`ToJail::Go`]. Descriptors: one for each door
    /// port, then as counted here.
    Ready {
        dns_udp: u8,
        dns_tcp: u8,
        tap: bool,
        decoys: bool,
        terminal: bool,
    },
    Failed(StepFailed),
    Exited {
        code: u8,
    },
    Signaled {
        signal: i32,
    },
    Stopped {
        signal: i32,
    },
}

/// What the supervisor tells the stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ToStage {
    /// The plan is in the descriptor, a sealed memfd.
    Plan,
}

/// What the stage hands to pid 1, over a socket pair of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ToPid1 {
    /// The id maps are written, and the plan is in the descriptor.
    Plan,
    /// The descriptors are the trees of the plan's next mount with a mapped owner.
    Trees,
    /// The guard is in the jail's namespaces.
    Guarded,
}

/// What pid 1 tells the stage, on the way back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum FromPid1 {
    /// The views lie; the descriptors are those of the guarded trees, one after the other.
    Laid,
}

/// What the agent's process tells pid 1, over a socket pair of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum FromAgent {
    /// Every layer is in force; only the exec is left.
    Armed,
}

/// What pid 1 tells the agent's process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ToAgent {
    Go,
}

/// What the supervisor asks of pid 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ToJail {
    Go,
    /// To the command itself.
    SignalCommand(i32),
    /// To the command's process group.
    SignalGroup(i32),
    /// To every process of the jail.
    SignalAll(i32),
}

/// One end of the socket.
#[derive(Debug)]
pub(crate) struct Channel(OwnedFd);

impl Channel {
    /// A connected pair; both ends close on exec.
    pub(crate) fn pair() -> io::Result<(Self, Self)> {
        let flags = SockFlag::SOCK_CLOEXEC;
        let (a, b) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)?;
        Ok((Self(a), Self(b)))
    }

    pub(crate) fn from_fd(fd: OwnedFd) -> Self {
        Self(fd)
    }

    pub(crate) fn send(
        &self,
        message: &impl Serialize,
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        let bytes = postcard::to_stdvec(message).map_err(io::Error::other)?;
        let raw: Vec<RawFd> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
        let rights = [ControlMessage::ScmRights(&raw)];
        let rights = if raw.is_empty() { &[][..] } else { &rights[..] };
        let content = [IoSlice::new(&bytes)];
        sendmsg::<()>(self.0.as_raw_fd(), &content, rights, MsgFlags::MSG_NOSIGNAL, None)?;
        Ok(())
    }

    /// Ends this direction: the other end reads an end of file.
    pub(crate) fn finish_sending(&self) -> io::Result<()> {
        shutdown(self.0.as_raw_fd(), Shutdown::Write)?;
        Ok(())
    }

    /// Waits for a message; `None` when the other end is gone.
    pub(crate) fn receive<M: DeserializeOwned>(&self) -> io::Result<Option<(M, Vec<OwnedFd>)>> {
        self.receive_with(MsgFlags::empty())
    }

    /// A message if one is there; `WouldBlock` if none is.
    pub(crate) fn try_receive<M: DeserializeOwned>(&self) -> io::Result<Option<(M, Vec<OwnedFd>)>> {
        self.receive_with(MsgFlags::MSG_DONTWAIT)
    }

    /// The length of the next message, which stays; zero when the other end is gone.
    fn next_length(&self, flags: MsgFlags) -> io::Result<usize> {
        let flags = flags | MsgFlags::MSG_PEEK | MsgFlags::MSG_TRUNC;
        loop {
            match recv(self.0.as_raw_fd(), &mut [], flags) {
                // The second is told once, when the other end went with our messages unread: what it
                // had sent before is still to come, then the end of file.
                Err(Errno::EINTR | Errno::ECONNRESET) => {}
                other => return Ok(other?),
            }
        }
    }

    fn receive_with<M: DeserializeOwned>(
        &self,
        flags: MsgFlags,
    ) -> io::Result<Option<(M, Vec<OwnedFd>)>> {
        let mut bytes = vec![0_u8; self.next_length(flags)?];
        let mut space = cmsg_space!([RawFd; MAX_DESCRIPTORS]);
        let mut content = [IoSliceMut::new(&mut bytes)];
        let flags = flags | MsgFlags::MSG_CMSG_CLOEXEC;
        let received = loop {
            match recvmsg::<()>(self.0.as_raw_fd(), &mut content, Some(&mut space), flags) {
                Err(Errno::EINTR | Errno::ECONNRESET) => {}
                other => break other?,
            }
        };
        let mut descriptors = Vec::new();
        for message in received.cmsgs()? {
            if let ControlMessageOwned::ScmRights(raw) = message {
                for number in raw {
                    descriptors.push(crate::sys::adopt(number)?);
                }
            }
        }
        let length = received.bytes;
        if length == 0 {
            return Ok(None);
        }
        let message = bytes.get(..length).unwrap_or_default();
        Ok(Some((postcard::from_bytes(message).map_err(io::Error::other)?, descriptors)))
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
