//! Documents: what they are found to be, and how they become tokens and windows.

use crate::support::Folder;
use crate::texts::{found, look_at};
use dataset::{Documents, Packing, Part, Task, TextOptions, TextRows, Tokenizer, Vocabulary};
use std::fs;

/// A few thousand words in a hundred paragraphs, the same each time.
fn prose() -> String {
    let words = [
        "the", "river", "runs", "under", "bridges", "and", "mills", "while", "geese", "wander",
        "über", "fields",
    ];
    let mut text = String::new();
    for i in 0..2400usize {
        text.push_str(words[(i * i + i / 7) % words.len()]);
        text.push_str(if i % 24 == 23 { ".\n" } else { " " });
    }
    text
}

#[test]
fn one_long_text_holds_out_its_end() {
    let folder = Folder::new();
    let text = format!("\u{FEFF}{}", prose());
    let file = folder.put("book.txt", text.as_bytes());
    let found = look_at(&file, &TextOptions::default());
    assert_eq!((found.task, found.samples.len()), (Task::LanguageModel, 2));
    assert_eq!(found.describe_split(), "the last 20 % of the only document");
    assert_eq!(found.found(), 1);
    assert_eq!(
        found.lengths.longest_characters as usize,
        prose().chars().count()
    );
    let read = |part| {
        TextRows::open(&found, part)
            .expect("nothing changed")
            .row(0)
            .0
            .to_owned()
    };
    let (head, tail) = (read(Part::Train), read(Part::HeldOut));
    assert_eq!(head.clone() + &tail, prose());
    assert!(head.ends_with('\n'), "it is cut at the end of a line");
    let share = tail.len() as f64 / prose().len() as f64;
    assert!((0.17..=0.2).contains(&share), "{share}");
}

#[test]
fn a_text_of_one_line_is_cut_too() {
    let folder = Folder::new();
    folder.put(
        "line.txt",
        format!("{}\n", "größer ".repeat(400)).as_bytes(),
    );
    let found = found(&folder);
    assert_eq!(
        (found.count(Part::Train), found.count(Part::HeldOut)),
        (1, 1)
    );
}

#[test]
fn documents_are_files_and_lines_and_are_held_out_whole() {
    let folder = Folder::new();
    let prose = prose();
    for (i, chunk) in prose.as_bytes().chunks(900).enumerate() {
        folder.put(
            &format!("notes/{i:02}.md"),
            String::from_utf8_lossy(chunk).as_bytes(),
        );
    }
    folder.put("math.jsonl", b"{\"question\": \"What is 2 + 2?\", \"answer\": \"It is 4.\"}\n{\"question\": \"And 3 + 3?\", \"answer\": \"6\"}\n");
    let found = found(&folder);
    let columns: Vec<&str> = found.columns.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(
        (found.task, columns),
        (Task::LanguageModel, vec!["question", "answer"])
    );
    let files = prose.len().div_ceil(900);
    assert_eq!(found.samples.len(), files + 2);
    assert_eq!(
        found.count(Part::HeldOut),
        ((files + 2) as f64 * 0.2).round() as u64
    );
    let all = TextRows::open(&found, Part::Train).expect("nothing changed");
    let other = TextRows::open(&found, Part::HeldOut).expect("nothing changed");
    let texts: Vec<&str> = all.texts().chain(other.texts()).collect();
    assert!(texts.contains(&"What is 2 + 2?\nIt is 4."), "{texts:?}");
}

#[test]
fn bytes_are_tokens_at_once_and_come_back() {
    let tokenizer = Tokenizer::bytes();
    let text = "Ünïcode \u{1F980}\n";
    let tokens = tokenizer.encode(text).expect("bytes always split");
    assert_eq!(
        (tokens.len(), tokenizer.decode(&tokens).as_str()),
        (text.len(), text)
    );
    assert_eq!(
        (tokenizer.vocabulary(), tokenizer.boundary()),
        (257, Some(256))
    );
    let folder = Folder::new();
    folder.put("a.txt", prose().as_bytes());
    folder.put("b.txt", prose().to_uppercase().as_bytes());
    let found = found(&folder);
    let train = Documents::open(&found, Part::Train, &tokenizer).expect("nothing changed");
    let held_out = Documents::open(&found, Part::HeldOut, &tokenizer).expect("nothing changed");
    assert_eq!((train.len(), held_out.len()), (1, 1));
    assert_eq!(train.bytes() as usize, train.token_count());
    let packing = Packing::shuffled(&train, 128, 256, 7, 0);
    assert_eq!(packing.len(), (train.token_count() + 1).div_ceil(128));
    assert_eq!(packing.window(0).inputs.len(), 128);
}

#[test]
fn byte_pairs_learnt_from_the_texts_bring_any_text_back() {
    let text = prose();
    let learn =
        || Tokenizer::learn(Vocabulary::BytePairs, 400, text.lines()).expect("there is text");
    let tokenizer = learn();
    assert_eq!(
        tokenizer.to_json(),
        learn().to_json(),
        "the same texts, the same vocabulary"
    );
    assert!(
        (300..=400).contains(&tokenizer.vocabulary()),
        "{}",
        tokenizer.vocabulary()
    );
    for foreign in [text.as_str(), "日本語 <|endoftext|> \u{1F980}\r\n\ttabs"] {
        let tokens = tokenizer.encode(foreign).expect("every byte has a token");
        assert_eq!(tokenizer.decode(&tokens), foreign);
        assert!(
            !tokens.contains(&tokenizer.boundary().expect("it has one")),
            "a text cannot end itself"
        );
    }
    let shorter = tokenizer.encode(&text).expect("it splits").len();
    assert!(
        shorter * 2 < text.len(),
        "{shorter} tokens of {} bytes",
        text.len()
    );
}

#[test]
fn word_pieces_are_framed_and_survive_their_file() {
    let text = prose();
    let tokenizer =
        Tokenizer::learn(Vocabulary::WordPieces, 200, text.lines()).expect("there is text");
    let token = |name| tokenizer.token(name).expect("it is a special token");
    let tokens = tokenizer
        .encode_framed("The river Runs")
        .expect("it splits");
    assert_eq!(
        (tokens[0], tokens[tokens.len() - 1]),
        (token("[CLS]"), token("[SEP]"))
    );
    assert_eq!(tokenizer.decode(&tokens), "the river runs");
    let unknown = tokenizer
        .encode("\u{65e5}")
        .expect("there is a token for the unknown");
    assert_eq!(unknown, [token("[UNK]")]);
    let folder = Folder::new();
    let json = tokenizer.to_json().expect("it can be written");
    let file = folder.put("tokenizer.json", json.as_bytes());
    let loaded = Tokenizer::load(&file).expect("it is a tokenizer");
    assert_eq!(
        loaded.encode_framed(&text).ok(),
        tokenizer.encode_framed(&text).ok()
    );
    assert_eq!(loaded.boundary(), Some(token("[SEP]")));
}

#[test]
fn what_is_no_tokenizer_is_named() {
    let folder = Folder::new();
    let check = |content: &str| {
        let file = folder.put("tokenizer.json", content.as_bytes());
        let error = Tokenizer::load(&file).expect_err("it is none").to_string();
        assert!(
            error.contains("tokenizer.json is no tokenizer that can be used")
                && error.contains("Take a tokenizer.json"),
            "{error}"
        );
    };
    check("");
    check("{}");
    check(
        "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 4294967295}, \"merges\": [[\"x\", \"y\"]]}}",
    );
    fs::remove_file(folder.path().join("tokenizer.json")).expect("it can be removed");
    let error = Tokenizer::load(&folder.path().join("tokenizer.json")).expect_err("it is gone");
    assert!(error.to_string().contains("No such file"), "{error}");
}
