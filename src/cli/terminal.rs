//! Text of others on the terminal of a person.

/// Text without control characters: a server must not move the cursor, colour lies or ring the bell. Line ends
/// and tabs stay.
pub(super) fn plain(text: &str) -> String {
    let shown = |c: char| {
        if c.is_control() && c != '\n' && c != '\t' {
            '\u{fffd}'
        } else {
            c
        }
    };
    // Bidirectional overrides can make one address look like another.
    let is_deceptive = |c: char| matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars()
        .map(|c| {
            if is_deceptive(c) {
                '\u{fffd}'
            } else {
                shown(c)
            }
        })
        .collect()
}

/// The same on one line: what stands beside our own words must not look like them.
pub(super) fn line(text: &str) -> String {
    plain(text).replace(['\n', '\t'], " ")
}

/// The same, its further lines set in, so that none of them looks like a line of our own.
pub(super) fn indented(text: &str) -> String {
    plain(text).replace('\n', "\n    ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_of_the_server_do_nothing() {
        assert_eq!(
            plain("a\u{1b}[31mb\u{7}\r\n\tc"),
            "a\u{fffd}[31mb\u{fffd}\u{fffd}\n\tc"
        );
        assert_eq!(
            plain("https://\u{202e}moc.live"),
            "https://\u{fffd}moc.live"
        );
        assert_eq!(indented("one\ntwo"), "one\n    two");
        assert_eq!(line("Really?\nIt is safe."), "Really? It is safe.");
    }
}
