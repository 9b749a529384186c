//! Who and where the agent is: the caller's own, as programs ask for it.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};

use nix::unistd::{Uid, User};

use crate::world::{World, program};

#[test]
fn the_agent_has_a_name_a_home_and_an_ordinary_uid() {
    let world = World::new();
    let ran = world.jail("id -u; id -un; whoami; echo $USER $LOGNAME; getent passwd $(id -u)");
    let lines = ran.lines();
    let [uid, name, whoami, env, account] = &*lines else { panic!("{ran:?}") };
    let own = Uid::effective();
    let (wanted, called) = if own.is_root() {
        // Root's agent is not root, not even by number.
        ("1000".to_owned(), "agent".to_owned())
    } else {
        (own.to_string(), User::from_uid(own).unwrap().unwrap().name)
    };
    assert_eq!((*uid, *name, *whoami), (&*wanted, &*called, &*called));
    assert_eq!(*env, format!("{called} {called}"));
    let home = world.path("home").display().to_string();
    assert_eq!(account.split(':').nth(5), Some(&*home), "{account}");
    assert_eq!(ran.code, 0);
}

#[test]
fn what_the_agent_makes_is_the_callers_with_the_callers_umask() {
    let world = World::new();
    for (umask, file, directory) in [("022", 0o644, 0o755), ("077", 0o600, 0o700)] {
        let mut command = world.tool("sh".as_ref());
        let script = format!(
            r#"umask {umask}; exec "$0" -q -- sh -c 'umask; >f{umask}; mkdir d{umask}; stat -c "%U %a" f{umask}'"#
        );
        command.args(["-c", &script]).arg(program());
        let ran = world.finish(command);
        assert_eq!((ran.code, &*ran.notes), (0, ""));
        let name = world.jail("id -un");
        let seen = format!("{} {:o}", name.lines()[0], file);
        assert_eq!(ran.lines(), [&*format!("0{umask}"), &seen]);
        for (made, mode) in [(format!("f{umask}"), file), (format!("d{umask}"), directory)] {
            let meta = fs::metadata(world.path("work").join(made)).unwrap();
            assert_eq!((meta.uid(), meta.mode() & 0o777), (Uid::effective().as_raw(), mode));
        }
    }
}

#[test]
fn temporary_files_are_the_jails_own() {
    let world = World::new();
    let ran = world.jail(
        r#"f=$(mktemp) && echo x >"$f" && echo "$f"; echo "$TMPDIR"; sh -c 'echo "$TMPDIR"'"#,
    );
    let lines = ran.lines();
    let [file, first, second] = &*lines else { panic!("{ran:?}") };
    assert_eq!((*first, *second), ("/tmp", "/tmp"));
    assert!(file.starts_with("/tmp/tmp."), "{file}");
    assert!(!fs::exists(file).unwrap(), "{file} is on the host");
}

#[test]
fn locale_and_terminal_pass_and_little_else() {
    let world = World::new();
    let mut command = world.program(&[
        "-q",
        "--",
        "sh",
        "-c",
        "echo $LANG $LC_TIME $TZ $TERM; date +%Z; echo -$OTHER-",
    ]);
    command.env("LC_TIME", "C").env("TZ", "UTC+3").env("OTHER", "secret");
    let ran = world.finish(command);
    assert_eq!(ran.lines(), ["C.UTF-8 C UTC+3 xterm", "UTC", "--"]);
}

#[test]
fn a_workspace_reached_by_a_link_keeps_both_names() {
    let world = World::new();
    world.put("work/.env", "SECRET\n");
    let link = world.path("link");
    symlink(world.path("work"), &link).unwrap();
    let mut command =
        world.program(&["-q", "--", "sh", "-c", r#"echo "$PWD"; pwd -P; cat "$PWD/.env""#]);
    command.current_dir(&link).env("PWD", &link);
    let ran = world.finish(command);
    assert_eq!(ran.code, 0, "{ran:?}");
    let [logical, physical] = [&link, &world.path("work")].map(|path| path.display().to_string());
    assert_eq!(ran.lines()[..2], [&*logical, &*physical], "{ran:?}");
    assert!(!ran.text().contains("SECRET"), "{ran:?}");
}

#[test]
fn the_command_starts_where_the_workspace_is_named() {
    let world = World::new();
    fs::create_dir(world.path("other")).unwrap();
    let other = world.path("other").display().to_string();
    let ran = world.call(&["-q", "-C", &other, "--", "sh", "-c", "pwd; echo $PWD; ls ../work"]);
    assert_eq!(ran.lines(), [&*other, &*other], "{ran:?}");
    // The place it was called from is not shown.
    assert_eq!(ran.code, 2, "{ran:?}");
}

#[test]
fn a_jail_says_that_it_is_one() {
    let world = World::new();
    let ran = world.jail("echo $KVRO_JAIL $KVRO_JAIL_RUN");
    assert_eq!(ran.text(), format!("1 {}\n", world.runs()[0]));
}
