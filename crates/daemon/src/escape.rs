//! Escapes untrusted text for a terminal: control sequences in it would otherwise control the
//! terminal.
//!
//! Programs, users and hosts choose names, messages and output. Control characters in them could move
//! the cursor and overwrite text, or set the clipboard or the window's title. Characters that change
//! the direction of text could make it read as other text.
//!
//! | Function | For | What stays |
//! |---|---|---|
//! | [`name`] | names, reasons, cells of tables | nothing |
//! | [`line`] | a line of output in a report | tabs |
//! | [`text`] | messages of several lines | tabs, ends of lines |
//! | [`lines`] | output of programs on a terminal | tabs, ends of lines, colours if wanted |
//! | [`json`] | JSON | all, escaped as JSON does |

use std::borrow::Cow;
use std::fmt::Write;

/// Bytes of the longest sequence that counts as a colour.
const LONGEST_COLOUR: usize = 32;
const ESCAPE: u8 = 0x1b;
/// Ends the effect of sequences for colours.
const RESET: &[u8] = b"\x1b[0m";

/// A name or a message, in one line: control characters (the end of a line among them) and changes
/// of direction are written as `\x1b`, `\n` or `\u{202e}`.
pub(crate) fn name(text: &str) -> Cow<'_, str> {
    if !text.contains(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    text.chars().for_each(|character| show(character, &mut shown));
    Cow::Owned(shown)
}

/// A line of output: as [`name`], but tabs stay.
pub(crate) fn line(text: &str) -> String {
    let fields: Vec<_> = text.split('\t').map(name).collect();
    fields.join("\t")
}

/// Several lines: as [`line`], but their ends stay.
pub(crate) fn text(text: &str) -> String {
    String::from_utf8_lossy(&lines(text.as_bytes(), Colours::Shown)).into_owned()
}

/// How to treat sequences that change how text looks (SGR: `ESC [ ... m`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Colours {
    /// They are passed on, and end with their line.
    Passed,
    /// They are shown as text, like all others.
    Shown,
}

/// Output of a program, as whole lines: ends of lines (`\n` and `\r\n`) and tabs stay; all other
/// control characters, changes of direction and bytes that are not UTF-8 are shown as text.
pub(crate) fn lines(output: &[u8], colours: Colours) -> Vec<u8> {
    let mut shown = Vec::with_capacity(output.len() + 64);
    for line in output.split_inclusive(|byte| *byte == b'\n') {
        let end = [&b"\r\n"[..], b"\n"].into_iter().find(|end| line.ends_with(end));
        let (line, end) = line.split_at(line.len() - end.map_or(0, <[u8]>::len));
        if show_line(line, colours, &mut shown) {
            shown.extend_from_slice(RESET);
        }
        shown.extend_from_slice(end);
    }
    shown
}

/// Appends a line without its end. Returns whether it has colours that were passed on.
fn show_line(mut line: &[u8], colours: Colours, shown: &mut Vec<u8>) -> bool {
    let mut has_colours = false;
    while !line.is_empty() {
        let escape = line.iter().position(|byte| *byte == ESCAPE && colours == Colours::Passed);
        let (before, rest) = line.split_at(escape.unwrap_or(line.len()));
        show_bytes(before, shown);
        line = rest;
        if let Some(length) = colour(line) {
            shown.extend_from_slice(&line[..length]);
            has_colours = true;
            line = &line[length..];
        } else if let Some((escape, rest)) = line.split_first() {
            show_bytes(&[*escape], shown);
            line = rest;
        }
    }
    has_colours
}

/// The length of the sequence for a colour that `bytes` start with.
fn colour(bytes: &[u8]) -> Option<usize> {
    let parameters = bytes.strip_prefix(b"\x1b[")?;
    let is_parameter = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b';' | b':');
    let length = parameters.iter().take(LONGEST_COLOUR).position(|byte| !is_parameter(byte))?;
    (parameters[length] == b'm').then_some(length + 3)
}

fn show_bytes(bytes: &[u8], shown: &mut Vec<u8>) {
    for chunk in bytes.utf8_chunks() {
        let mut text = String::with_capacity(chunk.valid().len());
        for character in chunk.valid().chars() {
            match character {
                '\t' => text.push('\t'),
                _ => show(character, &mut text),
            }
        }
        // Some terminals treat single bytes from 0x80 to 0x9f as control characters.
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
        shown.extend_from_slice(text.as_bytes());
    }
}

fn show(character: char, shown: &mut String) {
    let _ = match character {
        '\n' => shown.write_str("\\n"),
        '\r' => shown.write_str("\\r"),
        '\t' => shown.write_str("\\t"),
        _ if !is_unsafe(character) => shown.write_char(character),
        '\0'..='\x7f' => write!(shown, "\\x{:02x}", character as u32),
        _ => write!(shown, "\\u{{{:x}}}", character as u32),
    };
}

/// Control characters (C0, DEL and C1), those that end lines, and those that change the direction
/// of text.
fn is_unsafe(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
}

/// JSON in which the characters that [`name`] escapes are escaped as JSON does, so that its value is
/// the same. Only strings contain such characters.
pub(crate) fn json(json: &str) -> String {
    let mut shown = String::with_capacity(json.len());
    for character in json.chars() {
        // JSON text itself is in lines.
        if is_unsafe(character) && character != '\n' {
            let _ = write!(shown, "\\u{:04x}", character as u32);
        } else {
            shown.push(character);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(output: &[u8], colours: Colours) -> String {
        String::from_utf8(lines(output, colours)).unwrap()
    }

    #[test]
    fn what_drives_a_terminal_is_shown_in_names() {
        assert_eq!(name("kv-1.2 \u{e4}\u{4e16}"), "kv-1.2 \u{e4}\u{4e16}");
        let cases = [
            ("\x1b[2J", "\\x1b[2J"),
            ("a\nb\tc\r", "a\\nb\\tc\\r"),
            ("\u{9b}2J\x7f", "\\u{9b}2J\\x7f"),
            ("user\u{202e}nimda", "user\\u{202e}nimda"),
            ("\u{2066}x\u{2069}\u{200f}", "\\u{2066}x\\u{2069}\\u{200f}"),
        ];
        for (text, expected) in cases {
            assert_eq!(name(text), expected);
        }
    }

    #[test]
    fn lines_stay_and_everything_else_is_shown() {
        let output = b"a\tb\r\nc\rd\x1b]52;c;aGk=\x07\n\x9b2J \xc2\x9b2J \x1b[31mred\x1b[0m";
        let expected = "a\tb\r\nc\\rd\\x1b]52;c;aGk=\\x07\n\\x9b2J \\u{9b}2J \\x1b[31mred\\x1b[0m";
        assert_eq!(shown(output, Colours::Shown), expected);
        assert_eq!(text("one\ntwo\x1b"), "one\ntwo\\x1b");
        assert_eq!(line("\tone\ntwo\x1b"), "\tone\\ntwo\\x1b");
    }

    #[test]
    fn colours_pass_if_they_may_and_end_with_their_line() {
        let output = b"\x1b[1;38:5:9mred\nplain\n\x1b[2J\x1b[\x1b[31m\x1b[9999999999999999999999999999999999m";
        let expected = "\x1b[1;38:5:9mred\x1b[0m\nplain\n\\x1b[2J\\x1b[\x1b[31m\
                        \\x1b[9999999999999999999999999999999999m\x1b[0m";
        assert_eq!(shown(output, Colours::Passed), expected);
    }

    #[test]
    fn json_means_the_same() {
        let value = serde_json::json!({ "name": "a\u{9b}\u{202e}\x1b\x7f\n" });
        let text = json(&serde_json::to_string_pretty(&value).unwrap());
        assert!(!text.contains(|c| is_unsafe(c) && c != '\n'), "{text:?}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
    }

    proptest! {
        #[test]
        fn any_bytes_leave_nothing_that_drives_a_terminal(
            output in proptest::collection::vec(
                prop_oneof![any::<u8>(), Just(0x1b), Just(b'['), Just(b'm'), Just(0xc2), Just(0x9b)],
                0..200,
            ),
        ) {
            let text = shown(&output, Colours::Shown);
            let is_kept = |c: char| matches!(c, '\n' | '\t' | '\r');
            prop_assert!(!text.contains(|c| is_unsafe(c) && !is_kept(c)), "{text:?}");
            prop_assert!(!text.replace("\r\n", "\n").contains('\r'), "{text:?}");
            // Nor do colours bring anything else along.
            let coloured = shown(&output, Colours::Passed);
            for (at, _) in coloured.match_indices('\x1b') {
                prop_assert!(colour(&coloured.as_bytes()[at..]).is_some(), "{coloured:?}");
            }
        }
    }
}
