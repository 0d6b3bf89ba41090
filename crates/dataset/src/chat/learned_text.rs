//! A rendered conversation, and which parts of it are learned: the answers of the assistant, with
//! the marks that end them.
//!
//! Answers are found in one of three ways. Some templates mark them. Otherwise the text up to an
//! answer is rendered alone, with the beginning of an answer, and then with the answer: the
//! difference is the answer. If a template writes earlier messages differently once others follow,
//! characters around the contents of the answers show where these are.

use super::chat_template::{BEGIN, ChatTemplate, END};
use super::conversation::{Conversation, is_answer};
use minijinja::Value;
use std::ops::Range;

/// Most answers that are found by rendering parts of the conversation, which takes time that grows
/// with the square of the number of messages.
const MAX_PARTS: usize = 64;

/// A rendered conversation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LearnedText {
    pub text: String,
    /// Places of the answers in bytes, in order.
    pub learned: Vec<Range<usize>>,
    /// Answers whose place the template does not show.
    pub lost: usize,
}

impl LearnedText {
    /// Renders a conversation.
    ///
    /// # Errors
    /// The template fails. The error is the end of a sentence.
    pub fn render(template: &ChatTemplate, found: &Conversation) -> Result<Self, String> {
        let messages = found.as_messages();
        let rendering = Rendering {
            template,
            messages: &messages,
            tools: &found.tools,
        };
        let rendered = rendering.up_to(messages.len(), false);
        let rendered =
            rendered.map_err(|reason| format!("the chat template reports an error: {reason}"))?;
        if template.marks_answers() {
            let (text, learned) = take_marks(&rendered);
            let lost = usize::from(learned.is_empty());
            return Ok(LearnedText {
                text,
                learned,
                lost,
            });
        }
        Ok(rendering.find_answers(rendered))
    }
}

/// The conversation that is rendered.
struct Rendering<'a> {
    template: &'a ChatTemplate,
    messages: &'a [Value],
    tools: &'a [Value],
}

impl Rendering<'_> {
    /// Renders the first `count` messages.
    fn up_to(&self, count: usize, asks: bool) -> Result<String, String> {
        self.template
            .render(&self.messages[..count], self.tools, asks)
    }

    fn find_answers(&self, text: String) -> LearnedText {
        let messages = self.messages.iter().enumerate();
        let answers = messages.filter(|(_, message)| is_answer(message));
        let answers: Vec<usize> = answers.map(|(index, _)| index).collect();
        let by_parts = answers.len() <= MAX_PARTS;
        let mut places: Vec<Option<Range<usize>>> = answers
            .iter()
            .map(|index| self.by_difference(&text, *index).filter(|_| by_parts))
            .collect();
        if places.contains(&None) {
            let marked = self.by_marks(&text, &answers).unwrap_or_default();
            for (place, marked) in places.iter_mut().zip(marked) {
                *place = place.take().or(marked);
            }
        }
        let lost = places.iter().filter(|place| place.is_none()).count();
        let mut learned: Vec<Range<usize>> = Vec::new();
        for place in places.into_iter().flatten() {
            let from = learned.last().map_or(0, |last| last.end);
            if place.end > place.start.max(from) {
                learned.push(place.start.max(from)..place.end);
            }
        }
        LearnedText {
            text,
            learned,
            lost,
        }
    }

    /// The place of an answer: after the text up to it, as far as the text with it goes.
    fn by_difference(&self, text: &str, index: usize) -> Option<Range<usize>> {
        let before = self.up_to(index, true).ok()?;
        let rest = text.strip_prefix(before.as_str())?;
        let with = self.up_to(index + 1, false).ok()?;
        let answer = with.strip_prefix(before.as_str())?;
        let start = before.len();
        if rest.starts_with(answer) {
            return Some(start..start + answer.len());
        }
        // A template may leave out how the assistant thought, except in the last answer.
        let length = overlap(answer, rest);
        let content = self.messages[index].get_attr("content").unwrap_or_default();
        let content = content.as_str()?.trim();
        // It must begin with the end of the content; the mark of the end alone could be anywhere.
        if overlap(content, &rest[..length]) > 0 {
            return Some(start..start + length);
        }
        // A template may write another end after the last message.
        let end = common_end(answer, rest, content)?;
        Some(start..start + end)
    }

    /// The places of all answers with a content: marks around the contents show them. `None` if
    /// the template does not write the contents as they are.
    fn by_marks(&self, text: &str, answers: &[usize]) -> Option<Vec<Option<Range<usize>>>> {
        let mut messages = self.messages.to_vec();
        let mut marked: Vec<usize> = Vec::new();
        for (nth, index) in answers.iter().enumerate() {
            if let Some(message) = with_marked_content(&messages[*index]) {
                messages[*index] = message;
                marked.push(nth);
            }
        }
        let render = |count: usize| {
            let rendered = self.template.render(&messages[..count], self.tools, false);
            rendered.ok().map(|rendered| take_marks(&rendered))
        };
        let (found, places) = render(messages.len())?;
        if found != text || places.len() != marked.len() {
            return None;
        }
        let last = answers[*marked.last()?];
        let (until_last, of_last) = render(last + 1)?;
        let end_of_turn = &until_last[of_last.last()?.end..];
        let mut all = vec![None; answers.len()];
        for (nth, place) in marked.into_iter().zip(places) {
            let ends = text[place.end..].starts_with(end_of_turn);
            let more = if ends { end_of_turn.len() } else { 0 };
            all[nth] = Some(place.start..place.end + more);
        }
        Some(all)
    }
}

/// A message with marks around its content, inside of the white space at both ends; `None` if it
/// has no content.
fn with_marked_content(message: &Value) -> Option<Value> {
    let content = message.get_attr("content").ok()?;
    let content = content.as_str()?;
    let core = content.trim();
    if core.is_empty() {
        return None;
    }
    let start = content.len() - content.trim_start().len();
    let (before, after) = (&content[..start], &content[start + core.len()..]);
    let marked = format!("{before}{BEGIN}{core}{END}{after}");
    let names = message.try_iter().ok()?;
    Some(Value::from_pairs(names.map(|name| {
        let value = match name.as_str() {
            Some("content") => Value::from(marked.as_str()),
            _ => message.get_item(&name).unwrap_or_default(),
        };
        (name, value)
    })))
}

/// The text without its marks, and the places between marks.
fn take_marks(rendered: &str) -> (String, Vec<Range<usize>>) {
    let mut text = String::with_capacity(rendered.len());
    let (mut places, mut begun) = (Vec::new(), None);
    for character in rendered.chars() {
        match character {
            BEGIN => begun = Some(text.len()),
            END => places.extend(begun.take().map(|start| start..text.len())),
            other => text.push(other),
        }
    }
    (text, places)
}

/// The end of an answer that begins like `a` and like `b`, where the texts differ after the content
/// and its mark of the end. `None` if they differ before.
fn common_end(a: &str, b: &str, content: &str) -> Option<usize> {
    if content.is_empty() {
        return None;
    }
    let pairs = a.char_indices().zip(b.chars());
    let same = pairs.take_while(|((_, a), b)| a == b).last();
    let common = &a[..same.map_or(0, |((at, character), _)| at + character.len_utf8())];
    let content_end = common.find(content)? + content.len();
    // The next mark may begin with the same characters as the other end.
    let mark = common[content_end..].rfind(|c: char| c.is_whitespace() || ">]".contains(c));
    Some(content_end + mark.map_or(0, |at| at + 1))
}

/// The length of the longest end of `a` with which `b` begins.
fn overlap(a: &str, b: &str) -> usize {
    // The prefix function of Knuth, Morris and Pratt (1977) over `b`, run along `a`.
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut border = vec![0usize; b.len()];
    let mut length = 0;
    for i in 1..b.len() {
        while length > 0 && b[i] != b[length] {
            length = border[length - 1];
        }
        length += usize::from(b[i] == b[length]);
        border[i] = length;
    }
    let mut matched = 0;
    for byte in a {
        while matched > 0 && (matched == b.len() || *byte != b[matched]) {
            matched = border[matched - 1];
        }
        matched += usize::from(b.get(matched) == Some(byte));
    }
    matched
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn learned(source: &str, messages: &str) -> (Vec<String>, usize) {
        let template = ChatTemplate::new(source, None, &BTreeMap::new()).expect("it is valid");
        let found = Conversation {
            messages: serde_json::from_str(messages).expect("it is JSON"),
            ..Conversation::default()
        };
        let found = LearnedText::render(&template, &found).expect("it renders");
        let parts = found
            .learned
            .iter()
            .map(|place| found.text[place.clone()].to_owned());
        (parts.collect(), found.lost)
    }

    const TALK: &str = r#"[{"role":"user","content":"A"},{"role":"assistant","content":" one "},
        {"role":"user","content":"B"},{"role":"assistant","content":"<t>why</t>two"},
        {"role":"user","content":"C"},{"role":"assistant","content":"<t>so</t>three"}]"#;

    #[test]
    fn answers_are_the_difference_between_two_renderings() {
        let chatml = "{% for m in messages %}<{{ m.role }}>{{ m.content.strip() }}</>\n{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";
        let (parts, lost) = learned(chatml, TALK);
        assert_eq!(
            parts,
            ["one</>\n", "<t>why</t>two</>\n", "<t>so</t>three</>\n"]
        );
        assert_eq!(lost, 0);
    }

    #[test]
    fn thoughts_that_a_template_leaves_out_are_not_learned() {
        let thinking = "{% for m in messages %}<{{ m.role }}>{% if loop.last or m.role == 'user' %}{{ m.content }}{% else %}{{ m.content.split('</t>')[-1] }}{% endif %}</>{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";
        let (parts, lost) = learned(thinking, TALK);
        assert_eq!(parts, [" one </>", "two</>", "<t>so</t>three</>"]);
        assert_eq!(lost, 0);
    }

    #[test]
    fn marks_find_answers_if_the_text_before_them_changes() {
        // The system's text moves to the last question, so no earlier text stays as it was.
        let moving = "{% for m in messages %}{% if m.role == 'user' %}[{% if loop.index0 >= messages | length - 2 %}S {% endif %}{{ m.content }}]{% else %}{{ m.content.strip() }};{% endif %}{% endfor %}";
        let (parts, lost) = learned(moving, TALK);
        assert_eq!(parts, ["one;", "<t>why</t>two;", "<t>so</t>three;"]);
        assert_eq!(lost, 0);
        let shouting = "{% for m in messages %}{% if not loop.last %}{{ m.content | upper }}{% else %}{{ messages | length }}{% endif %}{% endfor %}";
        assert_eq!(learned(shouting, TALK).1, 3);
    }

    #[test]
    fn another_end_after_the_last_message_does_not_hide_earlier_answers() {
        let closing = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>\n{% endfor %}{% if add_generation_prompt %}<assistant>{% else %}<eos>{% endif %}";
        let (parts, lost) = learned(closing, TALK);
        assert_eq!(
            parts,
            [
                " one </>\n",
                "<t>why</t>two</>\n",
                "<t>so</t>three</>\n<eos>"
            ]
        );
        assert_eq!(lost, 0);
    }

    #[test]
    fn the_overlap_is_the_longest() {
        for (a, b, expected) in [
            ("xaba", "abab", 3),
            ("aaaa", "aa", 2),
            ("abc", "d", 0),
            ("", "a", 0),
            ("ab", "", 0),
            ("aab", "aabaab", 3),
        ] {
            assert_eq!(overlap(a, b), expected, "{a} {b}");
        }
    }
}
