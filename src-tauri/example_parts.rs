//! The text of a conversation as the window and the terminal show it: in parts that are learned and
//! parts that are not, of which long ones are shortened.

use dataset::EncodedConversation;

/// Number of conversations that are shown.
pub const EXAMPLES: usize = 3;
/// Most characters of a conversation that are shown, about.
const SHOWN_CHARACTERS: usize = 1_200;
/// Most characters of one part that are shown.
const PART_CHARACTERS: usize = 400;

/// A part of a conversation that is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownPart {
    /// The text, with its line breaks.
    pub text: String,
    /// Whether the model learns to write it.
    pub is_learned: bool,
}

/// The beginning of a conversation.
pub fn shown_parts(found: &EncodedConversation) -> Vec<ShownPart> {
    let (mut parts, mut shown) = (Vec::new(), 0);
    for part in found.parts() {
        if shown >= SHOWN_CHARACTERS {
            parts.push(ShownPart {
                text: " […]".to_owned(),
                is_learned: false,
            });
            break;
        }
        let text = shortened(part.text);
        shown += text.chars().count();
        parts.push(ShownPart {
            text,
            is_learned: part.is_learned,
        });
    }
    parts
}

/// The learned text of a conversation.
pub fn learned_text(found: &EncodedConversation) -> String {
    let parts = found.parts().into_iter().filter(|part| part.is_learned);
    parts.map(|part| shortened(part.text)).collect()
}

/// The beginning and the end of a text.
fn shortened(text: &str) -> String {
    let count = text.chars().count();
    if count <= PART_CHARACTERS {
        return text.to_owned();
    }
    let half = PART_CHARACTERS / 2;
    let start: String = text.chars().take(half).collect();
    let end: String = text.chars().skip(count - half).collect();
    format!("{start} […] {end}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_parts_and_long_conversations_are_shortened() {
        let long = "ü".repeat(500);
        let text = format!("{long}{}", "a".repeat(1_500));
        let found = EncodedConversation {
            learned_text: (0..4)
                .map(|part| 1_000 + 300 * part..1_000 + 300 * part + 299)
                .collect(),
            text,
            tokens: Vec::new(),
            is_learned: Vec::new(),
            lost_answers: 0,
        };
        let parts = shown_parts(&found);
        let half = "ü".repeat(200);
        assert_eq!(parts[0].text, format!("{half} […] {half}"));
        assert_eq!((parts[0].is_learned, parts[1].is_learned), (false, true));
        assert_eq!(parts.last().map(|last| last.text.as_str()), Some(" […]"));
        let learned = learned_text(&found);
        assert_eq!(learned, "a".repeat(4 * 299));
    }
}
