//! `/etc`, by list: what programs read to work, nothing that names the machine's secrets.

use std::path::Path;

use kvro_sandbox::Mount;
use nix::unistd::gethostname;

use super::certificates::Bundle;
use super::identity::Person;
use super::system::read_only;

/// Shown as on the host, where the host has it.
const SHOWN: &[&str] = &[
    // The loader and what programs are called.
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "alternatives",
    "environment",
    // Time, language, terminals, fonts, kinds of files.
    "localtime",
    "timezone",
    "locale.alias",
    "locale.conf",
    "locale.gen",
    "default/locale",
    "terminfo",
    "inputrc",
    "fonts",
    "mime.types",
    "magic",
    "magic.mime",
    // Shells and editors.
    "profile",
    "profile.d",
    "bash.bashrc",
    "bash_completion.d",
    "zsh",
    "zshrc",
    "shells",
    "vim",
    "nanorc",
    // What the network's numbers mean.
    "protocols",
    "services",
    "networks",
    "gai.conf",
    "host.conf",
    // Certificates and TLS settings; keys are unreadable to the agent as on the host.
    "ssl/certs",
    "ssl/openssl.cnf",
    "pki/ca-trust",
    "pki/tls/certs",
    "pki/tls/openssl.cnf",
    "ca-certificates",
    "ca-certificates.conf",
    "crypto-policies",
    // Toolchains' own settings.
    "gitconfig",
    "npmrc",
    "pip.conf",
    "python3",
    "python3.11",
    "java-17-openjdk",
    "java-21-openjdk",
    "perl",
    "nix",
    "static",
    // Which system this is.
    "os-release",
    "lsb-release",
    "debian_version",
    "redhat-release",
    "alpine-release",
    "SuSE-release",
    "arch-release",
    "login.defs",
];

/// The list, and what is made for the jail.
pub(super) fn etc(person: &Person, home: &Path, bundle: &Bundle) -> Vec<Mount> {
    let mut mounts = vec![Mount::Directory { target: "/etc".into() }];
    let shown = SHOWN.iter().map(|name| Path::new("/etc").join(name));
    mounts.extend(shown.filter(|path| path.exists()).map(|path| read_only(&path)));
    let file = |name: &str, text: String| Mount::File {
        target: Path::new("/etc").join(name),
        content: text.into(),
    };
    mounts.push(file("passwd", passwd(person, home)));
    mounts.push(file("group", group(person)));
    mounts.push(file("hosts", hosts()));
    mounts.push(file("nsswitch.conf", NSSWITCH.to_owned()));
    mounts.push(file("resolv.conf", RESOLV.to_owned()));
    mounts.push(Mount::Symlink { target: "/etc/mtab".into(), to: "/proc/self/mounts".into() });
    mounts.extend(bundle.mounts());
    mounts
}

/// Any address is the door's; `edns0` asks it why a name is refused.
const RESOLV: &str = "nameserver 127.0.0.1\noptions edns0\n";

const NSSWITCH: &str = "\
passwd: files
group: files
shadow: files
hosts: files dns
networks: files
protocols: files
services: files
ethers: files
rpc: files
";

fn passwd(person: &Person, home: &Path) -> String {
    let shell = ["/bin/bash", "/bin/sh"].into_iter().find(|shell| Path::new(shell).exists());
    let (ids, home, shell) = (person.identity.inside, home.display(), shell.unwrap_or("/bin/sh"));
    format!(
        "root:x:0:0:root:/nonexistent:/usr/sbin/nologin\n\
         {}:x:{}:{}::{home}:{shell}\n\
         nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
        person.name, ids.uid, ids.gid
    )
}

fn group(person: &Person) -> String {
    format!("root:x:0:\n{}:x:{}:\nnogroup:x:65534:\n", person.name, person.identity.inside.gid)
}

fn hosts() -> String {
    let name = gethostname().map(|name| name.to_string_lossy().into_owned());
    let name = name.unwrap_or_else(|_| "localhost".to_owned());
    format!("127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n127.0.1.1 {name}\n")
}
