//! What this machine offers, as facts without judgement.

use std::fs;

use crate::landlock;

/// What bears on whether a jail can be made here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// As `uname -r` says.
    pub kernel: String,
    /// 0 without Landlock.
    pub landlock_abi: u32,
    /// `user.max_user_namespaces`, where the kernel tells.
    pub max_user_namespaces: Option<u64>,
    /// Debian's switch `kernel.unprivileged_userns_clone`, where it exists.
    pub userns_clone: Option<u64>,
    /// Ubuntu's `kernel.apparmor_restrict_unprivileged_userns`, where it exists.
    pub apparmor_restricts_userns: Option<u64>,
    /// Controllers of the unified hierarchy that are offered to this process's group.
    pub cgroup_controllers: Vec<String>,
    pub has_overlay: bool,
    pub has_ipv6: bool,
    /// Whether this process seems to be in a container.
    pub in_container: bool,
}

impl Host {
    /// Reads the facts. What cannot be read counts as absent.
    #[must_use]
    pub fn probe() -> Self {
        let number = |name: &str| {
            let path = format!("/proc/sys/{}", name.replace('.', "/"));
            fs::read_to_string(path).ok()?.trim().parse().ok()
        };
        let filesystems = fs::read_to_string("/proc/filesystems").unwrap_or_default();
        Self {
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease")
                .map(|text| text.trim().to_owned())
                .unwrap_or_default(),
            landlock_abi: landlock::abi(),
            max_user_namespaces: number("user.max_user_namespaces"),
            userns_clone: number("kernel.unprivileged_userns_clone"),
            apparmor_restricts_userns: number("kernel.apparmor_restrict_unprivileged_userns"),
            cgroup_controllers: offered_controllers(),
            has_overlay: filesystems.lines().any(|line| line.ends_with("\toverlay")),
            has_ipv6: fs::exists("/proc/net/if_inet6").unwrap_or(false),
            in_container: fs::exists("/.dockerenv").unwrap_or(false)
                || fs::exists("/run/.containerenv").unwrap_or(false),
        }
    }

    /// Landlock rights that this kernel lacks, by name.
    #[must_use]
    pub fn missing_rights(&self) -> Vec<String> {
        landlock::missing(self.landlock_abi)
    }
}

fn offered_controllers() -> Vec<String> {
    let memberships = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let Some(own) = memberships.lines().find_map(|line| line.strip_prefix("0::/")) else {
        return Vec::new();
    };
    let file = format!("/sys/fs/cgroup/{own}/cgroup.controllers");
    let offered = fs::read_to_string(file).unwrap_or_default();
    offered.split_whitespace().map(str::to_owned).collect()
}
