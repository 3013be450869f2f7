//! What the sources of some crates may not name, whatever their manifests allow: the delegation
//! core and the control plane have no socket, clock or thread of their own, and protocols take their atomics from
//! `primitive::sync`, so that loom explores what ships.
//!
//! Clippy's bans cannot say this: they see through re-exports (`primitive::sync::AtomicU64` is the
//! banned original) and do not tell tests from the rest. So names are read as they are written.

use crate::workspace::{Source, Workspace};
use anyhow::{Result, ensure};
use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// Names that the sources of some crates may not use outside their tests.
struct Ban {
    /// Folders of the crates.
    crates: &'static [&'static str],
    /// The one file to which it does not apply.
    except: &'static str,
    /// Paths; a longer path that contains one is banned as well. A leading dot is a method call.
    paths: &'static [&'static [&'static str]],
    /// What to do instead.
    instead: &'static str,
}

const BANS: &[Ban] = &[
    Ban {
        crates: &["crates/transport-control", "crates/trust-core"],
        except: "",
        paths: &[&["std", "net"], &["unix", "net"]],
        instead: "it reaches other hosts through what it is handed",
    },
    Ban {
        crates: &["crates/transport-control", "crates/trust-core"],
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
        crates: &["crates/transport-control", "crates/trust-core"],
        except: "",
        paths: &[&["Instant", "now"], &[".elapsed"], &["SystemTime"]],
        instead: "it is handed the time, so that a simulator can make it up",
    },
    Ban {
        crates: &[
            "crates/primitive",
            "crates/transport-api",
            "crates/transport-control",
            "crates/trust-core",
        ],
        except: "crates/primitive/src/sync.rs",
        paths: &[&["sync", "atomic"]],
        instead: "take atomics from `primitive::sync`, which loom can replace",
    },
];

/// A name as it is written: `std::net::TcpStream`, or `.elapsed` for a method.
#[derive(Debug, PartialEq, Eq)]
struct Name {
    path: Vec<String>,
    line: usize,
}

/// Adds what breaks a ban to `broken`; says what was looked at, and fails if that was nothing.
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
            ensure!(seen > 0, "{folder}/src has no code: there was nothing to look at");
            names += seen;
        }
    }
    Ok(format!("{names} names in {files} readings of a file keep the {} bans", BANS.len()))
}

/// Files that only tests are in, by convention: `tests.rs`, folders called `tests`, and the suite
/// that transports are held to.
fn is_test_file(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/") || path.contains("/conformance/")
}

fn check_source(ban: &Ban, source: &Source, broken: &mut Vec<String>) -> Result<usize> {
    let mut names = Vec::new();
    collect(source.tokens()?, &[], &mut names);
    let mut last = 0;
    for Name { path, line } in &names {
        let hits = |banned: &&[&str]| path.windows(banned.len()).any(|part| part == *banned);
        // One complaint a line: the branches of a use tree all contain what stands before them.
        if *line != last && ban.paths.iter().any(hits) {
            last = *line;
            let (file, name) = (&source.path, path.join("::"));
            broken.push(format!("{file}:{line}: names {name}: {}", ban.instead));
        }
    }
    Ok(names.len())
}

/// Adds the names of `tokens` to `out`, those of test code left out; names at the top are those of
/// a use tree below `prefix`.
fn collect(tokens: TokenStream, prefix: &[String], out: &mut Vec<Name>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut at = 0;
    while at < tokens.len() {
        match &tokens[at] {
            TokenTree::Punct(p) if p.as_char() == '#' && is_for_tests(tokens.get(at + 1)) => {
                at = end_of_item(&tokens, at + 2);
            }
            TokenTree::Ident(_) => at = collect_name(&tokens, at, prefix, out),
            TokenTree::Group(group) => {
                collect(group.stream(), &[], out);
                at += 1;
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => at += 1,
        }
    }
}

/// Adds the name that starts at `at`; returns where it ends.
fn collect_name(
    tokens: &[TokenTree],
    mut at: usize,
    prefix: &[String],
    out: &mut Vec<Name>,
) -> usize {
    let line = tokens[at].span().start().line;
    let mut path = prefix.to_vec();
    let is_method = at > 0 && is_punct(&tokens[at - 1], '.');
    path.push(format!("{}{}", if is_method { "." } else { "" }, tokens[at]));
    at += 1;
    while let [a, b, next, ..] = &tokens[at..]
        && is_punct(a, ':')
        && is_punct(b, ':')
    {
        match next {
            TokenTree::Ident(ident) => {
                path.push(ident.to_string());
                at += 3;
            }
            TokenTree::Group(tree) if tree.delimiter() == Delimiter::Brace => {
                collect(tree.stream(), &path, out);
                at += 3;
                break;
            }
            _ => break,
        }
    }
    out.push(Name { path, line });
    at
}

fn is_punct(token: &TokenTree, wanted: char) -> bool {
    matches!(token, TokenTree::Punct(p) if p.as_char() == wanted)
}

/// Whether this is the bracket of `#[cfg(test)]`, `#[cfg(all(test, ...))]` or `#[test]`.
fn is_for_tests(bracket: Option<&TokenTree>) -> bool {
    let Some(TokenTree::Group(bracket)) = bracket else { return false };
    let inside: Vec<TokenTree> = bracket.stream().into_iter().collect();
    match inside.as_slice() {
        [TokenTree::Ident(name)] => name == "test",
        [TokenTree::Ident(name), TokenTree::Group(condition)] => {
            name == "cfg" && demands_test(condition)
        }
        _ => false,
    }
}

fn demands_test(condition: &Group) -> bool {
    let tokens: Vec<TokenTree> = condition.stream().into_iter().collect();
    match tokens.as_slice() {
        [TokenTree::Ident(name), TokenTree::Group(all)] if name == "all" => demands_test(all),
        _ => {
            let mut terms = tokens.split(|token| is_punct(token, ','));
            terms.any(|term| matches!(term, [TokenTree::Ident(name)] if name == "test"))
        }
    }
}

/// Where the item ends whose attributes and keywords start at `at`: after its block or semicolon.
fn end_of_item(tokens: &[TokenTree], at: usize) -> usize {
    let ends = |token: &TokenTree| match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        token => is_punct(token, ';'),
    };
    tokens[at..].iter().position(ends).map_or(tokens.len(), |offset| at + offset + 1)
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
        assert!(broken("crates/apps/src/a.rs", "use std::sync::atomic::AtomicU64;").is_empty());
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
        assert!(is_test_file("crates/trust-core/src/slot/tests.rs"));
        assert!(!is_test_file("crates/trust-core/src/contests.rs"));
    }
}
