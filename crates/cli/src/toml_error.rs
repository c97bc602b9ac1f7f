//! What is wrong with TOML that people wrote, with its line.

/// What the parser says, without its picture of the line.
pub fn describe(text: &str, error: &toml::de::Error) -> String {
    let what = error.message().lines().collect::<Vec<_>>().join(" ");
    let Some(span) = error.span() else { return what };
    let before = &text.as_bytes()[..span.start.min(text.len())];
    format!("line {}: {what}", before.iter().filter(|byte| **byte == b'\n').count() + 1)
}
