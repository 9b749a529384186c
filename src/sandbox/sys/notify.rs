//! Seccomp filters and user notifications (seccomp_unotify(2)).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::fcntl::FdFlag;

use super::{check, owned};

// From include/uapi/linux/seccomp.h: _IOWR('!', 0, struct seccomp_notif) and so on.
const IOCTL_NOTIF_RECV: libc::c_ulong = 0xc050_2100;
const IOCTL_NOTIF_SEND: libc::c_ulong = 0xc018_2101;
const IOCTL_NOTIF_ID_VALID: libc::c_ulong = 0x4008_2102;
const IOCTL_NOTIF_ADDFD: libc::c_ulong = 0x4018_2103;
const IOCTL_NOTIF_SET_FLAGS: libc::c_ulong = 0x4008_2104;
const NOTIF_FD_SYNC_WAKE_UP: libc::c_ulong = 1;

/// Installs `filter` on the calling thread; returns the descriptor its notifications arrive on.
///
/// The caller must have set `no_new_privs`.
pub(crate) fn install_with_listener(filter: &[libc::sock_filter]) -> io::Result<OwnedFd> {
    // Once it is received, a call is only interrupted by what kills: one that was restarted after a
    // signal would be performed twice.
    let flags =
        libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    let len = u16::try_from(filter.len()).map_err(io::Error::other)?;
    let program = libc::sock_fprog { len, filter: filter.as_ptr().cast_mut() };
    // SAFETY: `program` points into `filter`, which outlives the call, and the kernel copies the
    // instructions before it returns; it never writes to them.
    owned(check(unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            flags,
            std::ptr::from_ref(&program),
        )
    })?)
}

/// The kernel's Landlock version (landlock(7)).
pub(crate) fn landlock_abi() -> io::Result<u32> {
    const LANDLOCK_CREATE_RULESET_VERSION: libc::c_uint = 1;
    let no_attributes = std::ptr::null::<libc::c_void>();
    // SAFETY: with this flag the call takes a null pointer and a size of zero.
    let version = check(unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            no_attributes,
            0,
            LANDLOCK_CREATE_RULESET_VERSION,
        )
    })?;
    u32::try_from(version).map_err(io::Error::other)
}

/// A system call that waits for a verdict.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Notification {
    id: u64,
    /// The calling thread, in this process's pid namespace; 0 when it is not visible from here.
    pub(crate) pid: u32,
    /// The system call's number.
    pub(crate) call: libc::c_long,
    pub(crate) args: [u64; 6],
}

/// What becomes of a waiting system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The kernel goes on with the call as it stands in memory by then.
    Continue,
    /// The call answers this errno.
    Refuse(i32),
    /// The call was done, and answers this.
    Answer(i32),
}

/// The supervisor's end of a notifying filter.
#[derive(Debug)]
pub(crate) struct Notifier(OwnedFd);

impl Notifier {
    pub(crate) fn new(listener: OwnedFd) -> Self {
        // Who asks and who answers take turns: the kernel need not find a processor for the other.
        // Kernels before 6.6 know no such flag, and are slower.
        // SAFETY: the request takes the flags by value.
        unsafe {
            libc::ioctl(listener.as_raw_fd(), IOCTL_NOTIF_SET_FLAGS, NOTIF_FD_SYNC_WAKE_UP);
        }
        Self(listener)
    }

    /// Waits for a system call. `ENOENT` means that its caller died meanwhile: ask again.
    pub(crate) fn receive(&self) -> io::Result<Notification> {
        // The kernel insists on zeroes.
        // SAFETY: `seccomp_notif` is plain integers, for which all zeroes is a value.
        let mut raw: libc::seccomp_notif = unsafe { std::mem::zeroed() };
        // SAFETY: the request number carries the size of `seccomp_notif`, which outlives the call.
        check(unsafe {
            libc::ioctl(self.0.as_raw_fd(), IOCTL_NOTIF_RECV, std::ptr::from_mut(&mut raw))
        })?;
        Ok(Notification { id: raw.id, pid: raw.pid, call: raw.data.nr.into(), args: raw.data.args })
    }

    /// Whether the caller of `notification` still waits, so that what was read of its memory was
    /// its own and not a later process's under the same pid.
    pub(crate) fn is_waiting(&self, notification: &Notification) -> bool {
        // SAFETY: the request reads one u64, which outlives the call.
        let answer = unsafe {
            libc::ioctl(
                self.0.as_raw_fd(),
                IOCTL_NOTIF_ID_VALID,
                std::ptr::from_ref(&notification.id),
            )
        };
        answer == 0
    }

    /// Gives the caller of `notification` a copy of `file`; says under which number.
    ///
    /// `ENOENT` means that it is gone.
    pub(crate) fn give(
        &self,
        notification: &Notification,
        file: BorrowedFd<'_>,
        flags: FdFlag,
    ) -> io::Result<i32> {
        let srcfd = u32::try_from(file.as_raw_fd()).map_err(io::Error::other)?;
        let closes = flags.contains(FdFlag::FD_CLOEXEC);
        let newfd_flags = if closes { libc::O_CLOEXEC.cast_unsigned() } else { 0 };
        let request = libc::seccomp_notif_addfd {
            id: notification.id,
            flags: 0,
            srcfd,
            newfd: 0,
            newfd_flags,
        };
        // SAFETY: the request number carries the size of `seccomp_notif_addfd`, which outlives the
        // call.
        let number = check(unsafe {
            libc::ioctl(self.0.as_raw_fd(), IOCTL_NOTIF_ADDFD, std::ptr::from_ref(&request))
        })?;
        i32::try_from(number).map_err(io::Error::other)
    }

    /// Answers; a caller that is gone by now is no error.
    pub(crate) fn answer(&self, notification: &Notification, verdict: Verdict) -> io::Result<()> {
        let (val, error, flags) = match verdict {
            Verdict::Continue => (0, 0, libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE),
            Verdict::Refuse(errno) => (0, -errno, 0),
            Verdict::Answer(value) => (value.into(), 0, 0),
        };
        let flags = u32::try_from(flags).map_err(io::Error::other)?;
        let response = libc::seccomp_notif_resp { id: notification.id, val, error, flags };
        // SAFETY: the request number carries the size of `seccomp_notif_resp`, which outlives the
        // call.
        let sent = check(unsafe {
            libc::ioctl(self.0.as_raw_fd(), IOCTL_NOTIF_SEND, std::ptr::from_ref(&response))
        });
        match sent {
            Err(error) if error.raw_os_error() != Some(libc::ENOENT) => Err(error),
            _ => Ok(()),
        }
    }
}

impl AsFd for Notifier {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
