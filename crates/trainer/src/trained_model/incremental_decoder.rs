//! A generated text while its tokens arrive: parts of complete characters, up to a stop text.

use dataset::Tokenizer;

/// The text of the tokens so far. A character may consist of several tokens, and the beginning of a
/// stop text may become a whole one, so that the newest letters are held back until they are
/// certain.
pub(super) struct IncrementalDecoder<'t> {
    tokenizer: &'t Tokenizer,
    stop: &'t [String],
    tokens: Vec<u32>,
    /// The tokens before are final, and their text is in `text`.
    context_from: usize,
    decoded_to: usize,
    /// Decoded text that has not been taken.
    held: String,
}

/// What a token adds to the text.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NewText {
    /// This text, which may be empty. More may follow.
    Text(String),
    /// This text, and then the text ends at a stop text.
    Last(String),
}

impl<'t> IncrementalDecoder<'t> {
    pub fn new(tokenizer: &'t Tokenizer, stop: &'t [String]) -> Self {
        IncrementalDecoder {
            tokenizer,
            stop,
            tokens: Vec::new(),
            context_from: 0,
            decoded_to: 0,
            held: String::new(),
        }
    }

    /// Adds a token.
    pub fn push(&mut self, token: u32) -> NewText {
        self.tokens.push(token);
        self.decode(false);
        self.take()
    }

    /// The rest of a text that has no more tokens.
    pub fn finish(mut self) -> String {
        self.decode(true);
        match self.take() {
            NewText::Last(text) => text,
            NewText::Text(text) => text + &self.held,
        }
    }

    /// Decodes the new tokens together with a few before them, because the text of a token may
    /// depend on the one before it. Incomplete characters wait for the next token.
    fn decode(&mut self, is_last: bool) {
        let before = self
            .tokenizer
            .decode(&self.tokens[self.context_from..self.decoded_to]);
        let after = self.tokenizer.decode(&self.tokens[self.context_from..]);
        if after.ends_with(char::REPLACEMENT_CHARACTER) && !is_last {
            return;
        }
        if let Some(new) = after.strip_prefix(&before) {
            self.held.push_str(new);
        }
        (self.context_from, self.decoded_to) = (self.decoded_to, self.tokens.len());
    }

    /// Takes the held text that cannot be part of a stop text.
    fn take(&mut self) -> NewText {
        let stops = self.stop.iter().filter(|stop| !stop.is_empty());
        let found = stops.clone().filter_map(|stop| self.held.find(stop)).min();
        if let Some(end) = found {
            self.held.truncate(end);
            return NewText::Last(std::mem::take(&mut self.held));
        }
        let begins = |from: usize| {
            stops
                .clone()
                .any(|stop| stop.starts_with(&self.held[from..]))
        };
        let starts = self.held.char_indices().map(|(at, _)| at);
        let certain = starts.into_iter().find(|at| begins(*at));
        let rest = self.held.split_off(certain.unwrap_or(self.held.len()));
        NewText::Text(std::mem::replace(&mut self.held, rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The parts of a text of bytes, each of which is a token.
    fn parts(text: &[u8], stop: &[&str]) -> Vec<String> {
        let tokenizer = Tokenizer::bytes();
        let stop: Vec<String> = stop.iter().map(|stop| (*stop).to_owned()).collect();
        let mut stream = IncrementalDecoder::new(&tokenizer, &stop);
        let mut parts = Vec::new();
        for byte in text {
            match stream.push(u32::from(*byte)) {
                NewText::Text(text) => parts.push(text),
                NewText::Last(text) => {
                    parts.push(text);
                    return parts;
                }
            }
        }
        parts.push(stream.finish());
        parts
    }

    #[test]
    fn characters_arrive_whole() {
        assert_eq!(parts("aé!".as_bytes(), &[]), ["a", "", "é", "!", ""]);
        // A text that ends within a character.
        assert_eq!(parts(&"aé".as_bytes()[..2], &[]).concat(), "a\u{FFFD}");
        let broken = [b'a', 0xC3, b'b', b'c'];
        assert_eq!(parts(&broken, &[]).concat(), "a\u{FFFD}bc");
    }

    #[test]
    fn a_text_ends_before_a_stop_text() {
        assert_eq!(parts(b"one.\n\ntwo", &["\n\n"]).concat(), "one.");
        assert_eq!(parts(b"aab", &["ab", "b"]), ["", "a", ""]);
        // The beginning of a stop text is held back, and given if it does not become one.
        assert_eq!(parts(b"a<b", &["</s>"]), ["a", "", "<b", ""]);
        assert_eq!(parts(b"a<", &["</s>"]), ["a", "", "<"]);
        assert_eq!(parts(b"ab", &[""]), ["a", "b", ""]);
    }
}
