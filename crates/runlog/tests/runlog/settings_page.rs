//! The settings page of the guide is generated from the table of settings. To generate it:
//! `EBB_WRITE_DOCS=1 cargo nextest run --release --workspace --test runlog settings_page`.

use runlog::{Allowed, Group, SETTINGS, Setting};
use std::fmt::Write;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/settings.md");

const HEAD: &str = "# Settings

You can set every key in a config file (`--config run.toml`, or a JSON file). If a key has a flag in the tables below, you can
also set it on the command line. A flag overrides the config file, and the config file overrides a preset (`--preset quick`).
Ebb chooses every value that you do not set.

```toml
# run.toml
epochs = 20
image_size = 96
memory_cap_bytes = \"8GB\"
```

In the window, *All settings…* on the plan page lists every key with its default, marks the keys that you changed, and checks
each value by the same rules as the command line.

If you use the former name of a key or flag, it still works, and Ebb prints a message with the new name.

With the key `by_memory`, some values depend on the size of the machine's memory. The value of `by_memory` is a list of tables.
Each table contains `at_least`, which is an amount of memory, and values for `effective_batch`, `first_micro_batch` or both. Of
the tables whose `at_least` is not larger than the machine's memory, Ebb uses the one with the largest `at_least`. If there is
no such table, Ebb uses the one with the smallest `at_least`. The preset `low_memory` shows how to use `by_memory`.
";

fn values(allowed: Allowed) -> String {
    match allowed {
        Allowed::Path => "a path".into(),
        Allowed::Name => "a name".into(),
        Allowed::Words(words) => words
            .iter()
            .map(|word| format!("`{word}`"))
            .collect::<Vec<_>>()
            .join(", "),
        Allowed::Integer(least, most) if most == (1 << 53) - 1 => {
            format!("a whole number from {least}")
        }
        Allowed::Integer(least, most) => format!("a whole number, {least} to {most}"),
        Allowed::Number(least, most) => format!("a number, {least} to {most}"),
        Allowed::Interval => "`auto`, or `10min`, `2epochs` or `500steps`".into(),
        Allowed::Blocks => "a number of blocks, or `all`".into(),
        Allowed::TrainedPart => "`head`, `last:N` or `all`".into(),
        Allowed::Bits => "8, `nf4` or 4".into(),
        Allowed::Bytes(_) => "a size such as `8GB`, or bytes".into(),
    }
}

fn row(setting: &Setting) -> String {
    let flag = if setting.flag.is_empty() {
        String::new()
    } else {
        format!("`--{}`", setting.flag)
    };
    let names = |before: &str, keys: &[&str]| {
        let quoted: Vec<String> = keys.iter().map(|key| format!("`{key}`")).collect();
        if quoted.is_empty() {
            String::new()
        } else {
            format!(" ({before} {})", quoted.join(", "))
        }
    };
    let former = names("in short", setting.short_keys) + &names("formerly", setting.old_keys);
    format!(
        "| `{}` | {flag} | {}{former} | {} | {} |",
        setting.key,
        setting.help.trim(),
        values(setting.allowed),
        setting.default
    )
}

fn page() -> String {
    let mut page = HEAD.to_owned();
    for group in Group::ALL {
        let heading = group.heading();
        writeln!(
            page,
            "\n## {heading}\n\n| key | flag | meaning | values | default |\n|---|---|---|---|---|"
        )
        .expect("text can be written to");
        for setting in SETTINGS.iter().filter(|setting| setting.group == group) {
            writeln!(page, "{}", row(setting)).expect("text can be written to");
        }
    }
    page
}

#[test]
fn the_page_of_settings_is_up_to_date() {
    if std::env::var_os("EBB_WRITE_DOCS").is_some() {
        std::fs::write(PAGE, page()).expect("the page can be written");
    }
    let written = std::fs::read_to_string(PAGE).unwrap_or_default();
    assert!(
        written == page(),
        "docs/guide/settings.md is out of date: see the head of this test"
    );
    assert!(page().contains("| `epochs` | `--epochs` |"));
}
