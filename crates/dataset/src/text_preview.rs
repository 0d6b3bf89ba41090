//! The beginning of single texts, for the window.

use crate::chat::plain_text;
use crate::error::DatasetError;
use crate::text::{TextInspection, read_chosen};

/// The first `characters` of the samples with these indices, in the same order. White space counts
/// as one space; a text that is cut ends in an ellipsis.
///
/// # Errors
/// A file is missing or has changed since the inspection.
pub fn text_previews(
    found: &TextInspection,
    samples: &[u32],
    characters: usize,
) -> Result<Vec<String>, DatasetError> {
    let mut order: Vec<usize> = (0..samples.len()).collect();
    order.sort_by_key(|place| samples[*place]);
    let known = |place: &usize| (samples[*place] as usize) < found.samples.len();
    order.retain(known);
    let chosen: Vec<usize> = order.iter().map(|place| samples[*place] as usize).collect();
    let mut previews = vec![String::new(); samples.len()];
    let mut places = order.into_iter();
    let is_chat = found.has_conversations();
    read_chosen(found, &chosen, &mut |_, text| {
        if let Some(place) = places.next() {
            let text = if is_chat {
                plain_text(text)
            } else {
                text.into()
            };
            previews[place] = shortened(&text, characters);
        }
        Ok(())
    })?;
    Ok(previews)
}

/// The first characters of a text, on one line.
pub(crate) fn shortened(text: &str, characters: usize) -> String {
    // Words are joined only until the text is long enough: a document may be as long as its file.
    let (mut line, mut count) = (String::new(), 0);
    for word in text.split_whitespace() {
        if count > 0 {
            line.push(' ');
            count += 1;
        }
        for character in word.chars() {
            if count >= characters {
                return format!("{}…", line.trim_end());
            }
            line.push(character);
            count += 1;
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DetectedDataset, InspectOptions, TextOptions, detect};

    #[test]
    fn texts_are_shown_by_their_beginning_in_the_order_asked_for() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let table = "label,text\nham,\"See you\n tonight\"\nspam,You have won a prize\nham,ok\n";
        let rows = "ham,one more\nspam,another\n".repeat(5);
        std::fs::write(folder.path().join("sms.csv"), format!("{table}{rows}"))
            .expect("the folder can be written");
        let found = detect(
            folder.path(),
            &InspectOptions::default(),
            &TextOptions::default(),
            &|_| {},
        );
        let Ok(DetectedDataset::Texts(found)) = found else {
            panic!("it contains texts");
        };
        let short = text_previews(&found, &[1, 0, 1_000], 8).expect("the file is unchanged");
        assert_eq!(short, ["You have…", "See you…", ""]);
        let whole = text_previews(&found, &[2, 0], 100).expect("the file is unchanged");
        assert_eq!(whole, ["ok", "See you tonight"]);
        std::fs::write(folder.path().join("sms.csv"), "label,text\nham,other\n")
            .expect("the folder can be written");
        assert!(text_previews(&found, &[0], 8).is_err());
    }
}
