//! Numbers as the user reads and writes them: 6.1 GB, 1,215, 9:04. One place, so that terminal, window and report
//! agree. Knows nothing of runs.

use crate::RunlogError;

const KB: f64 = 1024.0;
const MB: f64 = KB * 1024.0;
const GB: f64 = MB * 1024.0;
const TB: f64 = GB * 1024.0;

/// What stands for a missing value.
pub const MISSING: &str = "–";

/// "6.1 GB", "512 MB", "48 kB", "812 bytes". A GB is 2^30 bytes, as in Activity Monitor.
pub fn format_bytes(bytes: u64) -> String {
    // The limits lie where the smaller unit would be rounded up to four digits.
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

/// "1 class", "1,215 classes".
pub fn counted(count: u64, one: &str, many: &str) -> String {
    format!(
        "{} {}",
        format_count(count),
        if count == 1 { one } else { many }
    )
}

/// "1,215".
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

/// "9:04" below an hour, then "1:12 h"; "–" for what is not a time.
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

/// "93.4 %" of a fraction `0.0..=1.0`.
pub fn format_percent(fraction: f64) -> String {
    match fraction.is_finite() {
        true => format!("{:.1} %", fraction * 100.0),
        false => MISSING.to_owned(),
    }
}

/// Reads "8GB", "1.5 GB", "512MB", "64kB" or plain bytes. A GB is 2^30 bytes.
pub fn parse_bytes(text: &str) -> Result<u64, RunlogError> {
    let wrong = || RunlogError::NotASize { text: text.into() };
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
    match bytes >= 1.0 && bytes < u64::MAX as f64 {
        true => Ok(bytes as u64),
        false => Err(wrong()),
    }
}

/// The candidate most like `word`, when one is like it at all.
pub(crate) fn nearest<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let close = |candidate: &&str| {
        let distance = edits(word, candidate);
        let near = distance <= 1 + candidate.len().min(word.len()) / 3;
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

/// The candidates most like `word`, `most` of them, the most like first.
pub fn most_like<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
    most: usize,
) -> Vec<&'a str> {
    let lower = word.to_lowercase();
    let mut ranked: Vec<_> = candidates
        .into_iter()
        .map(|candidate| (edits(&lower, &candidate.to_lowercase()), candidate))
        .collect();
    ranked.sort_unstable();
    ranked.truncate(most);
    ranked.into_iter().map(|(_, candidate)| candidate).collect()
}

/// Letters to insert, remove or replace to come from one word to the other.
fn edits(a: &str, b: &str) -> usize {
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
    fn sizes_are_read_as_people_write_them() {
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
    fn what_is_no_size_is_refused_with_an_example() {
        for text in ["", "GB", "8 XB", "-1GB", "nan GB", "1e99TB", "0.2", "eight"] {
            let message = parse_bytes(text).map_err(|e| e.to_string());
            let expected =
                format!("`{text}` is not a size of memory. Write 8GB, 512MB or a number of bytes.");
            assert_eq!(message, Err(expected));
        }
    }

    #[test]
    fn bytes_never_need_five_characters_of_digits() {
        let check = |bytes: u64, words: &str| assert_eq!(format_bytes(bytes), words);
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
    fn counts_have_a_comma_every_three_digits() {
        let words: Vec<_> = [0, 999, 1_215, 114_085_000].map(format_count).into();
        assert_eq!(words, ["0", "999", "1,215", "114,085,000"]);
    }

    #[test]
    fn times_are_short_below_and_above_an_hour() {
        let words: Vec<_> = [0.0, 59.9, 544.0, 3599.0, 4320.0, 90_000.0, -1.0, f64::NAN]
            .map(format_duration)
            .into();
        let expected = [
            "0:00", "0:59", "9:04", "59:59", "1:12 h", "25:00 h", "–", "–",
        ];
        assert_eq!(words, expected);
    }

    #[test]
    fn the_nearest_word_is_near() {
        let keys = ["epochs", "steps", "effective_batch", "micro_batch", "model"];
        let check =
            |word: &str, found: Option<&str>| assert_eq!(nearest(word, keys), found, "{word}");
        check("epoch", Some("epochs"));
        check("micro-batch", Some("micro_batch"));
        check("efective_batch", Some("effective_batch"));
        check("colour", None);
    }

    #[test]
    fn the_words_most_like_another_come_first() {
        let names = ["banana", "Apples", "pear", "grape", "apricot"];
        assert_eq!(most_like("apple", names, 2), ["Apples", "grape"]);
        assert_eq!(most_like("apple", names, 9).len(), 5);
    }
}
