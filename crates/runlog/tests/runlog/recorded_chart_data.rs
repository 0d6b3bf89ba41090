//! The pulls that the window replays in a plain browser: the demo run, folded by Rust, and a long
//! run as it is drawn at once.

use pressure::{Change, Level};
use runlog::{Pull, Query, Run, RunEvent, read_events};
use serde_json::{Map, Value, json};
use std::fmt::Write;
use std::path::Path;

const EVENTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/demo.jsonl");
const RECORDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../ui/recorded/pulls.json");
const LONG: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../ui/recorded/long.json");
const INTERVAL_MS: usize = 2000;
/// Enough columns that no point is left out.
const COLUMNS: u32 = 16_384;
const MAX_BYTES: usize = 600_000;

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
fn check_recorded(path: &str, fresh: &str) {
    assert!(fresh.len() < MAX_BYTES, "{} bytes", fresh.len());
    if std::env::var_os("EBB_WRITE_RECORDED").is_some() {
        let folder = Path::new(path).parent().expect("the file is in a folder");
        std::fs::create_dir_all(folder).expect("the folder can be created");
        std::fs::write(path, fresh).expect("the recording can be written");
    }
    let recorded = std::fs::read_to_string(path).expect("the recording is committed");
    assert!(recorded == fresh, "run again with EBB_WRITE_RECORDED=1");
}

#[test]
fn the_recorded_pulls_match_the_demo_run() {
    let events = read_events(Path::new(EVENTS)).expect("the demo is committed");
    check_recorded(RECORDED, &Recording::new(&events).to_json());
}

const GB: f64 = (1u64 << 30) as f64;
const STEPS: u64 = 400_000;
const STEP_MS: u64 = 200;
/// A memory sample every so many steps: 100,000 in all.
const SAMPLE_STEPS: u64 = 4;
/// A change of the micro-batch every so many steps: more than can be told apart.
const CHANGE_STEPS: u64 = 3_000;
const EVALUATION_STEPS: u64 = 8_000;
/// The columns of the plots in a window of the usual size, and what the slider of the smoothing
/// means for this many steps.
const LONG_COLUMNS: u32 = 944;
const SMOOTHED_STEPS: f64 = 512.0;

/// Random numbers from -1 to 1, the same every time.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }
}

/// The templates of a long run: an event of each kind of the demo.
struct Templates(Vec<RunEvent>);

impl Templates {
    fn find(&self, kind: impl Fn(&RunEvent) -> bool) -> RunEvent {
        let found = self.0.iter().rfind(|event| kind(event));
        found.expect("the demo has every kind").clone()
    }

    fn started(&self) -> RunEvent {
        let mut event = self.find(|event| matches!(event, RunEvent::Started(_)));
        if let RunEvent::Started(started) = &mut event {
            (started.steps, started.epochs) = (STEPS, STEPS / started.steps_per_epoch);
        }
        event
    }

    fn step(&self, number: u64, noise: &mut Noise) -> RunEvent {
        let mut event = self.find(|event| matches!(event, RunEvent::Step { .. }));
        let share = number as f64 / STEPS as f64;
        if let RunEvent::Step {
            at_ms,
            step,
            epoch,
            loss,
            learning_rate,
            gradient_norm,
            samples_per_second,
            micro_batches,
            ..
        } = &mut event
        {
            (*at_ms, *step, *epoch) = (number * STEP_MS, number, (number - 1) / 16);
            *loss = 0.25
                + 2.8 * (-6.0 * share).exp() * (1.0 + 0.5 * noise.next())
                + 0.15 * noise.next().abs();
            *learning_rate = 1e-3 * (0.5 + 0.5 * (std::f64::consts::PI * share).cos());
            *gradient_norm = 1.2 + 0.9 * noise.next();
            *samples_per_second = 320.0 + 60.0 * noise.next();
            *micro_batches = vec![16; 4];
        }
        event
    }

    /// Other apps come and go over hours, and tremble from sample to sample.
    fn memory(&self, number: u64, noise: &mut Noise) -> RunEvent {
        let mut event = self.find(|event| matches!(event, RunEvent::Memory { .. }));
        let share = number as f64 / STEPS as f64;
        let others = (8.5 + 2.2 * (share * 40.0).sin() + 0.7 * noise.next()) * GB;
        if let RunEvent::Memory {
            at_ms,
            sample,
            state_bytes,
            level,
            budget_bytes,
            micro_batch,
            peak,
            limit_bytes,
            ..
        } = &mut event
        {
            let own = *state_bytes as f64 + (2.6 + 1.4 * noise.next()) * GB;
            let system = sample.system_bytes as f64;
            let used = own + others + system;
            (*at_ms, sample.at_ms) = (number * STEP_MS, number * STEP_MS);
            sample.own_bytes = own as u64;
            sample.available_bytes = (sample.total_bytes as f64 - used) as u64;
            *budget_bytes =
                (*limit_bytes as f64 - others - system - 0.4 * GB * noise.next().abs()) as u64;
            *micro_batch = 16;
            *level = if others > 11.0 * GB {
                Level::Warning
            } else {
                Level::Normal
            };
            if let Some(peak) = peak {
                (peak.own_bytes, peak.others_bytes) = (own as u64, others as u64);
            }
        }
        event
    }

    /// Reduces the micro-batch, and increases it again, in turns.
    fn change(&self, number: u64) -> RunEvent {
        let wanted = if (number / CHANGE_STEPS).is_multiple_of(2) {
            Change::Grow
        } else {
            Change::Shrink
        };
        let is_wanted = |event: &RunEvent| matches!(event, RunEvent::Decision { decision, .. } if decision.change == wanted);
        let mut event = self.find(is_wanted);
        if let RunEvent::Decision { at_ms, step, .. } = &mut event {
            (*at_ms, *step) = (number * STEP_MS, number);
        }
        event
    }

    fn evaluation(&self, number: u64) -> RunEvent {
        let mut event = self.find(|event| matches!(event, RunEvent::Evaluation { .. }));
        let share = number as f64 / STEPS as f64;
        if let RunEvent::Evaluation {
            at_ms,
            step,
            epoch,
            loss,
            metrics,
            ..
        } = &mut event
        {
            (*at_ms, *step, *epoch) = (number * STEP_MS, number, number.div_ceil(16));
            *loss = 0.4 + 2.4 * (-5.0 * share).exp();
            metrics.insert("accuracy".to_owned(), 0.93 - 0.7 * (-5.0 * share).exp());
        }
        event
    }
}

/// A run of 22 hours.
fn long_run() -> Run {
    let demo = read_events(Path::new(EVENTS)).expect("the demo is committed");
    let templates = Templates(demo);
    let mut noise = Noise(7);
    let mut run = Run::default();
    run.apply(&templates.started());
    for number in 1..=STEPS {
        run.apply(&templates.step(number, &mut noise));
        if number.is_multiple_of(SAMPLE_STEPS) {
            run.apply(&templates.memory(number, &mut noise));
        }
        if number.is_multiple_of(CHANGE_STEPS) {
            run.apply(&templates.change(number));
        }
        if number.is_multiple_of(EVALUATION_STEPS) {
            run.apply(&templates.evaluation(number));
        }
    }
    run
}

/// A value with four digits; times and steps are whole.
fn short(name: &str, value: f64) -> Value {
    if !value.is_finite() {
        Value::Null
    } else if name.ends_with(".at") || name.ends_with(".step") {
        json!(value.round() as u64)
    } else if value.abs() >= 1e4 {
        let text = format!("{value:.3e}");
        json!(text.parse::<f64>().expect("a number") as u64)
    } else {
        let text = format!("{value:.3e}");
        json!(text.parse::<f64>().expect("a number"))
    }
}

#[test]
fn the_recorded_long_run_is_drawn_with_a_few_values_per_column() {
    let pull = long_run().pull(Query {
        from_ms: None,
        to_ms: None,
        columns: LONG_COLUMNS,
        seen: 0,
        smoothed_steps: Some(SMOOTHED_STEPS),
        rank: None,
    });
    let mut header = serde_json::to_value(&pull.header).expect("a header has a JSON form");
    header["arrays"] = json!([]);
    let arrays: Map<String, Value> = pull
        .header
        .arrays
        .iter()
        .map(|array| {
            let values = pull.array(&array.name);
            assert!(
                values.len() <= 3 * LONG_COLUMNS as usize,
                "{}: {} values",
                array.name,
                values.len()
            );
            let values: Vec<Value> = values.iter().map(|v| short(&array.name, *v)).collect();
            (array.name.clone(), json!(values))
        })
        .collect();
    let fresh = format!("{{\"header\":{header},\n\"arrays\":{}}}\n", json!(arrays));
    check_recorded(LONG, &fresh);
}
