//! Amounts as a user reads and writes them: 6.1 GB, 1,215, 9:04. The terminal, the window and the
//! report all use these functions, so they agree.
//!
//! ```
//! use format::{counted, format_bytes, format_duration, parse_bytes};
//!
//! assert_eq!(format_bytes(6_549_825_126), "6.1 GB");
//! assert_eq!(parse_bytes("8GB"), Ok(8 << 30));
//! assert_eq!(counted(1_215, "class", "classes"), "1,215 classes");
//! assert_eq!(format_duration(544.0), "9:04");
//! ```

use std::io::{self, ErrorKind};

const KB: f64 = 1024.0;
const MB: f64 = KB * 1024.0;
const GB: f64 = MB * 1024.0;
const TB: f64 = GB * 1024.0;

/// Shown in place of a missing value.
pub const MISSING: &str = "–";

/// A text that is not a size of memory.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a memory size. Write a size such as 8GB or 512MB, or a number of bytes.")]
pub struct NotASize {
    /// The text as it was written.
    pub text: String,
}

/// Formats bytes: "6.1 GB", "512 MB", "48 kB", "812 bytes". A GB is 2^30 bytes, as in Activity
/// Monitor.
pub fn format_bytes(bytes: u64) -> String {
    // Each limit is where the smaller unit would round up to four digits.
    match bytes as f64 {
        b if b >= 999.95 * GB => format!("{:.1} TB", b / TB),
        b if b >= 999.5 * MB => format!("{:.1} GB", b / GB),
        b if b >= 9.95 * MB => format!("{:.0} MB", b / MB),
        b if b >= 999.5 * KB => format!("{:.1} MB", b / MB),
        b if b >= KB => format!("{:.0} kB", b / KB),
        1.0 => "1 byte".to_owned(),
        b => format!("{b:.0} bytes"),
    }
}

/// Formats an error of the operating system in a few words, without its number: "permission
/// denied", "not found", "the disk is full".
pub fn format_io_error(error: &io::Error) -> String {
    if error.get_ref().is_some() {
        return error.to_string(); // a message of its own
    }
    let known = match error.kind() {
        ErrorKind::NotFound => "not found",
        ErrorKind::PermissionDenied => "permission denied",
        ErrorKind::StorageFull => "the disk is full",
        ErrorKind::QuotaExceeded => "the disk quota is used up",
        ErrorKind::ReadOnlyFilesystem => "the disk is read-only",
        ErrorKind::IsADirectory => "it is a folder, not a file",
        ErrorKind::NotADirectory => "a part of the path is not a folder",
        ErrorKind::AlreadyExists => "it exists already",
        _ => return without_number(&error.to_string()),
    };
    known.to_owned()
}

/// "input/output error" for "Input/output error (os error 5)".
fn without_number(text: &str) -> String {
    let text = text.split(" (os error ").next().unwrap_or(text);
    let mut letters = text.chars();
    let first = letters.next().map(|letter| letter.to_lowercase());
    first.into_iter().flatten().chain(letters).collect()
}

/// Formats a number of things: "1 class", "1,215 classes".
pub fn counted(count: u64, one: &str, many: &str) -> String {
    let noun = if count == 1 { one } else { many };
    format!("{} {noun}", format_count(count))
}

/// Formats a value of a regression target in its unit: "149.3", "8.25" below 10, three significant
/// digits below 1 ("0.00412"), and "4.12e-6" if it is smaller than a ten-thousandth.
pub fn format_in_unit(value: f64) -> String {
    // Each limit is where fewer decimals would round up to the next power of ten.
    match value.abs() {
        size if !size.is_finite() => MISSING.to_owned(),
        size if size >= 9.995 => format!("{value:.1}"),
        size if size >= 0.9995 || size == 0.0 => format!("{value:.2}"),
        size if size >= 0.000_1 => {
            let decimals = (2.0 - (size * 1.0005).log10().floor()) as usize;
            format!("{value:.decimals$}")
        }
        _ => format!("{value:.2e}"),
    }
}

/// Formats a number with a comma every three digits: "1,215".
pub fn format_count(count: u64) -> String {
    let digits = count.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Formats seconds: "9:04" below an hour, then "1:12 h"; [`MISSING`] if they are negative or not
/// finite.
pub fn format_duration(seconds: f64) -> String {
    if !seconds.is_finite() || seconds < 0.0 {
        return MISSING.to_owned();
    }
    let whole = seconds as u64;
    match whole {
        0..3600 => format!("{}:{:02}", whole / 60, whole % 60),
        _ => format!("{}:{:02} h", whole / 3600, whole / 60 % 60),
    }
}

/// Formats milliseconds in the largest unit of which there are at least two, for sentences: "2 h",
/// "30 min", "45 s".
pub fn format_waiting_time(ms: u64) -> String {
    match ms / 1000 {
        seconds if seconds >= 7200 => format!("{} h", seconds / 3600),
        seconds if seconds >= 120 => format!("{} min", seconds / 60),
        seconds => format!("{seconds} s"),
    }
}

/// Formats a fraction `0.0..=1.0` as "93.4 %"; [`MISSING`] if it is not finite.
pub fn format_percent(fraction: f64) -> String {
    if fraction.is_finite() {
        format!("{:.1} %", fraction * 100.0)
    } else {
        MISSING.to_owned()
    }
}

/// Reads "8GB", "1.5 GB", "512MB", "64kB" or plain bytes. A GB is 2^30 bytes.
///
/// # Errors
/// The text has no number, an unknown unit, or a value below 1 or above `u64::MAX` bytes.
pub fn parse_bytes(text: &str) -> Result<u64, NotASize> {
    let wrong = || NotASize { text: text.into() };
    let lower = text.trim().to_ascii_lowercase();
    let digits = lower.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &lower[digits.len()..] {
        "" | "b" | "bytes" => 1.0,
        "kb" | "kib" => KB,
        "mb" | "mib" => MB,
        "g" | "gb" | "gib" => GB,
        "tb" | "tib" => TB,
        _ => return Err(wrong()),
    };
    if unit == 1.0 {
        return digits.trim().parse().map_err(|_| wrong());
    }
    let number: f64 = digits.trim().parse().map_err(|_| wrong())?;
    let bytes = number * unit;
    if bytes >= 1.0 && bytes < u64::MAX as f64 {
        Ok(bytes as u64)
    } else {
        Err(wrong())
    }
}

/// The candidate most similar to `word`; `None` if none is similar enough to be what was meant.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let close = |candidate: &&str| {
        let distance = edit_distance(word, candidate);
        let near = distance <= candidate.len().min(word.len()).div_ceil(3);
        let begins =
            word.len() >= 3 && (candidate.starts_with(word) || word.starts_with(candidate));
        (near || begins).then_some(distance)
    };
    candidates
        .into_iter()
        .filter_map(|candidate| close(&candidate).map(|distance| (distance, candidate)))
        .min()
        .map(|(_, candidate)| candidate)
}

/// The `most` candidates that are most similar to `word`, ignoring case, the most similar first.
pub fn most_like<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
    most: usize,
) -> Vec<&'a str> {
    let lower = word.to_lowercase();
    let mut ranked: Vec<_> = candidates
        .into_iter()
        .map(|candidate| (edit_distance(&lower, &candidate.to_lowercase()), candidate))
        .collect();
    ranked.sort_unstable();
    ranked.truncate(most);
    ranked.into_iter().map(|(_, candidate)| candidate).collect()
}

/// The Levenshtein distance: letters to insert, remove or replace to turn one word into the other.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE_GB: u64 = 1 << 30;

    #[test]
    fn a_gb_is_what_activity_monitor_calls_a_gb() {
        assert_eq!(parse_bytes("8GB").ok(), Some(8 * ONE_GB));
        assert_eq!(format_bytes(8 * ONE_GB), "8.0 GB");
    }

    #[test]
    fn common_spellings_of_sizes_are_read() {
        let check =
            |text: &str, bytes: u64| assert_eq!(parse_bytes(text).ok(), Some(bytes), "{text}");
        check("1.5 gb", ONE_GB * 3 / 2);
        check("512MB", 512 << 20);
        check("64 kB", 64 << 10);
        check("2TiB", 2 << 40);
        check("123456789", 123_456_789);
        check("7 bytes", 7);
    }

    #[test]
    fn an_invalid_size_is_refused_with_an_example() {
        for text in ["", "GB", "8 XB", "-1GB", "nan GB", "1e99TB", "0.2", "eight"] {
            let message = parse_bytes(text).map_err(|e| e.to_string());
            let expected = format!(
                "`{text}` is not a memory size. Write a size such as 8GB or 512MB, or a number of bytes."
            );
            assert_eq!(message, Err(expected));
        }
    }

    #[test]
    fn bytes_have_at_most_four_digits() {
        let check = |bytes: u64, text: &str| assert_eq!(format_bytes(bytes), text);
        check(0, "0 bytes");
        check(1023, "1023 bytes");
        check(48 << 10, "48 kB");
        check((1 << 20) - 1, "1.0 MB");
        check(2_600_000, "2.5 MB");
        check(512 << 20, "512 MB");
        check(ONE_GB - 1, "1.0 GB");
        check(6_549_825_126, "6.1 GB");
        check(1024 * ONE_GB, "1.0 TB");
    }

    #[test]
    fn errors_of_the_system_have_no_number() {
        let check = |number: i32, text: &str| {
            assert_eq!(format_io_error(&io::Error::from_raw_os_error(number)), text);
        };
        check(1, "permission denied");
        check(2, "not found");
        check(5, "input/output error");
        check(13, "permission denied");
        check(28, "the disk is full");
        check(30, "the disk is read-only");
        let own = io::Error::new(ErrorKind::NotFound, "the run folder is missing");
        assert_eq!(format_io_error(&own), "the run folder is missing");
    }

    #[test]
    fn counts_have_a_comma_every_three_digits() {
        let text: Vec<_> = [0, 999, 1_215, 114_085_000].map(format_count).into();
        assert_eq!(text, ["0", "999", "1,215", "114,085,000"]);
    }

    #[test]
    fn durations_are_short_below_and_above_an_hour() {
        let text: Vec<_> = [0.0, 59.9, 544.0, 3599.0, 4320.0, 90_000.0, -1.0, f64::NAN]
            .map(format_duration)
            .into();
        let expected = [
            "0:00", "0:59", "9:04", "59:59", "1:12 h", "25:00 h", "–", "–",
        ];
        assert_eq!(text, expected);
    }

    #[test]
    fn a_waiting_time_has_one_unit() {
        let text = [45_999, 119_000, 120_000, 7_199_000, 7_200_000].map(format_waiting_time);
        assert_eq!(text, ["45 s", "119 s", "2 min", "119 min", "2 h"]);
    }

    #[test]
    fn the_nearest_word_is_found_if_it_is_similar() {
        let keys = ["epochs", "steps", "effective_batch", "micro_batch", "model"];
        let check =
            |word: &str, found: Option<&str>| assert_eq!(nearest(word, keys), found, "{word}");
        check("epoch", Some("epochs"));
        check("micro-batch", Some("micro_batch"));
        check("efective_batch", Some("effective_batch"));
        check("colour", None);
        let of_three_letters = nearest("foo", ["from", "seed"]);
        assert_eq!(of_three_letters, None, "half of the letters differ");
    }

    #[test]
    fn the_most_similar_text_come_first() {
        let names = ["banana", "Apples", "pear", "grape", "apricot"];
        assert_eq!(most_like("apple", names, 2), ["Apples", "grape"]);
        assert_eq!(most_like("apple", names, 9).len(), 5);
    }
}
