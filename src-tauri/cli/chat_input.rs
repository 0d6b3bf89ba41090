//! What a person types in a chat, or what another program writes: one message per line, or several
//! lines between `"""`, and commands.

use std::io::{self, BufRead, Read};

/// Most bytes of a line. A longer one is skipped without keeping it in memory.
const MAX_LINE_BYTES: u64 = 1 << 20;
/// Before and after a message of several lines.
const FENCE: &str = "\"\"\"";

/// What was entered.
#[derive(Debug, PartialEq, Eq)]
pub enum Entered {
    Message(String),
    Reset,
    Quit,
    Help,
    /// A line that cannot be used, and why.
    Unusable(String),
}

/// Reads messages and commands.
pub struct ChatInput<R> {
    lines: R,
}

enum Line {
    Text(String),
    Unusable(String),
    End,
}

impl<R: BufRead> ChatInput<R> {
    pub fn new(lines: R) -> Self {
        ChatInput { lines }
    }

    /// The next message or command. The end of the input is [`Entered::Quit`]. `more` is called
    /// before each further line of a message is read.
    ///
    /// # Errors
    /// The input cannot be read.
    pub fn next(&mut self, more: impl Fn()) -> io::Result<Entered> {
        let line = match self.line()? {
            Line::Text(line) => line,
            Line::Unusable(reason) => return Ok(Entered::Unusable(reason)),
            Line::End => return Ok(Entered::Quit),
        };
        if let Some(first) = line.trim_start().strip_prefix(FENCE) {
            return self.fenced(first.to_owned(), more);
        }
        Ok(match line.trim() {
            "/reset" => Entered::Reset,
            "/quit" | "/exit" | "/bye" => Entered::Quit,
            "/help" | "/?" => Entered::Help,
            command if is_command(command) => Entered::Unusable(format!(
                "there is no command {command}; the commands are /reset, /quit and /help"
            )),
            _ => Entered::Message(line),
        })
    }

    /// The rest of a message that began with [`FENCE`].
    fn fenced(&mut self, first: String, more: impl Fn()) -> io::Result<Entered> {
        let mut message = first;
        let mut unusable = None;
        loop {
            if let Some(whole) = message.trim_end().strip_suffix(FENCE) {
                let whole = whole.trim_matches('\n').to_owned();
                return Ok(unusable.map_or(Entered::Message(whole), Entered::Unusable));
            }
            more();
            match self.line()? {
                Line::Text(line) => {
                    // The line is kept: it may end the message.
                    if message.len() as u64 > MAX_LINE_BYTES {
                        message = String::new();
                        unusable = Some(too_long("message"));
                    }
                    message.push('\n');
                    message.push_str(&line);
                }
                Line::Unusable(reason) => unusable = Some(reason),
                Line::End => {
                    return Ok(Entered::Unusable(format!(
                        "the input ended before the closing {FENCE}"
                    )));
                }
            }
        }
    }

    fn line(&mut self) -> io::Result<Line> {
        let mut bytes = Vec::new();
        let mut is_too_long = false;
        loop {
            let start = bytes.len();
            let mut limited = self.lines.by_ref().take(MAX_LINE_BYTES + 1);
            let read = limited.read_until(b'\n', &mut bytes)?;
            if read == 0 && start == 0 && !is_too_long {
                return Ok(Line::End);
            }
            if read == 0 || bytes.last() == Some(&b'\n') {
                break;
            }
            if bytes.len() as u64 > MAX_LINE_BYTES {
                is_too_long = true;
                bytes.clear();
            }
        }
        if is_too_long {
            return Ok(Line::Unusable(too_long("line")));
        }
        Ok(match String::from_utf8(bytes) {
            Ok(line) => Line::Text(line.trim_end_matches(['\r', '\n']).to_owned()),
            Err(_) => Line::Unusable("this line is not text in UTF-8".to_owned()),
        })
    }
}

/// Whether a line is one word that begins with a slash. A path has another slash.
fn is_command(line: &str) -> bool {
    let word = line.strip_prefix('/');
    word.is_some_and(|word| !word.is_empty() && word.chars().all(char::is_alphanumeric))
}

fn too_long(what: &str) -> String {
    let limit = runlog::format_bytes(MAX_LINE_BYTES);
    format!("this {what} is longer than {limit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entered(text: &[u8]) -> Vec<Entered> {
        let mut input = ChatInput::new(text);
        let mut all = Vec::new();
        while all.last() != Some(&Entered::Quit) {
            all.push(input.next(|| {}).expect("bytes can be read"));
        }
        all
    }

    fn message(text: &str) -> Entered {
        Entered::Message(text.to_owned())
    }

    #[test]
    fn lines_are_messages_and_commands() {
        let found = entered(b"Hi\r\n /reset \n/usr/bin?\n/a b\n/help\nlast");
        let expected = [
            message("Hi"),
            Entered::Reset,
            message("/usr/bin?"),
            message("/a b"),
            Entered::Help,
            message("last"),
            Entered::Quit,
        ];
        assert_eq!(found, expected);
        let unknown = entered(b"/forget\n");
        assert!(matches!(&unknown[0], Entered::Unusable(reason) if reason.contains("/forget")));
    }

    #[test]
    fn a_message_may_have_several_lines() {
        let found = entered(b"\"\"\"one\n\ntwo\"\"\"\n\"\"\"\n/reset\n\"\"\"\n\"\"\"three\"\"\"\n");
        let expected = [
            message("one\n\ntwo"),
            message("/reset"),
            message("three"),
            Entered::Quit,
        ];
        assert_eq!(found, expected);
        let open = entered(b"\"\"\"one\ntwo\n");
        assert!(matches!(&open[0], Entered::Unusable(reason) if reason.contains("closing")));
    }

    #[test]
    fn a_message_that_is_too_long_does_not_swallow_the_next() {
        let half = "x".repeat(MAX_LINE_BYTES as usize * 2 / 3);
        let found = entered(format!("\"\"\"\n{half}\n{half}\n\"\"\"\nnext\n").as_bytes());
        assert!(matches!(&found[0], Entered::Unusable(reason) if reason.contains("longer than")));
        assert_eq!(found[1..], [message("next"), Entered::Quit]);
    }

    #[test]
    fn unusable_lines_are_named_and_skipped() {
        let mut text = vec![b'x'; MAX_LINE_BYTES as usize * 2 + 7];
        text.extend(b"\nnext\n\xff\xfe\n");
        let found = entered(&text);
        assert_eq!(found.len(), 4);
        assert!(matches!(&found[0], Entered::Unusable(reason) if reason.contains("longer than")));
        assert_eq!(found[1], message("next"));
        assert!(matches!(&found[2], Entered::Unusable(reason) if reason.contains("UTF-8")));
        let mut open = vec![b'x'; MAX_LINE_BYTES as usize + 1];
        assert_eq!(entered(&open).len(), 2);
        open.pop();
        assert!(matches!(&entered(&open)[0], Entered::Message(_)));
    }
}
