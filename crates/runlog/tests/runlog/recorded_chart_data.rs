//! The pulls that the window replays in a plain browser: the demo run, folded by Rust.

use runlog::{Pull, Run, RunEvent, read_events};
use serde_json::{Map, Value, json};
use std::fmt::Write;
use std::path::Path;

const EVENTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/demo.jsonl");
const RECORDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../ui/recorded/pulls.json");
const INTERVAL_MS: usize = 2000;
/// Enough columns that no point is left out.
const COLUMNS: u32 = 16_384;
const MAX_BYTES: usize = 500_000;

/// Pulls of the whole run so far, one per interval. A header lists only the fields that changed
/// since the previous pull. Arrays grow, so most slices of a pool begin at 0.
#[derive(Default)]
struct Recording {
    pools: Vec<(String, Vec<f64>)>,
    previous: Map<String, Value>,
    pulls: Vec<Value>,
}

impl Recording {
    fn new(events: &[RunEvent]) -> Self {
        let mut recording = Recording::default();
        let mut run = Run::default();
        let mut events = events.iter().peekable();
        let mut now_ms = 0;
        while events.peek().is_some() {
            while let Some(event) = events.next_if(|event| event.at_ms() <= now_ms) {
                run.apply(event);
            }
            recording.add(&run.window(None, None, COLUMNS, 0));
            now_ms += INTERVAL_MS as u64;
        }
        recording
    }

    fn add(&mut self, pull: &Pull) {
        let header = serde_json::to_value(&pull.header).expect("a header has a JSON form");
        let Value::Object(mut header) = header else {
            panic!("a header is a JSON object");
        };
        header.remove("arrays");
        let changed = header
            .iter()
            .filter(|(name, value)| self.previous.get(*name) != Some(value));
        let changed: Map<_, _> = changed
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        let arrays = pull.header.arrays.iter();
        let slices: Vec<Value> = arrays
            .map(|array| self.slice(&array.name, pull.array(&array.name)))
            .collect();
        self.pulls
            .push(json!({"header": changed, "slices": slices}));
        self.previous = header;
    }

    /// Stores the values in the pool of this array. Returns their offset and length.
    fn slice(&mut self, name: &str, values: &[f64]) -> Value {
        assert!(
            values.iter().all(|value| value.is_finite()),
            "{name} has gaps"
        );
        let known = self.pools.iter().position(|(pool, _)| pool == name);
        let index = known.unwrap_or_else(|| {
            self.pools.push((name.to_owned(), Vec::new()));
            self.pools.len() - 1
        });
        let pool = &mut self.pools[index].1;
        let mut offset = 0;
        if let Some(found) = pool
            .windows(values.len().max(1))
            .position(|part| part == values)
        {
            offset = found;
        } else if values.starts_with(pool) {
            pool.extend(&values[pool.len()..]);
        } else {
            offset = pool.len();
            pool.extend(values);
        }
        json!([offset, values.len()])
    }

    /// JSON with one line per array and per pull.
    fn to_json(&self) -> String {
        let pools = self.pools.iter();
        let pools: Vec<String> = pools
            .map(|(name, values)| format!("[\"{name}\",{}]", json!(values)))
            .collect();
        let pulls: Vec<String> = self.pulls.iter().map(Value::to_string).collect();
        let mut text = String::new();
        let (pools, pulls) = (pools.join(",\n"), pulls.join(",\n"));
        writeln!(text, "{{\"pools\":[\n{pools}\n],\"pulls\":[\n{pulls}\n]}}")
            .expect("a string grows");
        text
    }
}

/// With `EBB_WRITE_RECORDED=1` the file is rewritten.
#[test]
fn the_recorded_pulls_match_the_demo_run() {
    let events = read_events(Path::new(EVENTS)).expect("the demo is committed");
    let fresh = Recording::new(&events).to_json();
    assert!(fresh.len() < MAX_BYTES, "{} bytes", fresh.len());
    if std::env::var_os("EBB_WRITE_RECORDED").is_some() {
        let folder = Path::new(RECORDED)
            .parent()
            .expect("the file is in a folder");
        std::fs::create_dir_all(folder).expect("the folder can be created");
        std::fs::write(RECORDED, &fresh).expect("the recording can be written");
    }
    let recorded = std::fs::read_to_string(RECORDED).expect("the recording is committed");
    assert!(recorded == fresh, "run again with EBB_WRITE_RECORDED=1");
}
