//! Looks for a secret in what a program says, however it is written.

/// Bytes of a secret that give it away: parts of this length, which nothing else has by chance.
const PART_BYTES: usize = 12;

/// A secret, in every form in which it is looked for.
pub struct Needles(Vec<(String, Vec<u8>)>);

impl Needles {
    /// Of a secret called `name`: its bytes, in hexadecimal and in base64, parts of each too.
    pub fn of(name: &str, secret: &[u8]) -> Needles {
        let mut needles = Vec::new();
        for (at, part) in secret.chunks_exact(PART_BYTES).enumerate() {
            let mut add = |form: &str, bytes: Vec<u8>| needles.push((format!("{name}, part {at}, {form}"), bytes));
            add("as it is", part.to_vec());
            add("hexadecimal", hex::encode(part).into());
            add("hexadecimal in capitals", hex::encode_upper(part).into());
            let list = |numbers: Vec<String>, between: &str| numbers.join(between).into_bytes();
            add("as a list", list(part.iter().map(u8::to_string).collect(), ", "));
            add("as a list without spaces", list(part.iter().map(u8::to_string).collect(), ","));
            add("as a list of hexadecimal numbers", list(part.iter().map(|byte| format!("{byte:x}")).collect(), ", "));
            add("hexadecimal with colons", list(part.iter().map(|byte| format!("{byte:02x}")).collect(), ":"));
            // Three bytes are four characters, so where the part begins in what was encoded matters.
            for before in 0..3 {
                let inner = &part[before..];
                let inner = &inner[..inner.len() / 3 * 3];
                add("base64", base64(inner, b'+', b'/').into());
                add("base64 for URLs", base64(inner, b'-', b'_').into());
            }
        }
        Needles(needles)
    }

    /// What of it is to be found in `hay`.
    pub fn find(&self, hay: &[u8]) -> Option<&str> {
        let is_in = |needle: &[u8]| hay.windows(needle.len()).any(|window| window == needle);
        self.0.iter().find(|(_, needle)| is_in(needle)).map(|(name, _)| &**name)
    }
}

/// RFC 4648 §4 and §5, of whole groups of three bytes.
fn base64(bytes: &[u8], plus: u8, slash: u8) -> String {
    let digit = |value: u32| match u8::try_from(value & 63).unwrap_or(0) {
        value @ 0..26 => b'A' + value,
        value @ 26..52 => b'a' + value - 26,
        value @ 52..62 => b'0' + value - 52,
        62 => plus,
        _ => slash,
    };
    let group = |group: &[u8; 3]| {
        let bits = u32::from_be_bytes([0, group[0], group[1], group[2]]);
        [18, 12, 6, 0].map(|shift| char::from(digit(bits >> shift)))
    };
    bytes.as_chunks::<3>().0.iter().flat_map(group).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_a_secret_in_every_form_and_nothing_else() {
        let secret: Vec<u8> = (0..48).map(|n: u8| n.wrapping_mul(101).wrapping_add(7)).collect();
        let needles = Needles::of("secret", &secret);
        let in_words = |bytes: Vec<u8>| [b"before ".to_vec(), bytes, b" after".to_vec()].concat();
        assert_eq!(needles.find(b"nothing of it"), None);
        assert!(needles.find(&in_words(secret.clone())).is_some());
        assert!(needles.find(&in_words(hex::encode(&secret).into())).is_some());
        assert!(needles.find(&in_words(format!("{secret:?}").into())).is_some());
        assert!(needles.find(&in_words(format!("{secret:x?}").into())).is_some());
        for before in 0..3 {
            let longer = [vec![0xa5; before], secret.clone()].concat();
            let found = needles.find(&in_words(base64(&longer, b'+', b'/').into()));
            assert!(found.is_some_and(|name| name.contains("base64")), "{before}: {found:?}");
        }
        // A part alone.
        assert!(needles.find(&secret[12..30]).is_some());
        assert_eq!(base64(b"Hinterland, far memory??", b'+', b'/'), "SGludGVybGFuZCwgZmFyIG1lbW9yeT8/");
    }
}
