//! What is left when a run is over: nothing that was not there before.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use nix::sys::signal::Signal;

use crate::world::{World, wait_for};

/// Name, mode, size, inode and time of change of everything at and below `root`.
fn listing(root: &Path) -> Vec<String> {
    let mut names = Vec::new();
    let mut open = vec![root.to_owned()];
    while let Some(path) = open.pop() {
        let meta = fs::symlink_metadata(&path).unwrap();
        names.push(format!(
            "{} {:o} {}:{} {} bytes, inode {}, {} links, changed {}.{:09}",
            path.display(),
            meta.mode(),
            meta.uid(),
            meta.gid(),
            meta.size(),
            meta.ino(),
            meta.nlink(),
            meta.mtime(),
            meta.mtime_nsec()
        ));
        if meta.is_dir() {
            open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    names.sort_unstable();
    names
}

/// A workspace with something for every rule to cover.
fn covered() -> World {
    let world = World::new();
    for name in [".env", "infra/production/main.tf", ".git/config", ".git/hooks/x", "src/main.rs"] {
        world.put(&format!("work/{name}"), "text\n");
    }
    world
}

fn host_mounts_of(world: &World) -> Vec<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let place = world.path("").display().to_string();
    mounts.lines().filter(|line| line.contains(&place)).map(str::to_owned).collect()
}

#[test]
fn a_run_leaves_a_workspace_as_it_was() {
    for world in [covered(), World::new()] {
        let work = world.path("work");
        let before = listing(&work);
        let ran = world.call(&["-q", "--", "true"]);
        assert_eq!((ran.code, &*ran.notes), (0, ""));
        assert_eq!(listing(&work), before);
        assert_eq!(world.living(), [0_u32; 0]);
        assert_eq!(host_mounts_of(&world), [""; 0]);

        // The control: the listing sees what an agent does leave.
        assert_eq!(world.jail("echo x >new").code, 0);
        assert_ne!(listing(&work), before);
    }
}

#[test]
fn a_killed_supervisor_leaves_a_workspace_as_it_was() {
    let world = covered();
    let (work, home) = (world.path("work"), world.path("home"));
    let before = listing(&work);
    // It says that it runs where no listing looks.
    let script = "touch ~/ready; (setsid sleep 600 &); sleep 600";
    let started = world.started(world.program(&["-q", "--", "sh", "-c", script]));
    let is_ready = || {
        world.tool("find".as_ref()).arg(&home).output().is_ok_and(|found| {
            String::from_utf8_lossy(&found.stdout).lines().any(|line| line.ends_with("/home/ready"))
        })
    };
    wait_for("the command runs", is_ready);
    assert!(world.living().len() >= 3, "the census sees nobody");
    started.signal(Signal::SIGKILL);
    assert_eq!(started.end().code, 137);
    wait_for("the jail dies", || world.living().is_empty());
    assert_eq!(listing(&work), before);
    assert_eq!(host_mounts_of(&world), [""; 0]);

    // The next run closes what was left open, and says so.
    let next = world.call(&["--", "true"]);
    let said = format!("kvro-jail: closed the ledger of {}, which was cut off", world.runs()[0]);
    assert_eq!(next.code, 0);
    assert!(next.notes.lines().any(|line| line == said), "{next:?}");
    let verified = world.call(&["ledger", "verify"]);
    assert_eq!(verified.code, 0, "{verified:?}");
    assert_eq!(listing(&work), before);
}

#[test]
fn a_run_leaves_nothing_but_its_record_in_the_home() {
    let world = World::new();
    assert_eq!(world.call(&["-q", "--", "true"]).code, 0);
    let [run] = &*world.runs() else { panic!("{:?}", world.runs()) };
    let names = |place: &Path| {
        let mut names: Vec<String> = fs::read_dir(place)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort_unstable();
        names
    };
    assert_eq!(names(&world.path("home")), [".local"]);
    assert_eq!(names(&world.state().join("runs").join(run)), ["ledger.jsonl"]);
}
