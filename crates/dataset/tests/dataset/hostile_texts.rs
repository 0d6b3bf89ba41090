//! Broken, huge or malicious files of texts: each is left out with a reason, and memory stays
//! bounded.

use crate::small_child::{CHILD, run_in_small_child};
use crate::support::Folder;
use crate::text_tables::{found, look_at};
use dataset::{Split, Task, TextDataset, TextInspection, TextOptions, Tokenizer};
use parquet::basic::{BrotliLevel, Compression, GzipLevel, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::file::properties::{
    EnabledStatistics, WriterProperties, WriterPropertiesBuilder, WriterVersion,
};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

/// A Parquet file of texts and labels. A missing text is null.
fn parquet_of(rows: &[(Option<&str>, i64)], labels: &[&str]) -> Vec<u8> {
    let rows: Vec<(Option<ByteArray>, i64)> = rows
        .iter()
        .map(|(text, label)| (text.map(ByteArray::from), *label))
        .collect();
    write_parquet(&rows, labels)
}

fn write_parquet(rows: &[(Option<ByteArray>, i64)], labels: &[&str]) -> Vec<u8> {
    let snappy = WriterProperties::builder().set_compression(Compression::SNAPPY);
    write_parquet_with(rows, labels, snappy)
}

fn write_parquet_with(
    rows: &[(Option<ByteArray>, i64)],
    labels: &[&str],
    properties: WriterPropertiesBuilder,
) -> Vec<u8> {
    let schema = "message rows { optional binary text (utf8); required int64 label; }";
    let schema = Arc::new(parse_message_type(schema).expect("it is a schema"));
    let names = format!(
        "{{\"info\": {{\"features\": {{\"label\": {{\"names\": {labels:?}, \"_type\": \"ClassLabel\"}}}}}}}}"
    );
    let about = parquet::file::metadata::KeyValue::new("huggingface".to_owned(), names);
    let properties = properties
        .set_key_value_metadata(Some(vec![about]))
        .set_dictionary_page_size_limit(32 << 20)
        .set_statistics_enabled(EnabledStatistics::None)
        .build();
    let mut bytes = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut bytes, schema, Arc::new(properties))
        .expect("memory can be written");
    let mut group = writer.next_row_group().expect("memory can be written");
    let mut column = group
        .next_column()
        .expect("memory can be written")
        .expect("there is one");
    let texts: Vec<ByteArray> = rows.iter().filter_map(|(text, _)| text.clone()).collect();
    let present: Vec<i16> = rows
        .iter()
        .map(|(text, _)| i16::from(text.is_some()))
        .collect();
    column
        .typed::<ByteArrayType>()
        .write_batch(&texts, Some(&present), None)
        .expect("memory can be written");
    column.close().expect("memory can be written");
    let mut column = group
        .next_column()
        .expect("memory can be written")
        .expect("there is one");
    let numbers: Vec<i64> = rows.iter().map(|(_, label)| *label).collect();
    column
        .typed::<Int64Type>()
        .write_batch(&numbers, None, None)
        .expect("memory can be written");
    column.close().expect("memory can be written");
    group.close().expect("memory can be written");
    writer.close().expect("memory can be written");
    bytes
}

fn reason(found: &TextInspection, file: &str) -> String {
    let of_it = found
        .skipped
        .iter()
        .find(|s| s.path.to_string_lossy() == file);
    of_it.map(|s| s.reason.clone()).unwrap_or_default()
}

#[test]
fn parquet_has_texts_and_the_names_of_its_labels() {
    let folder = Folder::new();
    let rows: Vec<(Option<String>, i64)> = (0..1500)
        .map(|i| {
            (
                (i != 7).then(|| format!("row number {i}")),
                i64::from(i % 3 == 0),
            )
        })
        .collect();
    let views: Vec<(Option<&str>, i64)> = rows
        .iter()
        .map(|(text, label)| (text.as_deref(), *label))
        .collect();
    folder.put("rows.parquet", &parquet_of(&views, &["down", "up"]));
    let found = found(&folder);
    let classes: Vec<(&str, u32)> = found
        .classes
        .iter()
        .map(|c| (c.name.as_str(), c.samples()))
        .collect();
    assert_eq!(classes, [("down", 999), ("up", 500)]);
    assert_eq!(found.skipped_rows[0].describe_lines(), "line 8");
    let of = |part| TextDataset::open(&found, part).expect("no file changed");
    let (train, held_out) = (of(Split::Train), of(Split::HeldOut));
    let all = (0..train.len())
        .map(|i| train.row(i))
        .chain((0..held_out.len()).map(|i| held_out.row(i)));
    let all: Vec<(&str, u32)> = all.collect();
    assert!(all.contains(&("row number 0", 1)) && all.contains(&("row number 1499", 0)));
}

/// Every codec that Parquet has and Ebb reads.
fn codecs() -> [Compression; 7] {
    [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::ZSTD(ZstdLevel::default()),
        Compression::GZIP(GzipLevel::default()),
        Compression::BROTLI(BrotliLevel::default()),
        Compression::LZ4,
        Compression::LZ4_RAW,
    ]
}

#[test]
fn a_parquet_file_has_the_same_rows_in_every_codec() {
    let text = |i: usize| format!("row number {i}, and a sentence that repeats");
    let rows: Vec<(Option<ByteArray>, i64)> = (0..1500)
        .map(|i| {
            let text = (i != 7).then(|| ByteArray::from(text(i).as_str()));
            (text, i64::from(i % 3 == 0))
        })
        .collect();
    for codec in codecs() {
        for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
            let properties = WriterProperties::builder()
                .set_compression(codec)
                .set_writer_version(version)
                .set_dictionary_enabled(version == WriterVersion::PARQUET_1_0);
            let folder = Folder::new();
            let bytes = write_parquet_with(&rows, &["down", "up"], properties);
            folder.put("rows.parquet", &bytes);
            let found = found(&folder);
            assert_eq!(found.refusal, None, "{codec:?} {version:?}");
            let train = TextDataset::open(&found, Split::Train).expect("no file changed");
            let held_out = TextDataset::open(&found, Split::HeldOut).expect("no file changed");
            let mut all: Vec<&str> = train.texts().chain(held_out.texts()).collect();
            let mut expected: Vec<String> = (0..1500).filter(|i| *i != 7).map(text).collect();
            all.sort_unstable();
            expected.sort_unstable();
            assert!(all == expected, "{codec:?} {version:?}");
        }
    }
}

/// The library would unpack the page as far as it goes.
#[test]
fn a_parquet_page_that_unpacks_beyond_its_declared_size_is_refused() {
    let long = ByteArray::from("a".repeat(3_000_000).into_bytes());
    for codec in [
        Compression::GZIP(GzipLevel::default()),
        Compression::BROTLI(BrotliLevel::default()),
    ] {
        let properties = WriterProperties::builder()
            .set_compression(codec)
            .set_dictionary_enabled(false);
        let rows = [(Some(long.clone()), 0), (Some(long.clone()), 1)];
        let mut bytes = write_parquet_with(&rows, &[], properties);
        assert!(bytes.len() < 100_000, "{codec:?}: {}", bytes.len());
        let folder = Folder::new();
        folder.put("labels.csv", b"text,label\none,a\ntwo,b\nthree,a\n");
        folder.put("rows.parquet", &bytes);
        let intact = reason(&found(&folder), "rows.parquet");
        assert!(!intact.contains("declares"), "{codec:?}: {intact}");
        // The first page header: type, then unpacked size as a number of four bytes.
        assert_eq!((bytes[4], bytes[6]), (0x15, 0x15), "a page header");
        assert!(bytes[7..10].iter().all(|byte| byte & 0x80 != 0) && bytes[10] & 0x80 == 0);
        bytes[7..11].copy_from_slice(&[0x80 | 0x20, 0x80, 0x80, 0x00]);
        folder.put("rows.parquet", &bytes);
        let reason = reason(&found(&folder), "rows.parquet");
        assert!(
            reason.contains("larger than its header declares"),
            "{codec:?}: {reason}"
        );
    }
}

#[test]
fn a_damaged_parquet_file_affects_only_itself() {
    let whole = parquet_of(
        &[
            (Some("good day"), 0),
            (Some("bad day"), 1),
            (Some("fair day"), 0),
        ],
        &[],
    );
    let folder = Folder::new();
    let labels = format!("text,label\n{}", "one,a\ntwo,b\n".repeat(500));
    folder.put("labels.csv", labels.as_bytes());
    for place in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[place] ^= 0xFF;
        folder.put("rows.parquet", &bytes);
        // It may have other columns, fewer rows, or be refused, but the process goes on.
        let found = found(&folder);
        assert!(!found.samples.is_empty());
    }
    for length in [0, 3, 8, whole.len() / 2, whole.len() - 1] {
        folder.put("rows.parquet", &whole[..length]);
        assert!(
            !reason(&found(&folder), "rows.parquet").is_empty(),
            "cut to {length}"
        );
    }
}

#[test]
fn a_parquet_file_that_declares_gigabytes_is_refused() {
    // The first page header: type, then unpacked size as a variable-length number of one byte.
    let whole = parquet_of(&[(Some("good day"), 0), (Some("bad day"), 1)], &[]);
    let folder = Folder::new();
    folder.put("labels.csv", b"text,label\none,a\ntwo,b\nthree,a\n");
    assert_eq!(
        (whole[4], whole[6]),
        (0x15, 0x15),
        "a page header follows the magic bytes"
    );
    let size = whole[7];
    assert!(size < 0x80, "one byte");
    // The same field with a number of five bytes: more than two billion.
    let mut bytes = whole.clone();
    bytes[7..12].copy_from_slice(&[0xFE, 0xFF, 0xFF, 0xFF, 0x0F]);
    folder.put("rows.parquet", &bytes);
    let reason = reason(&found(&folder), "rows.parquet");
    assert!(
        reason.contains("when unpacked") || reason.contains("damaged"),
        "{reason}"
    );
}

#[test]
fn a_file_beyond_the_size_limit_is_not_read() {
    let folder = Folder::new();
    folder.put("small.csv", b"text,label\none,a\ntwo,b\nthree,a\n");
    // Sparse files of five gigabytes.
    for name in ["large.csv", "large.txt", "large.parquet", "large.jsonl"] {
        let file = File::create(folder.path().join(name)).expect("a file can be made");
        file.set_len(5_000_000_000).expect("it can be sparse");
    }
    let found = found(&folder);
    for name in ["large.csv", "large.parquet", "large.jsonl"] {
        assert_eq!(
            reason(&found, name),
            "The file has 4.7 GB; Ebb reads at most 512 MB from one file. Split this file into smaller files."
        );
    }
    assert_eq!(found.samples.len(), 3);
    let alone = look_at(&folder.path().join("large.txt"), &TextOptions::default());
    assert!(
        alone
            .refusal
            .is_some_and(|why| why.starts_with("No document can be used")),
        "it is refused"
    );
}

#[test]
fn huge_rows_and_unclosed_quotes_are_left_out() {
    let folder = Folder::new();
    let mut csv = String::from("text,label\nshort,a\n");
    csv.push_str(&format!("{},b\nanother,b\n", "long ".repeat(400_000)));
    csv.push_str("fine,a\n\"never closed,b\nand more,a\nand more,b\n");
    folder.put("rows.csv", csv.as_bytes());
    let found = found(&folder);
    assert_eq!(found.samples.len(), 3);
    let skipped: Vec<String> = found
        .skipped_rows
        .iter()
        .map(|s| format!("{}: {}", s.describe_lines(), s.reason))
        .collect();
    assert_eq!(
        skipped,
        [
            "line 3: the text is longer than 1.0 MB",
            "line 6: a quote that opens here is never closed"
        ]
    );
}

#[test]
fn binary_files_named_like_texts_are_skipped() {
    let folder = Folder::new();
    let mut key = 1u64;
    let mut next = || {
        key = key.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
        (key >> 33) as u8
    };
    let junk: Vec<u8> = (0..50_000).map(|_| next()).collect();
    folder.put("junk.txt", &junk);
    folder.put(
        "deep.jsonl",
        format!("{}\n{}\n", "[".repeat(100_000), "{\"a\":".repeat(100_000)).as_bytes(),
    );
    folder.put("list.json", b"[\"a\", \"b\"]");
    folder.put("nuls.txt", &[0; 3000]);
    folder.put(
        "book.txt",
        "A line of a good book.\n".repeat(100).as_bytes(),
    );
    let found = found(&folder);
    assert_eq!(found.task, Task::LanguageModel);
    assert!(reason(&found, "junk.txt").contains("binary data"));
    assert!(reason(&found, "nuls.txt").contains("binary data"));
    assert!(reason(&found, "deep.jsonl").contains("no readable row"));
    assert_eq!(
        found.count(Split::Train) + found.count(Split::HeldOut),
        found.samples.len() as u64
    );
}

#[test]
fn hidden_texts_are_skipped_with_the_reason() {
    let folder = Folder::new();
    folder.put("book.md", "A line of a good book.\n".repeat(100).as_bytes());
    for name in ["..md", ".x.md", ".notes.TXT"] {
        folder.put(name, b"A note.\n");
    }
    folder.put("._book.md", b"\0\x05\x16\x07");
    let found = found(&folder);
    assert_eq!(found.files.len(), 1);
    for name in ["..md", ".x.md", ".notes.TXT"] {
        assert!(reason(&found, name).contains("starts with a dot"), "{name}");
    }
    assert_eq!(found.ignored.system, 4);
}

#[test]
fn empty_tables_and_headers_alone_are_skipped() {
    let folder = Folder::new();
    folder.put("rows.csv", b"text,label\none,a\ntwo,b\nthree,a\n");
    folder.put("head.csv", b"text,label\n");
    folder.put("nothing.tsv", b"\n\n\n");
    folder.put("none.parquet", &parquet_of(&[], &["a", "b"]));
    let found = found(&folder);
    let none = reason(&found, "none.parquet");
    assert!(!none.is_empty() && !none.contains("first lines"), "{none}");
    for name in ["head.csv", "nothing.tsv"] {
        assert_eq!(
            reason(&found, name),
            "The file has no readable row. Check the first lines of the file."
        );
    }
}

/// Tables that would take gigabytes of memory if every cell were kept.
fn put_expanding_tables(folder: &Folder) {
    let long = ByteArray::from("long ".repeat(1 << 20).into_bytes());
    let rows: Vec<(Option<ByteArray>, i64)> =
        (0..500).map(|i| (Some(long.clone()), i % 2)).collect();
    folder.put("repeated/rows.parquet", &write_parquet(&rows, &[]));
    let commas = ",".repeat(2_000_000);
    folder.put("wide/rows.csv", format!("{commas}\n{commas}\n").as_bytes());
    let good: String = (0..20).map(|i| format!("one {i},a\ntwo {i},b\n")).collect();
    let late = format!("text,label\n{good}{commas}\nthree,a\n");
    folder.put("late/rows.csv", late.as_bytes());
    let row = |text: String, label: &str| format!("{{\"text\":\"{text}\",\"label\":\"{label}\"");
    let good: String = (0..20)
        .map(|i| row(format!("one {i}"), "a") + "}\n" + &row(format!("two {i}"), "b") + "}\n")
        .collect();
    let last = row("three".to_owned(), "a");
    let zeros = ",0".repeat(40_000_000);
    let nested = format!("{good}{last},\"x\":[0{zeros}]}}\n");
    folder.put("nested/rows.jsonl", nested.as_bytes());
    let fields = ",\"k\":0".repeat(1_000_000);
    let keys = format!("{good}{last}{fields}}}\n");
    folder.put("keys/rows.jsonl", keys.as_bytes());
}

/// Runs itself in a child process with 2 GB of address space. A larger allocation aborts, which no
/// test can catch.
#[test]
fn no_table_expands_to_gigabytes() {
    if let Some(folder) = std::env::var_os(CHILD) {
        return read_expanding_tables(Path::new(&folder));
    }
    let folder = Folder::new();
    put_expanding_tables(&folder);
    run_in_small_child(2_000_000, folder.path(), "read every table");
}

/// Runs in the child process.
fn read_expanding_tables(folder: &Path) {
    let read = |name: &str| look_at(&folder.join(name), &TextOptions::default());
    let check_row = |name: &str, rows: usize, expected: &str| {
        let found = read(name);
        assert_eq!(found.samples.len(), rows, "{name}");
        let mut reasons = found.skipped_rows.iter().map(|s| s.reason.as_str());
        assert!(
            reasons.any(|reason| reason.contains(expected)),
            "{name}: {:?}",
            found.skipped_rows
        );
    };
    check_row("repeated/rows.parquet", 0, "when unpacked");
    check_row("late/rows.csv", 40, "more than a million delimiters");
    check_row("keys/rows.jsonl", 40, "more than 2,000 fields");
    assert_eq!(read("nested/rows.jsonl").samples.len(), 41);
    let wide = read("wide/rows.csv");
    let reasons: Vec<&str> = wide.skipped.iter().map(|s| s.reason.as_str()).collect();
    assert!(
        reasons.len() == 1 && reasons[0].contains("more than 5,000 cells"),
        "{reasons:?}"
    );
    println!("read every table");
}

/// Opening a pipe would block forever.
#[cfg(unix)]
#[test]
fn a_file_that_became_a_pipe_is_not_opened() {
    let folder = Folder::new();
    let rows = "one,a\ntwo,b\n".repeat(20);
    let file = folder.put("rows.csv", format!("text,label\n{rows}").as_bytes());
    let found = found(&folder);
    std::fs::remove_file(&file).expect("it is there");
    let made = Command::new("mkfifo").arg(&file).status();
    assert!(made.expect("mkfifo can be started").success());
    let opened = TextDataset::open(&found, Split::Train);
    let refused = opened.expect_err("a pipe is no file").to_string();
    assert!(refused.contains("a pipe or a device"), "{refused}");
}

/// The library that writes a vocabulary counts up to its largest number.
#[test]
fn a_vocabulary_with_a_huge_number_is_refused() {
    let folder = Folder::new();
    let load = |number: u32| {
        let vocabulary = format!(
            "{{\"version\": \"1.0\", \"added_tokens\": [], \"model\": {{\"type\": \"BPE\", \"vocab\": {{\"a\": {number}}}, \"merges\": []}}}}"
        );
        let file = folder.put("tokenizer.json", vocabulary.as_bytes());
        Tokenizer::load(&file).map_err(|error| error.to_string())
    };
    let small = load(9_999_999).expect("it is within the limit");
    assert_eq!(small.vocabulary(), 1);
    for number in [10_000_000, u32::MAX - 1, u32::MAX] {
        let refused = load(number).expect_err("it is beyond the limit");
        assert!(refused.contains("numbers above 10,000,000"), "{refused}");
    }
}
