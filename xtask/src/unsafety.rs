//! Finds every use of `unsafe` in a file, and whether a sentence beside it gives the reason.
//!
//! Clippy demands a `// SAFETY:` comment at blocks and implementations (`undocumented_unsafe_blocks`)
//! and a `# Safety` section at functions and traits (`missing_safety_doc`, with
//! `check-private-items`), wherever the comment may stand. What clippy cannot check is checked here:
//! code that no gate compiles with clippy (other processors and compilers, `--cfg`, the workspaces of
//! benchmarks and fuzz targets), attributes, foreign functions and assembly, and that a reason is a
//! sentence. The places for a reason are few, so that reading tokens is enough:
//!
//! ```text
//! unsafe { .. }   unsafe impl   unsafe extern "C" { .. }   #[unsafe(..)]   global_asm!
//!     `// SAFETY:` right above the line with the word, or above the first line of its statement
//! unsafe fn   unsafe trait
//!     a `# Safety` section in the documentation, or `// SAFETY:` as above
//! ```
//!
//! Tokens are read, not a syntax tree, so that uses inside macros count as well. Types such as
//! `unsafe fn(u8)` promise nothing and are no use of `unsafe`. Functions declared in an `unsafe extern`
//! block are covered by the reason of the block, those of an implemented trait by the trait's
//! documentation.

use std::fmt;

use anyhow::Result;
use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::workspace::Source;

/// The fewest words of a reason: "SAFETY: fine" does not count.
const WORDS: usize = 3;

/// A kind of use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Block,
    Impl,
    Function,
    Trait,
    Extern,
    Attribute,
    Assembly,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Block => "block",
            Kind::Impl => "impl",
            Kind::Function => "fn",
            Kind::Trait => "trait",
            Kind::Extern => "extern block",
            Kind::Attribute => "attribute",
            Kind::Assembly => "global_asm!",
        })
    }
}

/// One use of `unsafe`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unsafe {
    pub(crate) kind: Kind,
    /// Counted from 1.
    pub(crate) line: usize,
    pub(crate) justified: bool,
}

/// Every use of `unsafe` in `source`, in order.
pub(crate) fn scan(source: &Source) -> Result<Vec<Unsafe>> {
    let mut scan = Scan { lines: source.text.lines().collect(), found: Vec::new() };
    scan.group(source.tokens()?, Within::Other);
    Ok(scan.found)
}

/// What a block belongs to, where that matters to the functions in it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Within {
    /// `unsafe extern "C"`: functions are only declared.
    Extern,
    /// `impl Trait for Type`: functions have the contract that the trait gives them.
    TraitImpl,
    /// Anything else.
    Other,
}

struct Scan<'a> {
    lines: Vec<&'a str>,
    found: Vec<Unsafe>,
}

impl Scan<'_> {
    /// Looks through one level of tokens.
    fn group(&mut self, tokens: TokenStream, within: Within) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut begins = true;
        let (mut item, mut start) = (0, 0);
        for (at, token) in tokens.iter().enumerate() {
            let line = token.span().start().line;
            if begins {
                start = line;
            }
            begins = ends_statement(token);
            let declared = |kind: &Kind| within == Within::Extern && *kind == Kind::Function;
            if let Some(kind) = kind_at(&tokens, at).filter(|kind| !declared(kind)) {
                let inherited = within == Within::TraitImpl && kind == Kind::Function;
                let justified = inherited || self.is_justified(kind, start, line);
                self.found.push(Unsafe { kind, line, justified });
            }
            if let TokenTree::Group(group) = token {
                let is_block = group.delimiter() == Delimiter::Brace;
                let within = if is_block { within_of(&tokens[item..at]) } else { Within::Other };
                self.group(group.stream(), within);
            }
            // Commas end what a reason applies to, but not an item: `where A: B, C: D {`.
            if begins && !is_comma(token) {
                item = at + 1;
            }
        }
    }

    /// Whether a reason stands right above the statement that begins at `start`, or above `line`, or
    /// between them.
    fn is_justified(&self, kind: Kind, start: usize, line: usize) -> bool {
        let documented = matches!(kind, Kind::Function | Kind::Trait);
        [start, line].into_iter().any(|start| {
            let comments = self.comments(self.first_comment_above(start), line);
            gives_reason(&comments) || documented && has_safety_section(&comments)
        })
    }

    fn is_comment(&self, line: usize) -> bool {
        self.lines.get(line - 1).is_some_and(|text| text.trim_start().starts_with("//"))
    }

    fn first_comment_above(&self, line: usize) -> usize {
        (1..line).rev().take_while(|line| self.is_comment(*line)).last().unwrap_or(line)
    }

    /// The comments of the lines `first..=last`, slashes removed, an empty line between two that
    /// do not follow each other.
    fn comments(&self, first: usize, last: usize) -> Vec<&str> {
        let comment = |line: usize| {
            let text = self.lines.get(line - 1).copied().unwrap_or_default();
            let from =
                if self.is_comment(line) { text.find("//") } else { text.find("// SAFETY:") };
            from.map_or("", |from| text[from..].trim_start_matches(['/', '!']).trim())
        };
        (first..=last).map(comment).collect()
    }
}

/// Whether a paragraph starts with `SAFETY:` and goes on with a sentence.
fn gives_reason(comments: &[&str]) -> bool {
    let reason = |at: usize| {
        let first = comments[at].strip_prefix("SAFETY:")?;
        let rest = comments[at + 1..].iter().take_while(|line| !line.is_empty());
        Some(words(first) + rest.map(|line| words(line)).sum::<usize>() >= WORDS)
    };
    (0..comments.len()).any(|at| reason(at) == Some(true))
}

/// Whether there is a `# Safety` section that says something.
fn has_safety_section(comments: &[&str]) -> bool {
    let Some(at) = comments.iter().position(|line| *line == "# Safety") else { return false };
    let section = comments[at + 1..].iter().take_while(|line| !line.starts_with("# "));
    // "See [`Run`]." is enough: documentation has links.
    section.map(|line| words(line)).sum::<usize>() >= 2
}

fn words(text: &str) -> usize {
    text.split_whitespace().filter(|word| word.contains(char::is_alphanumeric)).count()
}

fn ends_statement(token: &TokenTree) -> bool {
    match token {
        TokenTree::Punct(punct) => matches!(punct.as_char(), ';' | ','),
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        TokenTree::Ident(_) | TokenTree::Literal(_) => false,
    }
}

fn is_comma(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == ',')
}

fn kind_at(tokens: &[TokenTree], at: usize) -> Option<Kind> {
    let TokenTree::Ident(word) = &tokens[at] else { return None };
    let next = tokens.get(at + 1);
    if word == "global_asm" {
        return matches!(next, Some(TokenTree::Punct(p)) if p.as_char() == '!')
            .then_some(Kind::Assembly);
    }
    if word != "unsafe" {
        return None;
    }
    match next {
        Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis => {
            Some(Kind::Attribute)
        }
        Some(TokenTree::Ident(word)) if word == "impl" => Some(Kind::Impl),
        Some(TokenTree::Ident(word)) if word == "trait" || word == "auto" => Some(Kind::Trait),
        Some(TokenTree::Ident(word)) if word == "fn" => function(tokens.get(at + 2)),
        Some(TokenTree::Ident(word)) if word == "extern" => {
            let abi = matches!(tokens.get(at + 2), Some(TokenTree::Literal(_)));
            let after = at + 2 + usize::from(abi);
            match tokens.get(after) {
                Some(TokenTree::Ident(word)) if word == "fn" => function(tokens.get(after + 1)),
                _ => Some(Kind::Extern),
            }
        }
        // A block; in a macro also what it expands to, which is treated as one.
        _ => Some(Kind::Block),
    }
}

/// What `unsafe fn` is, by what follows: a parenthesis follows only in a type.
fn function(next: Option<&TokenTree>) -> Option<Kind> {
    (!matches!(next, Some(TokenTree::Group(_)))).then_some(Kind::Function)
}

/// What a block belongs to, by the tokens of its statement in front of it.
fn within_of(before: &[TokenTree]) -> Within {
    let is = |token: &TokenTree, wanted: &str| matches!(token, TokenTree::Ident(i) if i == wanted);
    let without_abi = match before {
        [rest @ .., TokenTree::Literal(_)] => rest,
        all => all,
    };
    if without_abi.last().is_some_and(|last| is(last, "extern")) {
        return Within::Extern;
    }
    // In `impl<F> A where F: for<'a> Fn(&'a u8)` the `for` implements nothing.
    let implements = |pair: &[TokenTree]| {
        is(&pair[0], "for") && !matches!(&pair[1], TokenTree::Punct(p) if p.as_char() == '<')
    };
    if before.iter().any(|token| is(token, "impl")) && before.windows(2).any(implements) {
        return Within::TraitImpl;
    }
    Within::Other
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<(Kind, usize, bool)> {
        let source = Source { path: "a.rs".into(), text: text.into() };
        scan(&source).unwrap().iter().map(|u| (u.kind, u.line, u.justified)).collect()
    }

    fn justified(text: &str) -> bool {
        let found = found(text);
        assert!(!found.is_empty(), "{text}");
        found.iter().all(|(_, _, justified)| *justified)
    }

    #[test]
    fn every_kind_is_found() {
        let text = "#[unsafe(no_mangle)]\nunsafe extern \"C\" fn a() {}\nunsafe impl Send for A {}\n\
            unsafe trait B {}\nunsafe extern \"C\" { unsafe fn c(); }\nglobal_asm!(\"nop\");\n\
            fn d() { unsafe { e() } }";
        let kinds: Vec<Kind> = found(text).iter().map(|(kind, _, _)| *kind).collect();
        use Kind::*;
        assert_eq!(kinds, [Attribute, Function, Impl, Trait, Extern, Assembly, Block]);
        assert!(found(text).iter().all(|(_, _, justified)| !justified));
    }

    #[test]
    fn types_comments_and_strings_are_none() {
        let text = "// unsafe { }\n/// unsafe impl\nstruct A { f: unsafe fn(u8), \
            g: unsafe extern \"C\" fn(u8) }\nconst S: &str = \"unsafe {}\"; #![forbid(unsafe_code)]";
        assert_eq!(found(text), []);
    }

    #[test]
    fn macros_are_looked_into() {
        let text = "macro_rules! m { ($e:expr) => {\n unsafe { $e } } }\nm!({ unsafe { f() } });";
        assert_eq!(found(text), [(Kind::Block, 2, false), (Kind::Block, 3, false)]);
    }

    #[test]
    fn a_reason_may_stand_above_the_statement() {
        for text in [
            "fn f() {\n  // SAFETY: the pointer comes from a reference.\n  unsafe { *p }\n}",
            "fn f() {\n  // SAFETY: the pointer comes\n  // from a reference.\n  let x =\n    unsafe { *p };\n}",
            "fn f() {\n  let x =\n    g(1,\n      // SAFETY: the pointer comes from a reference.\n      unsafe { *p });\n}",
            "fn f() {\n  // SAFETY: the pointer comes from a reference.\n  let x = A { b: unsafe { *p }, c };\n}",
            "fn f() {\n  #[cfg(x)]\n  // SAFETY: the pointer comes from a reference.\n  let x = unsafe { *p };\n}",
            "// SAFETY: there is only one of them.\n#[cfg(\n  x\n)]\nunsafe impl Send for A {}",
            "match a {\n  // SAFETY: the pointer comes from a reference.\n  B => unsafe { *p },\n}",
            "// SAFETY: no other function has this name.\n#[unsafe(no_mangle)]\nfn f() {}",
        ] {
            assert!(justified(text), "{text}");
        }
    }

    #[test]
    fn a_reason_far_from_the_word_is_refused() {
        for text in [
            "fn f() {\n  // SAFETY: the pointer comes from a reference.\n  let x =\n    g(1,\n      unsafe { *p });\n}",
            "fn f() { unsafe {\n // SAFETY: the pointer is never null.\n *p } }",
            "fn f() { unsafe {\n g();\n // SAFETY: the pointer is never null.\n } }",
            "fn f() { if g() { unsafe { *p } }\n // SAFETY: the pointer is never null.\n }",
        ] {
            assert!(!justified(text), "{text}");
        }
    }

    #[test]
    fn a_reason_is_a_sentence_in_its_place() {
        for text in [
            "fn f() { unsafe { *p } }",
            "fn f() {\n  // SAFETY: fine\n  unsafe { *p }\n}",
            "fn f() {\n  // SAFETY:\n  unsafe { *p }\n}",
            "fn f() {\n  // The pointer comes from a reference.\n  unsafe { *p }\n}",
            "// SAFETY: the pointer comes from a reference.\n\nunsafe impl Send for A {}",
            "// SAFETY: the pointer comes from a reference.\nfn f() {\n  g();\n  unsafe { *p }\n}",
            "fn f() {\n  // SAFETY: this is for the first.\n  unsafe { *p };\n  g();\n  unsafe { *q };\n}",
        ] {
            assert!(!justified(text), "{text}");
        }
    }

    #[test]
    fn a_trait_speaks_for_its_implementations() {
        assert!(justified("impl<T> A for B<T>\nwhere\n  T: C,\n{\n  unsafe fn f() {}\n}"));
        assert!(!justified(
            "impl<F> A<F>\nwhere\n  F: for<'a> Fn(&'a u8),\n{\n  unsafe fn f() {}\n}"
        ));
        assert!(!justified("fn g() {\n  for x in y {\n    unsafe fn f() {}\n  }\n}"));
        let body = "impl A for B {\n  unsafe fn f() {\n    unsafe { g() }\n  }\n}";
        assert_eq!(found(body), [(Kind::Function, 2, true), (Kind::Block, 3, false)]);
    }

    #[test]
    fn functions_and_traits_are_documented() {
        assert!(justified(
            "/// Reads.\n///\n/// # Safety\n/// The pointer must be valid.\n#[inline]\npub unsafe fn f() {}"
        ));
        assert!(justified("/// # Safety\n/// It must never move again.\nunsafe trait A {}"));
        assert!(justified("// SAFETY: hands on what the caller promises.\nunsafe fn alloc() {}"));
        assert!(!justified(
            "/// # Safety\n/// # Panics\n/// Never does in practice.\nunsafe fn f() {}"
        ));
        assert!(justified("/// # Safety\n/// See [`A`].\nunsafe fn f() {}"));
        assert!(!justified("/// Reads what is there.\nunsafe fn f() {}"));
    }
}
