//! Text from elsewhere: whatever it holds, what is shown of it steers no terminal, leaves nothing else out, and stays as it is when it
//! is escaped again; a JSON document says the same; and a text that is cut is a beginning of it.

use hinterland_units::{Foreign, ForeignJson, cut, is_hidden};

/// One input: how long the text may be, and the text.
pub fn run(bytes: &[u8]) {
    let Some((length, bytes)) = bytes.split_first() else { return };
    let text = String::from_utf8_lossy(bytes);
    shown(&text);
    json(&text);
    let bytes_max = usize::from(*length);
    let short = cut(&text, bytes_max);
    assert!(short.len() <= bytes_max && text.starts_with(short.strip_suffix('…').unwrap_or(&short)));
    assert_eq!(short == text, text.len() <= bytes_max);
}

fn shown(text: &str) {
    let shown = Foreign(text).to_string();
    assert!(!shown.contains(is_hidden));
    assert_eq!(Foreign(&shown).to_string(), shown);
    if !text.contains(is_hidden) {
        assert_eq!(shown, text);
    }
    let mut rest = shown.chars();
    assert!(text.chars().filter(|c| !is_hidden(*c)).all(|c| rest.any(|shown| shown == c)));
}

/// Whoever reads the JSON has the text again. (One with backslashes says what they mean by itself.)
fn json(text: &str) {
    let json = ForeignJson(text).to_string();
    assert!(!json.contains(|c| is_hidden(c) && !"\n\r\t".contains(c)));
    if text.contains('\\') {
        return;
    }
    let mut units: Vec<u16> = Vec::new();
    for (number, part) in json.split("\\u").enumerate() {
        let (escaped, plain) = if number == 0 { ("", part) } else { part.split_at(4) };
        units.extend(u16::from_str_radix(escaped, 16).ok());
        units.extend(plain.encode_utf16());
    }
    assert_eq!(String::from_utf16(&units).ok().as_deref(), Some(text));
}
