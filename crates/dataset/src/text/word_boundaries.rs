//! Cuts texts into words that GPT-2's rules always tokenize on their own. A vocabulary with these
//! rules can encode the words from a cache and on several threads, and gives the same tokens as for
//! the whole text.

/// Most bytes of a word. The tokenizers library needs about a hundred times the memory of the text
/// that it is given.
const MOST_WORD_BYTES: usize = 1 << 18;

/// Cuts a text into words: white space, and everything up to the next white space. By GPT-2's
/// rules, a token contains white space only at its beginning, or consists of white space. A run of
/// white space therefore always starts a token, and what follows the run ends one.
pub(super) fn words(text: &str) -> impl Iterator<Item = &str> {
    let mut start = 0;
    std::iter::from_fn(move || {
        let end = word_end(text, start);
        let word = text.get(start..end).filter(|word| !word.is_empty())?;
        start = end;
        Some(word)
    })
}

/// The end of the word that starts at `start`, which must be between two characters.
pub(super) fn word_end(text: &str, start: usize) -> usize {
    let bytes = text.as_bytes();
    let limit = bytes.len().min(start + MOST_WORD_BYTES);
    let skip = |from: usize, spaces: bool| {
        let mut rest = bytes[from..limit].iter();
        let length = rest.position(|byte| is_space(*byte) != spaces);
        length.map_or(limit, |length| from + length)
    };
    let mut at = skip(start, true);
    loop {
        at = skip(at, false);
        if at == limit {
            return text.floor_char_boundary(limit);
        }
        // White space of several bytes, such as U+3000, belongs to the same run.
        let before = text[..at].chars().next_back();
        if !before.is_some_and(char::is_whitespace) {
            return at;
        }
        at = skip(at, true);
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b'\t'..=b'\r' | b' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_start_with_their_white_space_and_are_the_text() {
        let check = |text: &str, expected: &[&str]| {
            let found: Vec<&str> = words(text).collect();
            assert_eq!(found, expected);
            assert_eq!(found.concat(), text);
        };
        check("", &[]);
        check("It's cold.", &["It's", " cold."]);
        check(" a\n\n  b \t", &[" a", "\n\n  b", " \t"]);
        check("ab\u{3000}  cd ef", &["ab\u{3000}  cd", " ef"]);
        check("süß Äpfel", &["süß", " Äpfel"]);
    }

    #[test]
    fn a_word_without_an_end_is_cut_between_characters() {
        let text = "ü".repeat(MOST_WORD_BYTES);
        let lengths: Vec<usize> = words(&text).map(str::len).collect();
        assert_eq!(lengths, [MOST_WORD_BYTES, MOST_WORD_BYTES]);
        let shifted = format!("x{text}");
        assert!(words(&shifted).all(|word| word.len() <= MOST_WORD_BYTES));
        assert_eq!(words(&shifted).collect::<String>(), shifted);
    }
}
