//! Names that the sources of some crates may not use, whatever their manifests allow: the delegation
//! core and the control plane have no socket, clock or thread, and protocols take their atomics from
//! `primitive::sync`, so that loom explores what ships.
//!
//! Clippy's bans cannot say this: they see through re-exports (`primitive::sync::AtomicU64` is the
//! banned original) and do not tell tests from the rest. So names are read as they are written.

use anyhow::{Result, ensure};

use crate::layers::names::{Name, is_test_file, names};
use crate::workspace::{Source, Workspace};

/// Names that the sources of some crates may not use outside their tests.
struct Ban {
    /// Folders of the crates.
    crates: &'static [&'static str],
    /// The one file to which it does not apply.
    except: &'static str,
    /// Paths; a longer path that contains one is banned as well. A leading dot is a method call.
    paths: &'static [&'static [&'static str]],
    /// What to do instead, for the message.
    instead: &'static str,
}

const BANS: &[Ban] = &[
    Ban {
        crates: &["crates/progress", "crates/transport-control", "crates/trust-core"],
        except: "",
        paths: &[&["std", "net"], &["unix", "net"]],
        instead: "it reaches other hosts through what it is handed",
    },
    Ban {
        crates: &["crates/progress", "crates/transport-control", "crates/trust-core"],
        except: "",
        paths: &[
            &["thread", "spawn"],
            &["thread", "scope"],
            &["thread", "Builder"],
            &["thread", "sleep"],
        ],
        instead: "it runs on threads that it is handed",
    },
    Ban {
        crates: &["crates/progress", "crates/transport-control", "crates/trust-core"],
        except: "",
        paths: &[&["Instant", "now"], &[".elapsed"], &["SystemTime"]],
        instead: "it is handed the time, so that a simulator can make it up",
    },
    Ban {
        crates: &[
            "crates/primitive",
            "crates/progress",
            "crates/transport-api",
            "crates/transport-control",
            "crates/trust-core",
        ],
        except: "crates/primitive/src/sync/mod.rs",
        paths: &[&["sync", "atomic"]],
        instead: "take atomics from `primitive::sync`, which loom can replace",
    },
];

/// Adds violations of a ban to `broken`; returns what was checked, and fails if that was nothing.
pub(crate) fn check(workspace: &Workspace, broken: &mut Vec<String>) -> Result<String> {
    let (mut files, mut names) = (0, 0);
    for ban in BANS {
        for folder in ban.crates {
            let mut seen = 0;
            for source in workspace.sources(&format!("{folder}/src"))? {
                if source.path == ban.except || is_test_file(&source.path) {
                    continue;
                }
                files += 1;
                seen += check_source(ban, &source, broken)?;
            }
            ensure!(seen > 0, "{folder}/src has no code, expected some to check");
            names += seen;
        }
    }
    Ok(format!("{names} names in {files} readings of a file obey the {} bans", BANS.len()))
}

fn check_source(ban: &Ban, source: &Source, broken: &mut Vec<String>) -> Result<usize> {
    let names = names(source)?;
    let mut last = 0;
    for Name { path, line, .. } in &names {
        let hits = |banned: &&[&str]| path.windows(banned.len()).any(|part| part == *banned);
        // One message for a line: the branches of a use tree all contain its prefix.
        if *line != last && ban.paths.iter().any(hits) {
            last = *line;
            let (file, name) = (&source.path, path.join("::"));
            broken.push(format!("{file}:{line}: names {name}: {}", ban.instead));
        }
    }
    Ok(names.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(file: &str, text: &str) -> Vec<String> {
        let source = Source { path: file.into(), text: text.into() };
        let mut broken = Vec::new();
        for ban in BANS.iter().filter(|ban| ban.crates.iter().any(|c| file.starts_with(c))) {
            check_source(ban, &source, &mut broken).unwrap();
        }
        broken
    }

    #[test]
    fn the_core_has_no_socket() {
        for text in [
            "use std::net::TcpStream;",
            "use std::{fmt, net::{self, TcpStream}};",
            "use std::os::unix::net::UnixStream;",
            "fn f() { let _ = ::std::net::UdpSocket::bind(a); }",
            "macro_rules! m { () => { std::net::TcpListener } }",
        ] {
            assert_eq!(broken("crates/trust-core/src/a.rs", text).len(), 1, "{text}");
        }
    }

    #[test]
    fn the_core_has_no_thread() {
        let text = "use std::thread;\nfn f() {\n    thread::spawn(|| ());\n}";
        let broken_here = broken("crates/trust-core/src/a.rs", text);
        assert_eq!(broken_here.len(), 1);
        assert!(broken_here[0].starts_with("crates/trust-core/src/a.rs:3: names thread::spawn"));
        assert!(!broken("crates/trust-core/src/a.rs", "use std::thread::Builder;").is_empty());
        assert!(broken("crates/trust-core/src/a.rs", "std::thread::panicking();").is_empty());
    }

    #[test]
    fn the_core_has_no_clock() {
        for text in [
            "fn f() { std::time::Instant::now(); }",
            "use std::time::{Duration, SystemTime};",
            "fn f(t: Instant) { t.elapsed(); }",
        ] {
            assert_eq!(broken("crates/trust-core/src/a.rs", text).len(), 1, "{text}");
        }
        let handed = "fn f(now: std::time::Instant, elapsed: u64) {}";
        assert!(broken("crates/trust-core/src/a.rs", handed).is_empty());
    }

    #[test]
    fn protocols_take_their_atomics_from_primitive() {
        for text in ["use std::sync::atomic::AtomicU64;", "use std::sync::{Arc, atomic::*};"] {
            assert_eq!(broken("crates/transport-api/src/a.rs", text).len(), 1, "{text}");
        }
        assert!(broken("crates/transport-api/src/a.rs", "use primitive::sync::fence;").is_empty());
        // Other crates are free.
        assert!(broken("crates/apps/kv/src/a.rs", "use std::sync::atomic::AtomicU64;").is_empty());
    }

    #[test]
    fn tests_may_do_all_this() {
        for text in [
            "#[cfg(test)] mod tests { use std::net::TcpStream; }",
            "#[cfg(all(test, not(loom)))] #[allow(x)] mod tests { fn f() { Instant::now(); } }",
            "#[cfg(test)] use std::time::SystemTime;",
            "#[test] fn f() { std::thread::spawn(|| ()); }",
        ] {
            assert!(broken("crates/trust-core/src/a.rs", text).is_empty(), "{text}");
        }
        for text in [
            "#[cfg(not(test))] fn f() { Instant::now(); }",
            "#[cfg(any(test, all(unix)))] mod a { } fn f() { Instant::now(); }",
        ] {
            assert_eq!(broken("crates/trust-core/src/a.rs", text).len(), 1, "{text}");
        }
    }
}
