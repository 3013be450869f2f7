//! The names in a source file, as they are written: `std::net::TcpStream`, every branch of a use
//! tree, `.elapsed` for a method. Test code is left out.
//!
//! Tokens are read, not a syntax tree, so that names inside macros count as well. Names in comments
//! and documentation do not.

use anyhow::Result;
use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

use crate::workspace::Source;

/// A name as it is written.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Name {
    /// Its segments; a glob is the segment `*`, and the name of a method has a leading dot.
    pub(super) path: Vec<String>,
    /// What `as` calls it from here on.
    pub(super) alias: Option<String>,
    /// The inline modules (`mod a { .. }`) around it, outermost first.
    pub(super) within: Vec<String>,
    /// Counted from 1.
    pub(super) line: usize,
}

/// All names of `source` outside its tests, in order.
pub(super) fn names(source: &Source) -> Result<Vec<Name>> {
    let mut reader = Reader::default();
    reader.collect(source.tokens()?, &[]);
    Ok(reader.names)
}

/// The modules that `source` declares in files of their own for tests only: `#[cfg(test)] mod a;`.
pub(super) fn test_modules(source: &Source) -> Result<Vec<String>> {
    let mut reader = Reader::default();
    reader.collect(source.tokens()?, &[]);
    Ok(reader.test_modules)
}

/// Whether only tests are in a file, by convention: `tests.rs`, folders called `tests`, and the
/// suite that transports must pass.
pub(super) fn is_test_file(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/") || path.contains("/conformance/")
}

#[derive(Default)]
struct Reader {
    names: Vec<Name>,
    test_modules: Vec<String>,
    within: Vec<String>,
}

impl Reader {
    /// Adds the names of `tokens`, those of test code left out; names at the top are those of a use
    /// tree below `prefix`.
    fn collect(&mut self, tokens: TokenStream, prefix: &[String]) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while at < tokens.len() {
            match &tokens[at] {
                TokenTree::Punct(p) if p.as_char() == '#' && is_for_tests(tokens.get(at + 1)) => {
                    let end = end_of_item(&tokens, at + 2);
                    self.test_modules.extend(declared_module(&tokens[at..end]));
                    at = end;
                }
                TokenTree::Ident(word) if word == "mod" && inline_module(&tokens[at..]) => {
                    let TokenTree::Group(body) = &tokens[at + 2] else { unreachable!() };
                    self.within.push(tokens[at + 1].to_string());
                    self.collect(body.stream(), &[]);
                    self.within.pop();
                    at += 3;
                }
                TokenTree::Ident(_) => at = self.collect_name(&tokens, at, prefix),
                TokenTree::Group(group) => {
                    self.collect(group.stream(), &[]);
                    at += 1;
                }
                TokenTree::Punct(p) if p.as_char() == '*' && !prefix.is_empty() => {
                    let line = p.span().start().line;
                    self.add([prefix, &["*".into()]].concat(), None, line);
                    at += 1;
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => at += 1,
            }
        }
    }

    /// Adds the name that starts at `at`; returns where it ends.
    fn collect_name(&mut self, tokens: &[TokenTree], mut at: usize, prefix: &[String]) -> usize {
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
                    self.collect(tree.stream(), &path);
                    at += 3;
                    break;
                }
                star if is_punct(star, '*') => {
                    path.push("*".into());
                    at += 3;
                    break;
                }
                _ => break,
            }
        }
        let alias = match &tokens[at..] {
            [TokenTree::Ident(word), TokenTree::Ident(alias), ..] if word == "as" => {
                Some(alias.to_string())
            }
            _ => None,
        };
        self.add(path, alias, line);
        at
    }

    fn add(&mut self, path: Vec<String>, alias: Option<String>, line: usize) {
        self.names.push(Name { path, alias, within: self.within.clone(), line });
    }
}

/// Whether `tokens` start with `mod name { .. }`.
fn inline_module(tokens: &[TokenTree]) -> bool {
    let [_, TokenTree::Ident(_), TokenTree::Group(body), ..] = tokens else { return false };
    body.delimiter() == Delimiter::Brace
}

/// The module that an item with its attributes declares in a file of its own.
fn declared_module(item: &[TokenTree]) -> Option<String> {
    let [.., TokenTree::Ident(word), TokenTree::Ident(name), end] = item else { return None };
    (word == "mod" && is_punct(end, ';')).then(|| name.to_string())
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

    fn source(text: &str) -> Source {
        Source { path: "a.rs".into(), text: text.into() }
    }

    /// The names that contain `::`, each as `within: path as alias`.
    fn read(text: &str) -> Vec<String> {
        let shown = |name: &Name| {
            let within: String = name.within.iter().map(|module| format!("{module}: ")).collect();
            let alias = name.alias.iter().map(|alias| format!(" as {alias}"));
            format!("{within}{}{}", name.path.join("::"), alias.collect::<String>())
        };
        let names = names(&source(text)).unwrap();
        names.iter().map(shown).filter(|name| name.contains("::")).collect()
    }

    #[test]
    fn use_trees_are_read_branch_by_branch() {
        let text = "use crate::{a::B, c::{self, d::*}};\nuse super::e as f;";
        let expected = ["crate::a::B", "crate::c::self", "crate::c::d::*", "crate::c"];
        assert_eq!(read(text), [&expected[..], &["super::e as f"]].concat());
        assert_eq!(read("use crate::{a::b, *};"), ["crate::a::b", "crate::*"]);
    }

    #[test]
    fn inline_modules_and_macros_are_read() {
        assert_eq!(
            read("mod a { mod b { use super::c; } }\nfn f() { crate::d() }"),
            ["a: b: super::c", "crate::d"]
        );
        assert_eq!(read("macro_rules! m { () => { $crate::a::f() } }"), ["crate::a::f"]);
    }

    #[test]
    fn comments_and_tests_are_not_read() {
        let text = "/// See [`crate::a`].\n// crate::b\n#[cfg(test)] mod tests { use crate::c; }\n\
                    #[cfg(all(test, x))]\nmod faults;\n#[cfg(any(test, x))] mod d;";
        assert_eq!(read(text), [""; 0]);
        assert_eq!(test_modules(&source(text)).unwrap(), ["faults"]);
        assert!(is_test_file("crates/trust-core/src/slot/tests.rs"));
        assert!(!is_test_file("crates/trust-core/src/contests.rs"));
    }
}
