//! Every resolver hears the refusal of a name, and at once: glibc's, musl's in a static program, and
//! Node's.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::world::World;

/// Far above what a refusal takes and far below any resolver's patience of five seconds.
const AT_ONCE: Duration = Duration::from_secs(3);

const LOOK_UP: &str = r#"
#include <netdb.h>
#include <stdio.h>
int main(void) {
    struct addrinfo *found;
    int error = getaddrinfo("denied.example", "443", 0, &found);
    puts(error == EAI_NONAME ? "no such name" : "something else");
}
"#;

/// Whether `tool` is there. Where it has to be (`KVRO_REQUIRE`), its lack is a failure.
fn has(tool: &str) -> bool {
    let found = ["/usr/bin", "/usr/local/bin"].iter().any(|dir| Path::new(dir).join(tool).exists());
    let insists = std::env::var_os("KVRO_REQUIRE").is_some_and(|value| !value.is_empty());
    assert!(found || !insists, "{tool} is not installed");
    if !found {
        let mut notes = std::io::stderr();
        writeln!(notes, "skipped: {tool} is not installed").unwrap();
    }
    found
}

fn is_refused_at_once(world: &World, script: &str, says: &str) {
    let began = Instant::now();
    let ran = world.jail(script);
    assert_eq!((ran.text().trim(), ran.code), (says, 0), "{ran:?}");
    assert!(began.elapsed() < AT_ONCE, "{:?}", began.elapsed());
    let refused = r#""event":"dns.refused""#;
    assert!(world.ledger().contains(refused), "{}", world.ledger());
}

#[test]
fn a_static_program_of_musls_hears_the_refusal() {
    if !has("musl-gcc") {
        return;
    }
    let world = World::new();
    let source = world.put("work/look-up.c", LOOK_UP);
    let mut compiler = world.tool("musl-gcc".as_ref());
    compiler.args(["-static", "-o", "look-up"]).arg(source);
    assert_eq!(world.finish(compiler).code, 0);
    is_refused_at_once(&world, "./look-up", "no such name");
}

#[test]
fn a_program_of_glibcs_hears_the_refusal() {
    if !has("getent") {
        return;
    }
    is_refused_at_once(&World::new(), "getent hosts denied.example; echo $?", "2");
}

#[test]
fn node_hears_the_refusal() {
    if !has("node") {
        return;
    }
    let script = r#"node -e 'require("dns").lookup("denied.example", e => console.log(e.code))'"#;
    is_refused_at_once(&World::new(), script, "ENOTFOUND");
}
