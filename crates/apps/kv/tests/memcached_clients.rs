//! Unmodified memcached clients against `kv serve` on a rack of two processes.
//!
//! They are not part of the build, so the tests are ignored by default; if run, a missing client is
//! a failure. `pymemcache` comes from PyPI (`pip install pymemcache`), `memccapable` from Debian's
//! libmemcached-tools.

mod common;

use std::process::Command;

use common::Server;

/// Runs a client to its end and returns its output.
fn run(client: &mut Command) -> String {
    let name = client.get_program().to_string_lossy().into_owned();
    let output = client.output().unwrap_or_else(|error| panic!("cannot run {name}: {error}"));
    let text = [output.stdout, output.stderr].map(|t| String::from_utf8_lossy(&t).into_owned());
    let text = text.concat();
    assert!(output.status.success(), "{name} failed:\n{text}");
    text
}

#[test]
#[ignore = "needs pymemcache and memccapable: cargo xtask test --clients"]
fn pymemcache() {
    let server = Server::start();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/memcached_clients.py");
    let text = run(Command::new("python3").args([script, &server.port.to_string()]));
    assert!(text.contains("all checks passed"), "{text}");
}

#[test]
#[ignore = "needs pymemcache and memccapable: cargo xtask test --clients"]
fn memccapable() {
    let server = Server::start();
    let (port, mut client) = (server.port.to_string(), Command::new("memccapable"));
    let text = run(client.args(["-h", "127.0.0.1", "-p", &port, "-a", "-v"]));
    assert!(text.contains("All tests passed"), "{text}");
    assert!(text.matches("[pass]").count() > 20, "{text}");
}
