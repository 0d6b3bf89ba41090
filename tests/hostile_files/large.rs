//! Files that are as large as a reader allows, or whose headers make it do the most work, with 2 GB
//! of address space: each takes at most two seconds and 1 GB.

use crate::readers::{READERS, Reader, parts};
use crate::small_child::{CHILD, run_in_small_child};
use std::fs;
use std::time::{Duration, Instant};

/// What the child prints last.
const DONE: &str = "read all large files";
/// Longest CPU time for one file.
const LONGEST: Duration = Duration::from_secs(2);
/// Most memory for one file, in bytes.
pub const MOST_BYTES: u64 = 1_000_000_000;

/// Reader, what is wrong with the file, and the function that writes it.
type LargeFile = (&'static str, &'static str, fn() -> Vec<u8>);

/// Files just within the limits of a reader, and beyond them.
const LARGE_FILES: &[LargeFile] = &[
    ("events", "a step of millions of numbers", || {
        step_of_numbers(7_900_000)
    }),
    ("events", "a step of too many numbers", || {
        step_of_numbers(60 * MB)
    }),
    ("events", "a later kind of event", || {
        repeated(r#"{"kind":"zeal","x":["#, "0,", "0]}\n", 60 * MB)
    }),
    ("events", "an event of empty lists", || {
        repeated(r#"{"kind":"started","x":["#, "[],", "[]]}\n", 60 * MB)
    }),
    ("events", "an event of many keys", || {
        let begin = r#"{"kind":"warning""#;
        numbered(begin, |key| format!(",\"{key}\":0"), "}\n", 40 * MB)
    }),
    ("events", "a line without an end", || vec![b'a'; 200 * MB]),
    ("events", "many lines", || {
        let line = "{\"kind\":\"warning\",\"at_ms\":1,\"code\":\"\",\"message\":\"\"}\n";
        repeated("", line, "", 20 * MB)
    }),
    ("safetensors", "many notes", || safetensors(&notes(16 * MB))),
    ("safetensors", "too many notes", || {
        safetensors(&notes(90 * MB))
    }),
    ("safetensors", "many tensors", || {
        let tensor = |key: usize| {
            format!(",\"{key}\":{{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}")
        };
        safetensors(&numbered(r#"{"__metadata__":{}"#, tensor, "}", 16 * MB))
    }),
    ("safetensors", "a shape of many sides", || {
        let end = "1],\"data_offsets\":[0,4]}}";
        safetensors(&repeated(
            r#"{"a":{"dtype":"F32","shape":["#,
            "1,",
            end,
            16 * MB,
        ))
    }),
    ("gguf", "a list of many values", || {
        gguf_list(0, &[1], 4_000_000)
    }),
    ("gguf", "a list of too many values", || {
        gguf_list(0, &[1], 60 * MB)
    }),
    ("gguf", "a list of many texts", || {
        gguf_list(
            8,
            &[4, 0, 0, 0, 0, 0, 0, 0, b't', b'e', b'x', b't'],
            4_000_000,
        )
    }),
    ("gguf", "a header that is too long", || {
        gguf_list(
            8,
            &[[0xFF, 0, 0, 0, 0, 0, 0, 0].as_slice(), &[b'a'; 0xFF]].concat(),
            300_000,
        )
    }),
    ("tokenizer", "many numbers", || {
        repeated(
            r#"{"version":"1.0","model":{"type":"BPE","x":["#,
            "0,",
            "0]}}",
            7_900_000,
        )
    }),
    ("tokenizer", "many merges", || {
        let begin = r#"{"version":"1.0","model":{"type":"BPE","vocab":{"a":0,"aa":1},"merges":["#;
        repeated(begin, "[\"a\",\"a\"],", "[\"a\",\"a\"]]}}", 12 * MB)
    }),
    ("tokenizer", "too many merges", || {
        let begin = r#"{"version":"1.0","model":{"type":"BPE","vocab":{"a":0,"aa":1},"merges":["#;
        repeated(begin, "[\"a\",\"a\"],", "[\"a\",\"a\"]]}}", 60 * MB)
    }),
    ("tokenizer", "many tokens", || {
        let begin =
            r#"{"version":"1.0","model":{"type":"WordLevel","unk_token":"a","vocab":{"a":0"#;
        numbered(begin, |key| format!(",\"{key}\":1"), "}}}", 40 * MB)
    }),
    ("tokenizer", "many added tokens", added_tokens),
    ("tokenizer", "many normalizers", || {
        let begin = r#"{"version":"1.0","normalizer":{"type":"Sequence","normalizers":["#;
        let end =
            r#"{"type":"NFC"}]},"model":{"type":"WordLevel","unk_token":"a","vocab":{"a":0}}}"#;
        repeated(begin, r#"{"type":"NFKD"},"#, end, 30 * MB)
    }),
    ("config", "a long dotted key", || {
        repeated("", "a.", "a = 1\n", 4 * MB)
    }),
    ("config", "lists in a list", || {
        repeated("a = [", "[],", "]\n", 4 * MB)
    }),
    ("config", "many keys", || {
        numbered("", |key| format!("k{key} = 1\n"), "", 4 * MB)
    }),
    ("config", "many tables", || {
        numbered("", |key| format!("[k{key}]\n"), "", 4 * MB)
    }),
    ("config", "many tables of a list", || {
        repeated("", "[[a]]\n", "", 4 * MB)
    }),
    ("model_config", "many keys", || {
        numbered(
            r#"{"model_type":"vit""#,
            |key| format!(",\"{key}\":0"),
            "}",
            12 * MB,
        )
    }),
    ("model_config", "many classes", || {
        let class = |key: usize| format!(",\"{key}\":\"a\"");
        numbered(
            r#"{"model_type":"vit","id2label":{"":"a""#,
            class,
            "}}",
            12 * MB,
        )
    }),
    ("model_config", "a config that is too long", || {
        repeated(r#"{"model_type":"llama","x":["#, "0,", "0]}", 60 * MB)
    }),
    ("questions", "many questions", || {
        repeated("", "{\"question\":\"a\",\"answer\":\"b\"}\n", "", 4 * MB)
    }),
    ("questions", "a row that is too long", || {
        repeated("{\"question\":\"", "a", "\",\"answer\":\"b\"}\n", 60 * MB)
    }),
    ("questions", "an answer of many texts", || {
        repeated("{\"question\":\"a\",\"answer\":[", "\"\",", "\"b\"]}\n", MB)
    }),
    ("questions", "a large expression", || {
        repeated("{\"question\":\"a\",\"regex\":\"", "(a|b)*", "\"}\n", MB)
    }),
    ("archive", "a list of many files", || {
        archive(&archive_list(40_000))
    }),
    ("archive", "a list of too many files", || {
        archive(&archive_list(70_000))
    }),
    ("archive", "a list that is too long", || {
        archive(&repeated("{\"files\":[", "0,", "0]}", 60 * MB))
    }),
    ("archive", "a list of numbers", || {
        archive(&repeated("{\"files\":[", "0,", "0]}", 15 * MB))
    }),
    ("run_files", "many images", || {
        let begin = r#"{"folder":"a","name":"a","classes":["a"],"files":[["a",0,0,1,1,1]"#;
        repeated(begin, r#",["a",0,0,1,1,1]"#, "]}", 16 * MB)
    }),
    ("run_files", "many images of many classes", || {
        let mut begin = repeated(
            r#"{"folder":"a","name":"a","classes":["a""#,
            ",\"a\"",
            r#"],"files":[["a",0,0,1,1,1]"#,
            2 * MB,
        );
        begin.extend(repeated("", r#",["a",9,0,1,1,1]"#, "]}", 8 * MB));
        begin
    }),
    ("run_files", "too many lists", || {
        repeated(
            r#"{"folder":"a","name":"a","classes":[],"files":["#,
            "[],",
            "[]]}",
            120 * MB,
        )
    }),
    ("run_files", "results of too many values", || {
        repeated(
            r#"{"version":1,"task":"a","samples":[{"index":0,"file":"","targets":["#,
            "null,",
            "null]}]}",
            120 * MB,
        )
    }),
    ("run_files", "a state of too many speeds", || {
        repeated(r#"{"version":1,"learned":["#, "0,", "0]}", 60 * MB)
    }),
    ("run_files", "many notes", || safetensors(&notes(8 * MB))),
    ("run_files", "too many notes", || {
        safetensors(&notes(90 * MB))
    }),
    ("state", "many files", || {
        let begin = r#"{"format":1,"state":{},"files":{"a":[0,0]"#;
        numbered(begin, |key| format!(",\"{key}\":[0,0]"), "}}", MB)
    }),
    ("hub", "a list of numbers", || {
        repeated("[", "0,", "0]", 32 * MB)
    }),
    ("hub", "a list of objects", || {
        repeated("[", "{},", "{}]", 32 * MB)
    }),
    ("hub", "many files", || {
        let file = r#"{"type":"file","path":"model.safetensors","size":1,"oid":"0123456789"},"#;
        repeated("[", file, "{}]", 32 * MB)
    }),
    ("hub", "an index of many tensors", || {
        numbered(
            r#"{"weight_map":{"":"""#,
            |key| format!(",\"{key}\":\"\""),
            "}}",
            32 * MB,
        )
    }),
    ("controller", "a long line", || {
        repeated(r#"{"x":["#, "0,", "0]}\n", MB)
    }),
    ("tables", "a list of numbers", || {
        repeated("[", "0,", "0]", 40 * MB)
    }),
    ("tables", "rows of many keys", || {
        let fields: Vec<String> = (0..1900).map(|n| format!("\"{n}\":0")).collect();
        repeated("", &format!("{{{}}}\n", fields.join(",")), "", 20 * MB)
    }),
    ("tables", "an unclosed quote", || {
        repeated("text,label\n\"", "a,", "", 40 * MB)
    }),
    ("tables", "rows of delimiters", || {
        repeated(
            "text,label\n",
            &format!("{}\n", ",".repeat(900_000)),
            "",
            40 * MB,
        )
    }),
    ("texts", "one line", || vec![b'a'; 40 * MB]),
    ("texts", "empty lines", || vec![b'\n'; 40 * MB]),
    ("texts", "no known encoding", || {
        (0..20 * MB).map(|n| 0x80 | (n % 127) as u8).collect()
    }),
    ("parquet", "a footer of many columns", || {
        let column = [0x15, 2, 0x25, 0, 0x18, 1, b'a', 0];
        parquet(&column, &[], &[], 79_000)
    }),
    ("parquet", "a footer of many row groups", || {
        parquet(&[], &[0x19, 0x0C, 0x16, 0, 0x16, 0, 0], &[], 3_400_000)
    }),
    ("parquet", "a footer of many notes", || {
        let note = [[0x18, 28].as_slice(), &[b'k'; 28], &[0]].concat();
        parquet(&[], &[], &note, 15 * MB)
    }),
    ("parquet", "a footer of too many notes", || {
        parquet(&[], &[], &[0x18, 1, b'k', 0], 16 * MB)
    }),
    ("parquet", "a footer that is too long", || {
        parquet(&[], &[], &[0x18, 1, b'k', 0], 60 * MB)
    }),
    ("chat_template", "many tags", || {
        repeated("", "{{1}}", "", MB)
    }),
    ("chat_template", "many blocks", || {
        repeated("", "{%if a%}{%endif%}", "", MB)
    }),
    ("chat_template", "a list of many numbers", || {
        repeated("{{ [", "1,", "1] | length }}", MB)
    }),
    ("chat_template", "a template that is too long", || {
        vec![b'a'; 10 * MB]
    }),
    (
        "chat_template",
        "a list that was doubled often is joined",
        || format!("{DOUBLED_LIST}{{{{ ''.join(n.x) }}}}").into_bytes(),
    ),
    (
        "chat_template",
        "a list that was doubled often as JSON",
        || format!("{DOUBLED_LIST}{{{{ n.x | tojson(indent=8) }}}}").into_bytes(),
    ),
    ("images", "a PNG of 100 million pixels", large_png),
    ("images", "a JPEG of the most scans", || {
        progressive_jpeg(29)
    }),
    ("images", "a JPEG of too many scans", || {
        progressive_jpeg(20_000)
    }),
];

const MB: usize = 1_000_000;

/// The list of files of an exported run.
fn archive_list(files: usize) -> Vec<u8> {
    let sum = "0".repeat(64);
    let file = |number: usize| {
        let end = if number + 1 < files { "," } else { "]}" };
        format!(r#"{{"path":"checkpoints/{number}","bytes":1,"sha256":"{sum}"}}{end}"#)
    };
    let list: String = (0..files).map(file).collect();
    format!(r#"{{"format":1,"run":"2026-11-20-1402-birds","files":[{list}"#).into_bytes()
}

/// An exported run with this list of files, and without them: a tar archive in gzip blocks that are
/// not compressed. Its checksum at the end, which no reader reaches, is wrong.
fn archive(list: &[u8]) -> Vec<u8> {
    let mut header = [0u8; 512];
    header[..20].copy_from_slice(b"ebbrun-manifest.json");
    header[100..108].copy_from_slice(b"0000600\0");
    header[124..136].copy_from_slice(format!("{:011o}\0", list.len()).as_bytes());
    header[148..156].fill(b' ');
    header[156] = b'0';
    header[257..265].copy_from_slice(b"ustar\x0000");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let mut tar = [header.as_slice(), list].concat();
    tar.resize(tar.len().next_multiple_of(512) + 1024, 0);
    let mut file = vec![0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 0, 3];
    let mut blocks = tar.chunks(usize::from(u16::MAX)).peekable();
    while let Some(block) = blocks.next() {
        let length = block.len() as u16;
        file.push(u8::from(blocks.peek().is_none()));
        file.extend(length.to_le_bytes());
        file.extend((!length).to_le_bytes());
        file.extend(block);
    }
    file.extend([0; 8]);
    file
}

/// A template with a list of a billion elements, which takes no memory until it is visited.
const DOUBLED_LIST: &str =
    "{% set n = namespace(x=['a']) %}{% for i in range(30) %}{% set n.x = n.x + n.x %}{% endfor %}";

/// A GGUF file without tensors, with a list of `count` equal values.
fn gguf_list(kind: u32, value: &[u8], count: usize) -> Vec<u8> {
    let mut file = b"GGUF".to_vec();
    file.extend(3u32.to_le_bytes());
    file.extend([0, 1, 1].map(u64::to_le_bytes).concat());
    file.push(b'a');
    file.extend(9u32.to_le_bytes());
    file.extend(kind.to_le_bytes());
    file.extend((count as u64).to_le_bytes());
    file.extend(value.repeat(count));
    file
}

/// A Parquet file without rows. Its footer (Thrift's compact protocol) repeats an encoded column,
/// an encoded row group or an encoded note as often as they fit in `bytes`.
fn parquet(column: &[u8], row_group: &[u8], note: &[u8], bytes: usize) -> Vec<u8> {
    let count = |element: &[u8]| bytes.checked_div(element.len()).unwrap_or(0);
    let list = |footer: &mut Vec<u8>, count: usize, element: &[u8]| {
        footer.push(0xFC);
        variable_length(footer, count);
        (0..count).for_each(|_| footer.extend(element));
    };
    // The version, and the schema: a root with its columns.
    let mut footer = vec![0x15, 2, 0x19];
    let columns = count(column);
    footer.push(0xFC);
    variable_length(&mut footer, columns + 1);
    footer.extend([0x48, 1, b'r', 0x15]);
    variable_length(&mut footer, 2 * columns);
    footer.push(0);
    (0..columns).for_each(|_| footer.extend(column));
    // No rows, the row groups, and the notes.
    footer.extend([0x16, 0, 0x19]);
    list(&mut footer, count(row_group), row_group);
    footer.push(0x19);
    list(&mut footer, count(note), note);
    footer.push(0);
    let mut file = b"PAR1".to_vec();
    file.extend(&footer);
    file.extend((footer.len() as u32).to_le_bytes());
    file.extend(b"PAR1");
    file
}

/// Appends a number as Thrift writes it: seven bits per byte.
fn variable_length(to: &mut Vec<u8>, mut number: usize) {
    while number > 0x7F {
        to.push(number as u8 | 0x80);
        number >>= 7;
    }
    to.push(number as u8);
}

/// `begin`, then `part` as often as it fits in `bytes`, then `end`.
fn repeated(begin: &str, part: &str, end: &str, bytes: usize) -> Vec<u8> {
    let count = (bytes - begin.len() - end.len()) / part.len();
    let mut file = String::with_capacity(bytes);
    file.push_str(begin);
    (0..count).for_each(|_| file.push_str(part));
    file.push_str(end);
    file.into_bytes()
}

/// `begin`, then numbered parts as far as they fit in `bytes`, then `end`.
fn numbered(begin: &str, part: impl Fn(usize) -> String, end: &str, bytes: usize) -> Vec<u8> {
    let mut file = String::with_capacity(bytes);
    file.push_str(begin);
    for number in 0.. {
        let part = part(number);
        if file.len() + part.len() + end.len() > bytes {
            break;
        }
        file.push_str(&part);
    }
    file.push_str(end);
    file.into_bytes()
}

fn step_of_numbers(bytes: usize) -> Vec<u8> {
    let begin = r#"{"kind":"step","at_ms":1,"step":1,"epoch":0,"loss":1.0,"learning_rate":0.1,"gradient_norm":1.0,"samples_per_second":1.0,"wait_ms":0.0,"micro_batches":["#;
    repeated(begin, "8,", "8]}\n", bytes)
}

/// The header of a file of weights with many short notes.
fn notes(bytes: usize) -> Vec<u8> {
    let note = |key: usize| format!(",\"{key}\":\"\"");
    numbered(r#"{"__metadata__":{"":"""#, note, "}}", bytes)
}

fn added_tokens() -> Vec<u8> {
    const SETTINGS: &str =
        r#""single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true"#;
    let token = |key: usize| format!(r#"{{"id":{key},"content":"{key}",{SETTINGS}}},"#);
    let end = format!(
        r#"{{"id":0,"content":"a",{SETTINGS}}}],"model":{{"type":"WordLevel","unk_token":"a","vocab":{{"a":0}}}}}}"#
    );
    numbered(r#"{"version":"1.0","added_tokens":["#, token, &end, 50 * MB)
}

/// A file of weights with this header.
fn safetensors(header: &[u8]) -> Vec<u8> {
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header);
    file.extend([0; 4]);
    file
}

fn large_png() -> Vec<u8> {
    let mut file = std::io::Cursor::new(Vec::new());
    let image = image::RgbImage::new(10_000, 10_000);
    image
        .write_to(&mut file, image::ImageFormat::Png)
        .expect("it can be written");
    file.into_inner()
}

/// A progressive JPEG of 100 million pixels, with a first scan and `more_scans`: almost every block
/// is empty, so that the file is small.
fn progressive_jpeg(more_scans: u16) -> Vec<u8> {
    const BLOCKS: usize = 1250 * 1250;
    let mut file = vec![0xFF, 0xD8];
    let segment = |file: &mut Vec<u8>, marker: u8, content: &[u8]| {
        file.extend([0xFF, marker]);
        file.extend((content.len() as u16 + 2).to_be_bytes());
        file.extend(content);
    };
    let mut table = vec![0];
    table.extend([1; 64]);
    segment(&mut file, 0xDB, &table);
    // Three components of 10,000 x 10,000.
    let size = [
        8, 0x27, 0x10, 0x27, 0x10, 3, 1, 0x11, 0, 2, 0x11, 0, 3, 0x11, 0,
    ];
    segment(&mut file, 0xC2, &size);
    for (class, symbol) in [(0x00, 0x00), (0x10, 0xE0)] {
        let mut table = vec![class, 1];
        table.extend([0; 15]);
        table.push(symbol);
        segment(&mut file, 0xC4, &table);
    }
    segment(&mut file, 0xDA, &[3, 1, 0, 2, 0, 3, 0, 0, 0, 0]);
    // Each block has the difference 0, whose code is one bit of 0.
    file.resize(file.len() + 3 * BLOCKS / 8 + 1, 0);
    for scan in 0..more_scans {
        let coefficient = (scan % 32 + 1) as u8;
        segment(
            &mut file,
            0xDA,
            &[1, (scan % 3 + 1) as u8, 0, coefficient, coefficient, 0],
        );
        // A run of 2^14 blocks without coefficients: a bit of 0, and 14 more.
        file.resize(file.len() + (BLOCKS / (1 << 14) + 1) * 15 / 8 + 1, 0);
    }
    file.extend([0xFF, 0xD9]);
    file
}

/// The peak of this process's memory since the last call of [`forget_peak`].
pub fn peak_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kilobytes << 10)
}

/// Begins a new peak of this process's memory.
pub fn forget_peak() {
    // Fails if the system has no such file; then nothing is measured.
    let _ = fs::write("/proc/self/clear_refs", "5");
}

#[test]
fn every_reader_has_a_large_file() {
    for (name, _) in READERS {
        let is_listed = LARGE_FILES.iter().any(|(reader, ..)| reader == name);
        assert!(is_listed, "{name} has no large file");
    }
}

/// Runs itself in a child process with 2 GB of address space.
#[test]
fn a_large_file_costs_little_time_and_memory() {
    match std::env::var(CHILD) {
        Ok(number) => read_large_file(number.parse().expect("it is a number")),
        Err(_) => {
            for number in 0..LARGE_FILES.len() {
                run_in_small_child(2_000_000, number.to_string(), DONE);
            }
        }
    }
}

/// The CPU time of this process. Unlike the time on a clock, it does not depend on what else the
/// machine does. Without the system's table, the time on a clock.
fn cpu_time(begin: Instant) -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit_once(") ").map(|(_, fields)| fields);
    let ticks = |n: usize| fields?.split(' ').nth(n)?.parse::<u64>().ok();
    match (ticks(11), ticks(12)) {
        (Some(user), Some(system)) => Duration::from_millis(10 * (user + system)),
        _ => begin.elapsed(),
    }
}

/// CPU time of [`reference_work`] on the machine that the limit is meant for, with an idle second
/// core.
const REFERENCE: Duration = Duration::from_millis(420);
/// Readings of a file that takes too long. The shortest counts.
const READINGS: usize = 3;

/// How many times longer this machine takes for the same work at this moment; at least 1. A core
/// that is shared with another thread or another machine counts longer for the same work.
pub fn slowdown() -> f64 {
    let cost = |_| {
        let begin = Instant::now();
        let before = cpu_time(begin);
        reference_work();
        cpu_time(begin).saturating_sub(before)
    };
    let least = (0..READINGS).map(cost).min().unwrap_or(REFERENCE);
    (least.as_secs_f64() / REFERENCE.as_secs_f64()).max(1.0)
}

/// Reads a list of JSON objects into memory, as many of the readers do.
fn reference_work() {
    let list = repeated("[", r#"{"a":[0,"text"]},"#, "{}]", 10 * MB);
    let list: Vec<serde_json::Value> = serde_json::from_slice(&list).expect("it is JSON");
    assert!(std::hint::black_box(list).len() > MB / 2);
}

/// Runs in the child process, whose output names the file that ended it.
fn read_large_file(number: usize) {
    let (name, about, generate) = LARGE_FILES[number];
    let bytes = generate();
    println!("{name}: {about}, {} bytes", bytes.len());
    for reader in parts(name) {
        let (took, longest, grown) = shortest_reading(reader, &bytes);
        assert!(took <= longest, "{name}: {about}: {took:?} of {longest:?}");
        assert!(
            grown <= Some(MOST_BYTES),
            "{name}: {about}: {grown:?} bytes"
        );
    }
    println!("{DONE}");
}

/// The shortest CPU time of up to [`READINGS`], the longest that is allowed, and the memory of the
/// first reading: what it frees may stay with the allocator beside that of the next one.
fn shortest_reading(reader: Reader, bytes: &[u8]) -> (Duration, Duration, Option<u64>) {
    let (mut took, mut longest) = (Duration::MAX, LONGEST);
    forget_peak();
    let before = peak_bytes();
    let mut grown = None;
    for _ in 0..READINGS {
        let begin = Instant::now();
        let cpu_before = cpu_time(begin);
        let outcome = reader(bytes);
        took = took.min(cpu_time(begin).saturating_sub(cpu_before));
        let now = peak_bytes().zip(before);
        grown = grown.or(now.map(|(peak, before)| peak - before));
        println!("{took:.2?}: {outcome:?}");
        if took <= longest {
            break;
        }
        longest = longest.max(LONGEST.mul_f64(slowdown()));
    }
    (took, longest, grown)
}
