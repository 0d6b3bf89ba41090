//! Shows how a model compresses a text: the kept tokens, the text with gaps, and the text with
//! filled gaps. If an argument names a file, Ebb compresses the content of the file.

use super::super::args;
use super::super::failure::Failure;
use super::super::output::{out, status};
use runlog::format_count;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use trainer::{CompressedText, TrainedModel};

/// Compresses each text and fills the gaps. If a file cannot be read, it is reported and the exit
/// code is 1.
pub fn run(saved: &TrainedModel, args: &args::Predict, files: &[PathBuf]) -> Result<(), Failure> {
    if args.csv {
        let sentence = "compressed texts cannot be printed as a CSV table; use --json";
        return Err(Failure::usage(sentence.to_owned()));
    }
    let mut unread = 0;
    for argument in files {
        let file = argument.is_file().then_some(argument.as_path());
        let text = match super::text(argument) {
            Ok(text) => text,
            Err(why) => {
                unread += 1;
                let name = argument.to_string_lossy();
                if args.json {
                    out!("{}", json!({"text": name, "problem": why}));
                }
                status!("{name}: {why}");
                continue;
            }
        };
        let found = saved.compress(&text)?;
        if args.json {
            out!("{}", line(file, &text, &found))
        } else {
            out!("{}", words(file, &found))
        }
    }
    super::all_read(unread, files.len())
}

fn line(file: Option<&Path>, text: &str, found: &CompressedText) -> Value {
    let mut line = json!({
        "text": text, "kept": found.kept, "marked": found.marked, "gap": found.gap, "filled": found.filled,
        "tokens": found.tokens, "kept_places": found.kept_places,
        "kept_fraction": found.kept_fraction(), "right_fraction": found.correct_fraction(),
    });
    if let Some(file) = file {
        line["file"] = json!(file.to_string_lossy());
    }
    line
}

/// Three versions of the text below each other, each with a label.
fn words(file: Option<&Path>, found: &CompressedText) -> String {
    let count = |n: usize| format_count(n as u64);
    let percent = |fraction: f64| format!("{:.1} %", 100.0 * fraction);
    let named = file.map_or(String::new(), |file| format!("{}, ", file.display()));
    let kept = format!(
        "{named}kept {} of {} tokens ({})",
        count(found.kept_places.len()),
        count(found.tokens),
        percent(found.kept_fraction())
    );
    let filled = format!(
        "gaps filled, {} of {} correct ({})",
        count(found.correct),
        count(found.dropped()),
        percent(found.correct_fraction())
    );
    let gaps = format!("with gaps ({})", found.gap);
    let parts = [
        (kept, &found.kept),
        (gaps, &found.marked),
        (filled, &found.filled),
    ];
    parts.map(|(what, text)| block(&what, text)).join("\n")
}

/// Puts a label before a text. A text of several lines is indented below the label.
fn block(what: &str, text: &str) -> String {
    if text.contains('\n') {
        format!("{what}:\n    {}", text.trim_end().replace('\n', "\n    "))
    } else {
        format!("{what}: {text}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_shown_as_kept_with_gaps_and_filled_in() {
        let found = CompressedText {
            kept: "a c\nd".to_owned(),
            marked: "a·c\nd·".to_owned(),
            gap: '·',
            filled: "a c de".to_owned(),
            tokens: 6,
            kept_places: vec![0, 2, 3, 4],
            correct: 1,
        };
        assert_eq!(
            words(Some(Path::new("b.txt")), &found),
            "b.txt, kept 4 of 6 tokens (66.7 %):\n    a c\n    d\nwith gaps (·):\n    a·c\n    d·\ngaps filled, 1 of 2 correct (50.0 %): a c de"
        );
    }
}
