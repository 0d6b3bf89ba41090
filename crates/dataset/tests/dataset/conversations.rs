//! Conversations are recognized in every format, and rows that cannot be learned are listed.

use crate::support::Folder;
use crate::text_tables::{found, look_at};
use dataset::{
    ChatTemplate, ConversationEncoder, DatasetError, DetectedDataset, Documents, InspectOptions,
    LearnedTokens, Split, Task, TextInspection, TextManifest, TextOptions, TokenWidth, Tokenizer,
    conversation_examples, detect, read_texts, text_previews, tokenize_conversations,
};
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::parser::parse_message_type;
use std::sync::Arc;

/// What a user and an assistant write in row `n`.
fn turn(n: usize) -> (String, String) {
    (format!("Question {n}?"), format!("Answer number {n}."))
}

fn rows(row: impl Fn(usize) -> String) -> String {
    (0..30).map(|n| row(n) + "\n").collect()
}

fn encoder() -> ConversationEncoder {
    let template = Some(ChatTemplate::chatml());
    ConversationEncoder::new(Tokenizer::bytes(), template, LearnedTokens::Answers, 257)
}

/// The learned text of the first training conversation.
fn first_answer(found: &TextInspection) -> String {
    let examples = conversation_examples(found, &encoder(), 1).expect("no file changed");
    let encoded = examples[0].encoded.as_ref().expect("it can be learned");
    let parts = encoded.parts().into_iter().filter(|part| part.is_learned);
    parts.map(|part| part.text).collect()
}

#[test]
fn every_format_of_conversations_is_recognized() {
    let messages = |n: usize| {
        let (a, b) = turn(n);
        format!(r#"[{{"role":"user","content":"{a}"}},{{"role":"assistant","content":"{b}"}}]"#)
    };
    let share_gpt = |n: usize| {
        let (a, b) = turn(n);
        format!(r#"[{{"from":"human","value":"{a}"}},{{"from":"gpt","value":"{b}"}}]"#)
    };
    let pair = |first: &str, second: &str, n: usize| {
        let (a, b) = turn(n);
        format!(r#"{{"{first}":"{a}","{second}":"{b}","category":"x"}}"#)
    };
    let list: Vec<String> = (0..30)
        .map(|n| format!(r#"{{"messages":{}}}"#, messages(n)))
        .collect();
    let csv = |n: usize| format!("\"{}\",\"{}\"", turn(n).0, turn(n).1);
    for (name, text) in [
        (
            "a.jsonl",
            rows(|n| format!(r#"{{"id":{n},"messages":{}}}"#, messages(n))),
        ),
        ("b.json", format!("[{}]", list.join(",\n"))),
        (
            "c.jsonl",
            rows(|n| format!(r#"{{"conversations":{},"source":"x"}}"#, share_gpt(n))),
        ),
        ("d.jsonl", rows(|n| pair("prompt", "completion", n))),
        ("e.jsonl", rows(|n| pair("instruction", "output", n))),
        ("f.jsonl", rows(|n| pair("instruction", "response", n))),
        ("g.csv", format!("prompt,completion\n{}", rows(csv))),
    ] {
        let folder = Folder::new();
        let file = folder.put(name, text.as_bytes());
        let found = look_at(&file, &TextOptions::default());
        assert_eq!(found.task, Task::LanguageModel, "{name}");
        assert!(
            found.has_conversations() && found.refusal.is_none(),
            "{name}: {found:?}"
        );
        assert_eq!(
            (found.samples.len(), found.sample_noun(2).as_str()),
            (30, "conversations")
        );
        assert_eq!(found.count(Split::HeldOut), 6, "{name}");
        let answer = first_answer(&found);
        assert!(answer.starts_with("Answer number"), "{name}: {answer}");
        // The data file of a run reads the same conversations.
        let saved = serde_json::to_string(&TextManifest::from(&found)).expect("plain data");
        let manifest: TextManifest = serde_json::from_str(&saved).expect("it was just written");
        assert_eq!(
            first_answer(&TextInspection::from(manifest)),
            answer,
            "{name}"
        );
    }
}

#[test]
fn other_tasks_and_named_columns_win_over_conversations() {
    let folder = Folder::new();
    let label = |n: usize| if n.is_multiple_of(2) { "yes" } else { "no" };
    let row = |n: usize| {
        format!(
            r#"{{"prompt":"{}","completion":"{}"}}"#,
            turn(n).0,
            label(n)
        )
    };
    let file = folder.put("rows.jsonl", rows(row).as_bytes());
    let options = TextOptions {
        task: Some(Task::TextClassification),
        ..TextOptions::default()
    };
    let found = look_at(&file, &options);
    assert_eq!(
        (found.task, found.classes.len()),
        (Task::TextClassification, 2)
    );
    let options = TextOptions {
        text_column: Some("prompt".to_owned()),
        ..TextOptions::default()
    };
    assert!(!look_at(&file, &options).has_conversations());
}

/// A preference in each of the two forms: texts, or whole conversations.
fn preferences(are_messages: bool) -> String {
    rows(|n| {
        let (asked, answer) = turn(n);
        let whole = |answer: &str| {
            format!(
                r#"[{{"role":"user","content":"{asked}"}},{{"role":"assistant","content":"{answer}"}}]"#
            )
        };
        if are_messages {
            let (good, bad) = (whole(&answer), whole("No."));
            format!(r#"{{"chosen":{good},"rejected":{bad},"score":{n}}}"#)
        } else {
            format!(r#"{{"prompt":"{asked}","chosen":"{answer}","rejected":"No."}}"#)
        }
    })
}

#[test]
fn preferences_are_recognized_and_become_two_documents_each() {
    for are_messages in [false, true] {
        let folder = Folder::new();
        let file = folder.put("prefs.jsonl", preferences(are_messages).as_bytes());
        let found = look_at(&file, &TextOptions::default());
        assert!(
            found.has_preferences() && found.refusal.is_none(),
            "{found:?}"
        );
        assert_eq!(
            (found.samples.len(), found.sample_noun(2).as_str()),
            (30, "preferences")
        );
        assert!(found.reason.contains("is a preference"), "{}", found.reason);
        assert!(first_answer(&found).starts_with("Answer number"));
        let examples = conversation_examples(&found, &encoder(), 30).expect("no file changed");
        let rejected = examples[0].rejected.as_ref().expect("it is a preference");
        assert!(rejected.text.contains("No."), "{}", rejected.text);
        // The data file of a run reads the same preferences.
        let saved = serde_json::to_string(&TextManifest::from(&found)).expect("plain data");
        let manifest: TextManifest = serde_json::from_str(&saved).expect("it was just written");
        assert!(TextInspection::from(manifest).has_preferences());
        let mut documents = Documents::with_width(TokenWidth::Four);
        let left_out = documents.append(|sink| {
            tokenize_conversations(&found, Split::Train, &encoder(), 2, &|_| true, sink)
        });
        assert!(left_out.expect("no file changed").describe().is_empty());
        assert_eq!(documents.len(), 48);
        assert!((0..48).all(|document| documents.length(document) > 0));
    }
}

#[test]
fn preferences_and_conversations_are_not_mixed() {
    let folder = Folder::new();
    folder.put("a.jsonl", preferences(false).as_bytes());
    let row = |n: usize| format!(r#"{{"prompt":"{}","completion":"b"}}"#, turn(n).0);
    folder.put("b.jsonl", rows(row).as_bytes());
    let found = found(&folder);
    assert!(found.has_preferences());
    assert_eq!(found.samples.len(), 30);
    let other = found
        .skipped
        .iter()
        .find(|file| file.path.ends_with("b.jsonl"));
    assert!(
        other.is_some_and(|file| file
            .reason
            .contains("are conversations, but those of a.jsonl are preferences")),
        "{:?}",
        found.skipped
    );
}

#[test]
fn rows_that_cannot_be_learned_are_listed_with_their_lines() {
    let folder = Folder::new();
    let good = r#"{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}"#;
    let long = "x".repeat(2 << 20);
    let bad = [
        (
            r#"{"messages":[{"role":"user","content":"a"}]}"#.to_owned(),
            "the conversation has no answer",
        ),
        (r#"{"messages":[]}"#.to_owned(), "the row has no messages"),
        (r#"{"messages":null}"#.to_owned(), "the row has no messages"),
        (
            r#"{"messages":[{"role":"poet","content":"a"}]}"#.to_owned(),
            "the role \"poet\"",
        ),
        (
            good.replace("\"b\"", &format!("\"{long}\"")),
            "longer than 1.0 MB",
        ),
        (
            good.replace("\"b\"", &format!("\"{0}{0}{0}\"", long)),
            "longer than 4 MB",
        ),
        ("[".to_owned(), "it is not JSON"),
    ];
    let text: Vec<&str> = std::iter::repeat_n(good, 40)
        .chain(bad.iter().map(|(row, _)| row.as_str()))
        .collect();
    let file = folder.put("chats.jsonl", text.join("\n").as_bytes());
    let found = look_at(&file, &TextOptions::default());
    assert_eq!(found.samples.len(), 40);
    for (n, (_, reason)) in bad.iter().enumerate() {
        let line = 41 + n as u64;
        let skipped = found
            .skipped_rows
            .iter()
            .find(|rows| rows.lines.contains(&line));
        let skipped = skipped.unwrap_or_else(|| panic!("line {line} is not listed"));
        assert!(
            skipped.reason.contains(reason),
            "line {line}: {}",
            skipped.reason
        );
    }
}

#[test]
fn conversations_are_tokenized_alike_on_any_number_of_threads() {
    let folder = Folder::new();
    let row = |n: usize| {
        let (a, b) = turn(n);
        format!(r#"{{"prompt":"{}","completion":"{b}"}}"#, a.repeat(1 + n))
    };
    let text: String = (0..400).map(|n| row(n) + "\n").collect();
    let file = folder.put("pairs.jsonl", text.as_bytes());
    let found = look_at(&file, &TextOptions::default());
    let tokenized = |threads| {
        let mut documents = Documents::with_width(TokenWidth::Four);
        let encoder = encoder();
        let tokenize = |sink: &mut dyn dataset::TokenSink| {
            tokenize_conversations(&found, Split::Train, &encoder, threads, &|_| true, sink)
        };
        documents.append(tokenize).expect("no file changed");
        let tokens = |n| {
            (0..documents.length(n))
                .map(|at| documents.token(n, at))
                .collect::<Vec<_>>()
        };
        (
            documents.bytes(),
            (0..documents.len()).map(tokens).collect::<Vec<_>>(),
        )
    };
    let one = tokenized(1);
    assert_eq!(
        (one.1.len() as u64, one.0 > 0),
        (found.count(Split::Train), true)
    );
    assert_eq!(tokenized(3), one);
    let stopped = Documents::with_width(TokenWidth::Four).append(|sink| {
        tokenize_conversations(&found, Split::Train, &encoder(), 1, &|_| false, sink)
    });
    assert!(matches!(stopped, Err(DatasetError::Stopped)));
}

#[test]
fn people_and_statistics_read_the_contents_of_conversations() {
    let folder = Folder::new();
    let row = |n: usize| {
        format!(
            r#"{{"prompt":"{}","completion":"{}"}}"#,
            turn(n).0,
            turn(n).1
        )
    };
    let file = folder.put("pairs.jsonl", rows(row).as_bytes());
    let found = look_at(&file, &TextOptions::default());
    let shown = text_previews(&found, &[3], 100).expect("no file changed");
    assert_eq!(shown, ["Question 3? Answer number 3."]);
    let mut all = String::new();
    let read = read_texts(&found, Split::HeldOut, &mut |text| {
        all.push_str(text);
        true
    });
    read.expect("no file changed");
    assert!(
        all.contains("Answer number") && !all.contains("prompt"),
        "{all}"
    );
    assert_eq!(
        found.lengths.longest_characters,
        "Question 29?\nAnswer number 29.".len() as u32
    );
}

#[test]
fn a_folder_reads_its_conversations_and_splits_by_file_name() {
    let folder = Folder::new();
    let row = |n: usize| {
        format!(
            r#"{{"prompt":"{}","completion":"{}"}}"#,
            turn(n).0,
            turn(n).1
        )
    };
    folder.put("train.jsonl", rows(row).as_bytes());
    folder.put("valid.jsonl", rows(row).as_bytes());
    folder.put("README.md", b"About these conversations.");
    folder.put("prices.csv", b"item,price\na,1\nb,2\n");
    let (options, texts) = (InspectOptions::default(), TextOptions::default());
    let detected = detect(folder.path(), &options, &texts, &|_| {}).expect("it can be read");
    assert!(matches!(detected, DetectedDataset::Texts(_)));
    let found = found(&folder);
    assert_eq!(
        (found.count(Split::Train), found.count(Split::HeldOut)),
        (30, 30)
    );
    let other = found
        .skipped
        .iter()
        .find(|file| file.path.ends_with("prices.csv"));
    assert!(
        other.is_some_and(|file| file.reason.contains("not conversations")),
        "{:?}",
        found.skipped
    );
}

/// Twenty prompts, each with three answers. White space around a prompt does not count.
#[test]
fn conversations_with_equal_prompts_are_in_one_part() {
    let folder = Folder::new();
    let row = |n: usize| {
        let (space, prompt) = (" ".repeat(n % 3), n / 3);
        format!(
            r#"{{"messages":[{{"role":"system","content":"Rule {n}"}},{{"role":"user","content":"{space}Prompt {prompt}?{space}"}},{{"role":"assistant","content":"Answer {n}"}}]}}"#
        )
    };
    let all: Vec<String> = (0..60).map(row).collect();
    folder.put("chats.jsonl", all.join("\n").as_bytes());
    let found = found(&folder);
    let held_out = |prompt: usize| {
        let rows = found
            .samples
            .iter()
            .filter(|row| row.row as usize / 3 == prompt);
        rows.filter(|row| row.split == Split::HeldOut).count()
    };
    let counts: Vec<usize> = (0..20).map(held_out).collect();
    assert!(
        counts.iter().all(|count| [0, 3].contains(count)),
        "{counts:?}"
    );
    assert_eq!(counts.iter().sum::<usize>(), 12);
}

/// The same instruction for every row groups nothing; otherwise no conversation would be held out.
#[test]
fn one_prompt_for_all_conversations_still_leaves_some_held_out() {
    let folder = Folder::new();
    let row = |n: usize| format!(r#"{{"prompt":"Write something.","completion":"Answer {n}"}}"#);
    let all: Vec<String> = (0..40).map(row).collect();
    folder.put("chats.jsonl", all.join("\n").as_bytes());
    let found = found(&folder);
    assert_eq!(
        (found.count(Split::Train), found.count(Split::HeldOut)),
        (32, 8)
    );
}

/// A Parquet file whose column `messages` is a list of structs, one row for each list.
fn nested_parquet(rows: &[Vec<(&str, String)>]) -> Vec<u8> {
    let schema = "message rows { required int64 id; required group messages (list) { repeated group list {
        required group element { required binary role (utf8); required binary content (utf8); } } } }";
    let schema = Arc::new(parse_message_type(schema).expect("it is a schema"));
    let mut bytes = Vec::new();
    let properties = Arc::new(WriterProperties::builder().build());
    let mut writer =
        SerializedFileWriter::new(&mut bytes, schema, properties).expect("memory can be written");
    let mut group = writer.next_row_group().expect("memory can be written");
    let mut next = |write: &mut dyn FnMut(&mut SerializedColumnWriter)| {
        let mut column = group.next_column().expect("memory").expect("there is one");
        write(&mut column);
        column.close().expect("memory can be written");
    };
    next(&mut |column| {
        let ids: Vec<i64> = (0..rows.len() as i64).collect();
        let written = column.typed::<Int64Type>().write_batch(&ids, None, None);
        written.expect("memory can be written");
    });
    let repeated = rows
        .iter()
        .flat_map(|row| (0..row.len()).map(|n| i16::from(n > 0)));
    let repeated: Vec<i16> = repeated.collect();
    let present = vec![1; repeated.len()];
    for of_role in [true, false] {
        let text = |(role, content): &(&str, String)| {
            ByteArray::from(if of_role { *role } else { content.as_str() })
        };
        let texts: Vec<ByteArray> = rows.iter().flatten().map(text).collect();
        next(&mut |column| {
            let typed = column.typed::<ByteArrayType>();
            let written = typed.write_batch(&texts, Some(&present), Some(&repeated));
            written.expect("memory can be written");
        });
    }
    group.close().expect("memory can be written");
    writer.close().expect("memory can be written");
    bytes
}

#[test]
fn parquet_files_have_nested_messages() {
    let folder = Folder::new();
    let row = |n: usize| {
        let (asked, answer) = turn(n);
        let mut row = vec![("user", asked), ("assistant", answer)];
        row.extend(
            n.is_multiple_of(2)
                .then(|| ("user", "Thanks \"you\"".to_owned())),
        );
        row
    };
    let rows: Vec<_> = (0..30).map(row).collect();
    let file = folder.put("chats.parquet", &nested_parquet(&rows));
    let found = look_at(&file, &TextOptions::default());
    assert!(
        found.has_conversations() && found.refusal.is_none(),
        "{found:?}"
    );
    assert_eq!((found.samples.len(), found.skipped_rows.len()), (30, 0));
    let examples = conversation_examples(&found, &encoder(), 30).expect("no file changed");
    let texts: Vec<String> = examples
        .into_iter()
        .map(|example| example.encoded.expect("it can be learned").text)
        .collect();
    let quoted = texts
        .iter()
        .filter(|text| text.contains("Thanks \"you\""))
        .count();
    assert!(texts.len() == 24 && quoted > 5, "{texts:?}");
}

#[test]
fn a_parquet_file_with_millions_of_messages_in_a_row_is_refused() {
    let folder = Folder::new();
    let row = vec![("user", String::new()); 5_000];
    let file = folder.put("chats.parquet", &nested_parquet(&[row]));
    let found = look_at(&file, &TextOptions::default());
    let reasons: Vec<&str> = found
        .skipped
        .iter()
        .map(|file| file.reason.as_str())
        .collect();
    assert!(reasons[0].contains("more than 1,000 values"), "{reasons:?}");
}
