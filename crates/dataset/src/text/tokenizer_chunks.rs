//! Cuts long texts into chunks for the tokenizers library, which needs about a hundred times the
//! memory of the text that it is given.

/// Most bytes of text that a vocabulary is learned from. More text changes the vocabulary little.
pub(super) const MOST_LEARNED_BYTES: u64 = 64 << 20;
/// Fewest bytes of a chunk.
const CHUNK_BYTES: usize = 1 << 16;

/// Cuts a text into chunks of about 64 kB. Every cut is before a single space between two letters.
/// GPT-2's rules split a text there too, and the space belongs to the word that follows, so the
/// tokens of the chunks are those of the text.
pub(super) fn chunks(text: &str) -> impl Iterator<Item = &str> + Send {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let whole = rest.take()?;
        let (chunk, after) = match cut(whole) {
            Some(at) => whole.split_at(at),
            None => (whole, ""),
        };
        rest = (!after.is_empty()).then_some(after);
        Some(chunk)
    })
}

/// The first place to cut after at least `CHUNK_BYTES`.
fn cut(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let is_letter = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphabetic);
    (CHUNK_BYTES..bytes.len()).find(|&at| {
        bytes[at] == b' ' && is_letter(bytes.get(at - 1)) && is_letter(bytes.get(at + 1))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_the_text_and_are_cut_between_words_only() {
        let words = |count: usize| -> String {
            let word = |i: usize| {
                if i.is_multiple_of(3) {
                    "dot.  \r\n"
                } else {
                    "some words"
                }
            };
            (0..count).map(word).collect()
        };
        for text in [
            String::new(),
            "short".into(),
            words(60_000),
            "x".repeat(200_000),
        ] {
            let parts: Vec<&str> = chunks(&text).collect();
            assert_eq!(parts.concat(), text);
            for (before, after) in parts.iter().zip(&parts[1.min(parts.len())..]) {
                assert!(before.len() >= CHUNK_BYTES && before.len() < CHUNK_BYTES + 100);
                assert!(before.ends_with("some") && after.starts_with(" words"));
            }
        }
        assert!(chunks(&words(60_000)).count() > 5);
    }
}
