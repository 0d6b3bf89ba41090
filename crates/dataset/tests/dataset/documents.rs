//! Inspecting documents, and turning them into tokens and windows.

use crate::support::Folder;
use crate::text_tables::{found, look_at};
use dataset::{
    DatasetError, DetectedDataset, Documents, InspectOptions, Packing, ReadProgress, Split, Task,
    TextDataset, TextEncoder, TextInspection, TextManifest, TextOptions, TokenWidth, Tokenizer,
    Vocabulary, WordCounts, detect,
};
use std::cell::Cell;
use std::fs;

/// A fixed text of 2,400 words in a hundred paragraphs.
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
fn the_end_of_a_single_document_is_held_out() {
    let folder = Folder::new();
    let text = format!("\u{FEFF}{}", prose());
    let file = folder.put("book.txt", text.as_bytes());
    let found = look_at(&file, &TextOptions::default());
    assert_eq!((found.task, found.samples.len()), (Task::LanguageModel, 2));
    assert_eq!(found.describe_split(), "the last 20 % of the only document");
    assert_eq!(found.source_count(), 1);
    assert_eq!(
        found.lengths.longest_characters as usize,
        prose().chars().count()
    );
    let read = |part| {
        TextDataset::open(&found, part)
            .expect("no file changed")
            .row(0)
            .0
            .to_owned()
    };
    let (head, tail) = (read(Split::Train), read(Split::HeldOut));
    assert_eq!(head.clone() + &tail, prose());
    assert!(head.ends_with('\n'), "the cut is at the end of a line");
    let share = tail.len() as f64 / prose().len() as f64;
    assert!((0.17..=0.2).contains(&share), "{share}");
}

#[test]
fn a_document_of_one_line_is_cut_too() {
    let folder = Folder::new();
    folder.put(
        "line.txt",
        format!("{}\n", "größer ".repeat(400)).as_bytes(),
    );
    let found = found(&folder);
    assert_eq!(
        (found.count(Split::Train), found.count(Split::HeldOut)),
        (1, 1)
    );
}

#[test]
fn files_and_lines_are_documents_and_held_out_whole() {
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
        found.count(Split::HeldOut),
        ((files + 2) as f64 * 0.2).round() as u64
    );
    let all = TextDataset::open(&found, Split::Train).expect("no file changed");
    let other = TextDataset::open(&found, Split::HeldOut).expect("no file changed");
    let texts: Vec<&str> = all.texts().chain(other.texts()).collect();
    assert!(texts.contains(&"What is 2 + 2?\nIt is 4."), "{texts:?}");
}

#[test]
fn the_parts_of_a_large_file_are_documents() {
    let folder = Folder::new();
    let text = prose();
    let text = text.repeat(1 + (65 << 20) / text.len());
    folder.put("large.txt", text.as_bytes());
    let read = Cell::new(ReadProgress::default());
    let calls = Cell::new(0);
    let on_progress = |progress: ReadProgress| {
        assert!(progress.bytes >= read.get().bytes);
        assert!((0.0..=1.0).contains(&progress.fraction()));
        read.set(progress);
        calls.set(calls.get() + 1);
    };
    let options = InspectOptions::default();
    let found = detect(
        folder.path(),
        &options,
        &TextOptions::default(),
        &on_progress,
    );
    let Ok(DetectedDataset::Texts(found)) = found else {
        panic!("it is a folder of texts");
    };
    assert!(calls.get() > 3, "{} calls", calls.get());
    assert_eq!(read.get().bytes, text.len() as u64);
    assert_eq!((found.task, found.samples.len()), (Task::LanguageModel, 5));
    assert_eq!(found.count(Split::HeldOut), 1);
    assert!(found.notes.iter().any(|note| note.contains("large.txt")));
    // A resumed run reads the same parts.
    let saved = serde_json::to_string(&TextManifest::from(&found)).expect("it can be written");
    let saved: TextManifest = serde_json::from_str(&saved).expect("it can be read");
    let found = TextInspection::from(saved);
    let bytes = |split| {
        let documents = Documents::open(&found, split, &Tokenizer::bytes());
        documents.expect("no file changed").token_count()
    };
    assert_eq!(bytes(Split::Train) + bytes(Split::HeldOut), text.len());
    let changed = text.replacen("mills", "wells", 1);
    folder.put("large.txt", changed.as_bytes());
    let opened = [Split::Train, Split::HeldOut]
        .map(|split| Documents::open(&found, split, &Tokenizer::bytes()).err());
    assert!(
        opened
            .iter()
            .any(|error| matches!(error, Some(DatasetError::FileChanged { .. }))),
        "{opened:?}"
    );
}

#[test]
fn bytes_are_tokens_and_decode_to_the_same_text() {
    let tokenizer = Tokenizer::bytes();
    let text = "Ünïcode \u{1F980}\n";
    let tokens = tokenizer.encode(text).expect("bytes can always be encoded");
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
    let train = Documents::open(&found, Split::Train, &tokenizer).expect("no file changed");
    let held_out = Documents::open(&found, Split::HeldOut, &tokenizer).expect("no file changed");
    assert_eq!((train.len(), held_out.len()), (1, 1));
    assert_eq!(train.bytes() as usize, train.token_count());
    let packing = Packing::shuffled(&train, 128, 256, 7, 0);
    assert_eq!(packing.len(), (train.token_count() + 1).div_ceil(128));
    assert_eq!(packing.window(0).inputs.len(), 128);
}

#[test]
fn a_long_text_is_encoded_in_chunks_to_the_same_tokens() {
    let text = prose();
    let tokenizer =
        Tokenizer::train(Vocabulary::BytePairs, 400, text.lines()).expect("there is text");
    let long = format!("{text}\n\n  {text}\n").repeat(1 + 300_000 / text.len());
    // Nothing frames a text of this vocabulary, so this encodes the text as a whole.
    let whole = tokenizer.encode_framed(&long).expect("it is encoded");
    assert!(long.len() > 300_000);
    assert_eq!(tokenizer.encode(&long).expect("it is encoded"), whole);
    assert_eq!(tokenizer.decode(&whole), long);
}

#[test]
fn a_stopped_training_of_a_vocabulary_reads_no_more_text() {
    let texts = ["first words", "later phrases"];
    let read = std::sync::atomic::AtomicUsize::new(0);
    let first_only = || read.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0;
    let train = |goes_on: &(dyn Fn() -> bool + Sync)| {
        let texts = texts.into_iter();
        Tokenizer::train_while(Vocabulary::BytePairs, 400, texts, goes_on).expect("there is text")
    };
    let (whole, part) = (train(&|| true), train(&first_only));
    assert!(part.vocabulary() < whole.vocabulary());
}

#[test]
fn counting_words_and_tokenizing_end_when_they_are_stopped() {
    let folder = Folder::new();
    let text = prose().repeat(1 + (4 << 20) / prose().len());
    folder.put("book.txt", text.as_bytes());
    let found = found(&folder);
    let tokenizer = Tokenizer::bytes();
    let mut encoder = TextEncoder::new(&tokenizer, 1);
    let width = TokenWidth::for_tokenizer(&tokenizer);
    let done = Cell::new(0);
    let goes_on = |bytes: u64| {
        done.set(bytes);
        bytes < 1 << 20
    };
    let stopped = Documents::tokenized(&found, Split::Train, &mut encoder, width, &goes_on);
    assert!(matches!(stopped, Err(DatasetError::Stopped)));
    assert!(done.get() >= 1 << 20 && done.get() < 3 << 20);
    let stopped = WordCounts::from_split(&found, Split::Train, &goes_on);
    assert!(matches!(stopped, Err(DatasetError::Stopped)));
    assert!(done.get() >= 1 << 20 && done.get() < 3 << 20);
}

#[test]
fn the_words_of_a_split_give_the_same_vocabulary_as_its_texts() {
    let folder = Folder::new();
    folder.put("a.txt", prose().as_bytes());
    folder.put("b.txt", prose().to_uppercase().as_bytes());
    let found = found(&folder);
    let counts = WordCounts::from_split(&found, Split::Train, &|_| true);
    let counted = Tokenizer::learn(320, counts.expect("no file changed"));
    let texts = TextDataset::open(&found, Split::Train).expect("no file changed");
    let trained = Tokenizer::train(Vocabulary::BytePairs, 320, texts.texts());
    assert_eq!(
        counted.expect("there is text").to_json(),
        trained.expect("there is text").to_json()
    );
}

#[test]
fn the_hash_of_a_split_changes_with_its_texts_only() {
    let folder = Folder::new();
    folder.put("a.txt", prose().as_bytes());
    folder.put("b.txt", prose().to_uppercase().as_bytes());
    let hash = || found(&folder).content_hash(Split::Train);
    let before = hash();
    assert_eq!(hash(), before);
    assert_ne!(found(&folder).content_hash(Split::HeldOut), before);
    folder.put("a.txt", prose().replace("mills", "wells").as_bytes());
    folder.put("b.txt", prose().to_lowercase().as_bytes());
    assert_ne!(hash(), before);
}

#[test]
fn byte_pairs_decode_to_the_same_text() {
    let text = prose();
    let train =
        || Tokenizer::train(Vocabulary::BytePairs, 400, text.lines()).expect("there is text");
    let tokenizer = train();
    assert_eq!(
        tokenizer.to_json(),
        train().to_json(),
        "training is deterministic"
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
            "a text never contains the boundary"
        );
    }
    let shorter = tokenizer.encode(&text).expect("it can be encoded").len();
    assert!(
        shorter * 2 < text.len(),
        "{shorter} tokens of {} bytes",
        text.len()
    );
}

#[test]
fn a_wordpiece_vocabulary_is_framed_and_can_be_saved() {
    let text = prose();
    let tokenizer =
        Tokenizer::train(Vocabulary::WordPieces, 200, text.lines()).expect("there is text");
    let token = |name| tokenizer.token(name).expect("it is a special token");
    let tokens = tokenizer
        .encode_framed("The river Runs")
        .expect("it can be encoded");
    assert_eq!(
        (tokens[0], tokens[tokens.len() - 1]),
        (token("[CLS]"), token("[SEP]"))
    );
    assert_eq!(tokenizer.decode(&tokens), "the river runs");
    let unknown = tokenizer
        .encode("\u{65e5}")
        .expect("there is an unknown token");
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
fn files_that_are_not_tokenizers_are_refused() {
    let folder = Folder::new();
    let check = |content: &str| {
        let file = folder.put("tokenizer.json", content.as_bytes());
        let error = Tokenizer::load(&file)
            .expect_err("it is not a tokenizer")
            .to_string();
        assert!(
            error.contains("tokenizer.json cannot be used as a tokenizer")
                && error.contains("Choose a tokenizer.json"),
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
