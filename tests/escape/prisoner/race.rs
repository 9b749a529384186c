//! A race for what is hidden: eight threads use a path while another keeps exchanging its last
//! name, an allowed one, for a hidden one, and look at whatever they got hold of.
//!
//! It goes on from `race` to `race-over`, so that somebody else can change the files meanwhile.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::{self, File};
use std::hint::spin_loop;
use std::io::{self, Read as _};
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use nix::libc;
use serde::{Deserialize, Serialize};

use super::files::CANARY;
use super::ok;
use crate::raw::{self, SwappedPath};

/// What came of one way to use a path.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tally {
    pub(crate) tried: u32,
    /// Something was read.
    pub(crate) read: u32,
    /// What was hidden was read.
    pub(crate) leaked: u32,
}

static RACE: Mutex<Option<Race>> = Mutex::new(None);

pub(super) fn perform(words: &[&str]) -> Option<io::Result<String>> {
    let mut race = RACE.lock().unwrap_or_else(PoisonError::into_inner);
    Some(match *words {
        ["race"] => {
            // Who is raced against must get on where processors are few.
            raw::give_way().map(|()| {
                *race = Some(Race::start());
                ok()
            })
        }
        ["race-over"] => race.take().ok_or(io::ErrorKind::InvalidInput.into()).and_then(Race::end),
        _ => return None,
    })
}

#[derive(Debug)]
struct Race {
    swapper: JoinHandle<()>,
    racers: Vec<(&'static str, JoinHandle<Tally>)>,
    is_over: Arc<AtomicBool>,
}

/// A path, and the two names that its last one alternates between.
#[derive(Debug)]
struct Road {
    path: SwappedPath,
    allowed: [u8; 8],
    hidden: [u8; 8],
}

impl Road {
    fn new(leading: &[u8; 16], allowed: &[u8; 8], hidden: &[u8; 8]) -> Self {
        let path = SwappedPath::new(*leading, *allowed);
        Self { path, allowed: *allowed, hidden: *hidden }
    }
}

/// A use of a path: `aside` is the racer's own name for what it gets.
type Way = fn(road: &SwappedPath, aside: &str) -> io::Result<Vec<u8>>;

const WAYS: [(&str, Way); 8] = [
    ("open", |road, _| road.open(libc::O_RDONLY | libc::O_NONBLOCK).and_then(read)),
    ("open to create", |road, _| road.open(libc::O_RDWR | libc::O_CREAT).and_then(read)),
    ("open again", |road, _| {
        let file = road.open(libc::O_PATH)?;
        fs::read(format!("/proc/self/fd/{}", file.as_raw_fd()))
    }),
    ("rename", |road, aside| {
        road.rename_to(&CString::new(aside)?)?;
        let taken = fs::read(aside);
        // Somebody has to keep the allowed name alive.
        fs::rename(aside, "plain")?;
        taken
    }),
    ("exchange", |road, aside| {
        fs::write(aside, "mine")?;
        road.exchange_with(&CString::new(aside)?)?;
        fs::read(aside)
    }),
    ("link", |road, aside| {
        fs::remove_file(aside).ok();
        road.link_to(&CString::new(aside)?, 0)?;
        fs::read(aside)
    }),
    ("link by link", |road, aside| {
        fs::remove_file(aside).ok();
        road.link_to(&CString::new(aside)?, libc::AT_SYMLINK_FOLLOW)?;
        fs::read(aside)
    }),
    ("link a descriptor", |road, aside| {
        fs::remove_file(aside).ok();
        let file = road.open(libc::O_PATH)?;
        let by_number = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
        let flags = nix::fcntl::AtFlags::AT_SYMLINK_FOLLOW;
        let here = nix::fcntl::AT_FDCWD;
        nix::unistd::linkat(here, by_number.as_c_str(), here, aside, flags)?;
        fs::read(aside)
    }),
];

impl Race {
    fn start() -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let roads = Arc::new([
            Road::new(b"././././././././", b"plain\0\0\0", b".env\0\0\0\0"),
            Road::new(b".///packages/api", b"/plain\0\0", b"/.env\0\0\0"),
            // A name that comes and goes.
            Road::new(b"././././././././", b"plain\0\0\0", b".env.a\0\0"),
        ]);
        // On a busy machine the race could be over before somebody ran.
        let begin = Arc::new(Barrier::new(WAYS.len() + 1));
        let racers = WAYS.into_iter().enumerate().map(|(number, (name, way))| {
            let (roads, is_over) = (Arc::clone(&roads), Arc::clone(&is_over));
            let begin = Arc::clone(&begin);
            let racer = move || {
                let asides = [format!("aside-{number}"), format!("open/aside-{number}")];
                let mut tally = Tally::default();
                begin.wait();
                let mut turns = roads.iter().cycle().zip(asides.iter().cycle());
                while let (false, Some((road, aside))) =
                    (is_over.load(Ordering::Relaxed), turns.next())
                {
                    tally.count(&way(&road.path, aside));
                }
                tally
            };
            (name, thread::spawn(racer))
        });
        let racers = racers.collect();
        let over = Arc::clone(&is_over);
        let swapper = thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                for road in roads.iter() {
                    road.path.swap(road.hidden);
                    linger();
                    road.path.swap(road.allowed);
                }
                linger();
            }
        });
        begin.wait();
        Self { swapper, racers, is_over }
    }

    fn end(self) -> io::Result<String> {
        self.is_over.store(true, Ordering::Relaxed);
        let panicked = |_| io::Error::other("a racer fell");
        self.swapper.join().map_err(panicked)?;
        let mut tallies = BTreeMap::new();
        for (name, racer) in self.racers {
            tallies.insert(name, racer.join().map_err(panicked)?);
        }
        Ok(serde_json::to_string(&tallies)?)
    }
}

/// As long as a call needs to begin.
fn linger() {
    for _ in 0..200 {
        spin_loop();
    }
}

impl Tally {
    fn count(&mut self, got: &io::Result<Vec<u8>>) {
        self.tried += 1;
        let Ok(bytes) = got else { return };
        self.read += 1;
        if bytes.windows(CANARY.len()).any(|part| part == CANARY.as_bytes()) {
            self.leaked += 1;
        }
    }
}

fn read(file: impl Into<File>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.into().take(4096).read_to_end(&mut bytes)?;
    Ok(bytes)
}
