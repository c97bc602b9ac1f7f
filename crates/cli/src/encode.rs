//! Bytes and words as other programs read them.

/// Bytes as two digits each.
pub fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A word as a shell reads it back.
pub fn shell_word(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:=,@%+".contains(&byte);
    if !word.is_empty() && word.bytes().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As far as a shell is here to read it.
    #[test]
    fn words_come_back_from_a_shell_as_they_were() {
        for word in ["plain", "", "a b", "it's", "$(touch x)", "\"", "a\nb", "*", "~", "ü", "\\", "#x"] {
            let script = format!("printf %s {}", shell_word(word));
            let output = std::process::Command::new("sh").args(["-c", &script]).output().expect("a shell");
            assert_eq!(String::from_utf8_lossy(&output.stdout), word);
        }
    }
}
