//! Text from elsewhere: a node's words, a name that a program chose, a process's name. It may hold escape sequences, which steer
//! the terminal that shows them, line breaks, which make one line of a log two, and signs that turn the direction of writing or are
//! not seen at all, so that a text looks like another one.
//!
//! One rule says which characters are shown as what they are ([`is_hidden`]); all others are written as Rust writes them in a
//! literal: `\n`, `\u{1b}`, `\u{202e}`. A text without hidden characters stays as it is, so escaping an escaped text changes nothing;
//! what was there cannot be told for certain from a text that had backslashes, and need not be.
//!
//! Sources: Unicode categories Cc, Cf, Zl and Zp; UAX #9 (bidirectional controls); ECMA-48 (C0 and C1 controls).

use std::fmt;

/// Whether a character is shown escaped: a control, a direction mark, or one that has no width of its own.
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{890}'..='\u{891}' | '\u{8e2}'
            | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}' | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// A text from elsewhere, on its way to people: its hidden characters are escaped where it is written.
#[derive(Clone, Copy, Debug)]
pub struct Foreign<'a>(pub &'a str);

impl fmt::Display for Foreign<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        escape(self.0, f, |c, f| match c {
            '\n' => f.write_str("\\n"),
            '\r' => f.write_str("\\r"),
            '\t' => f.write_str("\\t"),
            other => write!(f, "{}", other.escape_unicode()),
        })
    }
}

/// A JSON document, on its way to a terminal or a log: hidden characters, which stand only within its texts, are written as JSON
/// writes them, so that whoever reads the document finds the same texts. Line breaks and blanks between its parts stay.
#[derive(Clone, Copy, Debug)]
pub struct ForeignJson<'a>(pub &'a str);

impl fmt::Display for ForeignJson<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        escape(self.0, f, |c, f| match c {
            '\n' | '\r' | '\t' => write!(f, "{c}"),
            other => other.encode_utf16(&mut [0; 2]).iter().try_for_each(|unit| write!(f, "\\u{unit:04x}")),
        })
    }
}

/// Writes the text, hidden characters as `write` has it.
fn escape(
    text: &str,
    f: &mut fmt::Formatter<'_>,
    write: impl Fn(char, &mut fmt::Formatter<'_>) -> fmt::Result,
) -> fmt::Result {
    let mut rest = text;
    while let Some(at) = rest.find(is_hidden) {
        let (plain, hidden) = rest.split_at(at);
        f.write_str(plain)?;
        let mut hidden = hidden.chars();
        hidden.next().map_or(Ok(()), |c| write(c, f))?;
        rest = hidden.as_str();
    }
    f.write_str(rest)
}

/// What stands at the end of a text that was cut.
const CUT: &str = "…";

/// The text's beginning that fits into `bytes_max` bytes: cut after a character, and marked. It is empty where not even the mark fits.
pub fn cut(text: &str, bytes_max: usize) -> std::borrow::Cow<'_, str> {
    if text.len() <= bytes_max {
        return text.into();
    }
    let Some(room) = bytes_max.checked_sub(CUT.len()) else { return "".into() };
    let end = (0..=room).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    [&text[..end], CUT].concat().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_a_terminal_or_is_not_seen_is_escaped() {
        for (text, shown) in [
            ("plain, é, 日本, 🦀, \\n", "plain, é, 日本, 🦀, \\n"),
            ("\x1b[31mred\x07", "\\u{1b}[31mred\\u{7}"),
            ("one\r\n\ttwo\0", "one\\r\\n\\ttwo\\u{0}"),
            ("c1 \u{9b}2J \u{85}", "c1 \\u{9b}2J \\u{85}"),
            ("\u{202e}txt.exe\u{2066}", "\\u{202e}txt.exe\\u{2066}"),
            ("ro\u{200b}ot \u{feff}\u{ad}", "ro\\u{200b}ot \\u{feff}\\u{ad}"),
            ("\u{2028}line\u{e0041}", "\\u{2028}line\\u{e0041}"),
        ] {
            assert_eq!(Foreign(text).to_string(), shown);
        }
    }

    #[test]
    fn json_stays_the_same_json() {
        let json = "{\n  \"name\": \"\u{7f}\u{9b}\u{202e}\u{e0041}é\"\n}\n";
        assert_eq!(ForeignJson(json).to_string(), "{\n  \"name\": \"\\u007f\\u009b\\u202e\\udb40\\udc41é\"\n}\n");
    }

    #[test]
    fn a_text_is_cut_after_a_character_and_says_so() {
        assert_eq!(cut("whole", 5), "whole");
        assert_eq!(cut("too long", 6), "too…");
        assert_eq!(cut("éééé", 7), "éé…");
        assert_eq!(cut("éééé", 6), "é…");
        assert_eq!(cut("🦀🦀", 6), "…");
        assert_eq!(cut("long", 2), "");
    }

    /// Any text, from a seed: what is shown has no hidden character, every other one is there in order, escaping twice changes nothing,
    /// and a cut text is a beginning of it.
    #[test]
    fn of_any_text_nothing_hidden_is_left() {
        let mut rng = crate::Rng(1);
        let mut random = |below: u32| rng.below_u32(below);
        // Small ones, those of the ranges above, and any at all.
        let tops = [0x20, 0x100, 0x700, 0x2070, 0xffff, 0x0011_0000];
        for round in 0..20_000 {
            let length = random(40);
            let text: String = (0..length)
                .filter_map(|_| {
                    let top = tops[random(6) as usize];
                    char::from_u32(random(top))
                })
                .collect();
            let shown = Foreign(&text).to_string();
            assert!(!shown.contains(is_hidden), "round {round}: {text:?}");
            assert_eq!(Foreign(&shown).to_string(), shown, "round {round}: {text:?}");
            let mut rest = shown.chars();
            let seen = text.chars().filter(|c| !is_hidden(*c)).all(|c| rest.any(|shown| shown == c));
            assert!(seen, "round {round}: {text:?} became {shown:?}");
            let json = ForeignJson(&text).to_string();
            assert!(!json.contains(|c| is_hidden(c) && !"\n\r\t".contains(c)), "round {round}: {text:?}");
            let bytes_max = random(60) as usize;
            let short = cut(&text, bytes_max);
            let beginning = short.strip_suffix(CUT).unwrap_or(&short);
            assert!(short.len() <= bytes_max && text.starts_with(beginning), "round {round}: {text:?}");
            assert_eq!(short == text, text.len() <= bytes_max, "round {round}: {text:?}");
        }
    }
}
