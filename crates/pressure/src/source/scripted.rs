//! A machine from a file, which gives the memory of *other* apps line by line. Ebb's own footprint
//! is a closure, so that a real training can run on a scripted machine.

use super::memory_source::{DeviceReadings, MemorySource};
use crate::error::PressureError;
use crate::memory_sample::{Level, MemorySample};
use crate::policy::MAX_INTEGER;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// How a script advances.
pub enum Advance {
    /// By a clock in milliseconds: the newest line that is due applies (a step, not a slope).
    /// Before the first line, the first.
    Time(Box<dyn FnMut() -> u64 + Send>),
    /// One line per sample. After the last line its values stay, and time advances by the last
    /// distance between two lines (1 s if there is only one), so that calm can still be measured.
    Sample,
}

/// Returns the footprint in bytes.
type Footprint = Box<dyn FnMut() -> u64 + Send>;
/// Returns the highest footprint since its last call, in bytes.
type Peak = Box<dyn FnMut() -> Option<u64> + Send>;

/// One line of a script.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Line {
    at_ms: u64,
    total_bytes: u64,
    others_bytes: u64,
    level: Option<Level>,
    disk_free_bytes: Option<u64>,
}

/// A machine from a file.
pub struct Scripted {
    path: PathBuf,
    lines: Vec<Line>,
    /// Samples taken so far.
    taken: usize,
    advance: Advance,
    own: Footprint,
    peak: Option<Peak>,
    device: DeviceReadings,
}

impl Scripted {
    /// Reads the whole script. `own` returns this process's footprint in bytes.
    ///
    /// # Errors
    /// The file cannot be read, is empty, or has an invalid line.
    pub fn open(
        path: &Path,
        advance: Advance,
        own: impl FnMut() -> u64 + Send + 'static,
    ) -> Result<Self, PressureError> {
        let text =
            std::fs::read_to_string(path).map_err(|source| PressureError::ScriptUnreadable {
                path: path.to_owned(),
                source,
            })?;
        Ok(Self {
            path: path.to_owned(),
            lines: parse_lines(path, &text)?,
            taken: 0,
            advance,
            own: Box::new(own),
            peak: None,
            device: DeviceReadings::default(),
        })
    }

    /// The same source with an exact reading of the highest footprint since the last call.
    pub fn with_peak(mut self, peak: impl FnMut() -> Option<u64> + Send + 'static) -> Self {
        self.peak = Some(Box::new(peak));
        self
    }

    /// The same source with the device's readings.
    pub fn with_device(mut self, device: DeviceReadings) -> Self {
        self.device = device;
        self
    }

    /// The line that applies now, with its time.
    fn line(&mut self) -> Line {
        let last = self.lines.len() - 1;
        match &mut self.advance {
            Advance::Time(clock) => {
                let at_ms = clock();
                let due = self.lines.partition_point(|line| line.at_ms <= at_ms);
                Line {
                    at_ms,
                    ..self.lines[due.saturating_sub(1)]
                }
            }
            Advance::Sample => {
                let index = self.taken;
                self.taken += 1;
                let line = self.lines[index.min(last)];
                let distance = match last {
                    0 => 1_000,
                    _ => self.lines[last].at_ms - self.lines[last - 1].at_ms,
                };
                Line {
                    at_ms: line.at_ms + distance * index.saturating_sub(last) as u64,
                    ..line
                }
            }
        }
    }
}

impl MemorySource for Scripted {
    fn sample(&mut self) -> Result<MemorySample, PressureError> {
        let line = self.line();
        let own_bytes = (self.own)();
        let mut sample = MemorySample {
            at_ms: line.at_ms,
            total_bytes: line.total_bytes,
            available_bytes: line
                .total_bytes
                .saturating_sub(line.others_bytes)
                .saturating_sub(own_bytes),
            own_bytes,
            kernel_level: line.level,
            disk_free_bytes: line.disk_free_bytes,
            ..MemorySample::default()
        };
        self.device.fill(&mut sample);
        Ok(sample)
    }

    fn describe(&self) -> String {
        let by = match self.advance {
            Advance::Time(_) => "each used at the time that it states",
            Advance::Sample => "one used for each decision",
        };
        let lines = match self.lines.len() {
            1 => "1 line".to_owned(),
            count => format!("{count} lines, {by}"),
        };
        format!("the memory script {} ({lines})", self.path.display())
    }

    fn own_bytes(&mut self) -> u64 {
        (self.own)()
    }

    fn take_peak_bytes(&mut self) -> Option<u64> {
        self.peak.as_mut()?()
    }

    fn is_stepped(&self) -> bool {
        matches!(self.advance, Advance::Sample)
    }
}

/// Every line of a script, or the first error.
fn parse_lines(path: &Path, text: &str) -> Result<Vec<Line>, PressureError> {
    let mut lines: Vec<Line> = Vec::new();
    for (index, written) in text.lines().enumerate() {
        let invalid = |problem: String| PressureError::ScriptLine {
            path: path.to_owned(),
            line: index + 1,
            problem,
        };
        let line = parse_line(written).map_err(invalid)?;
        if let Some(before) = lines.last().filter(|before| before.at_ms >= line.at_ms) {
            return Err(invalid(format!(
                "time must increase, but {} ms follows {} ms",
                line.at_ms, before.at_ms
            )));
        }
        lines.push(line);
    }
    if lines.is_empty() {
        return Err(PressureError::ScriptEmpty {
            path: path.to_owned(),
        });
    }
    Ok(lines)
}

/// One line, or what is wrong with it.
fn parse_line(written: &str) -> Result<Line, String> {
    if written.trim().is_empty() {
        return Err("the line is empty".into());
    }
    let value: Value =
        serde_json::from_str(written).map_err(|e| format!("this is not JSON ({e})"))?;
    let Value::Object(object) = value else {
        return Err("this is not a JSON object".into());
    };
    const KEYS: [&str; 5] = [
        "at_ms",
        "total_bytes",
        "others_bytes",
        "level",
        "disk_free_bytes",
    ];
    if let Some(unknown) = object.keys().find(|key| !KEYS.contains(&key.as_str())) {
        return Err(format!(
            "the key \"{unknown}\" is unknown; known keys are {}",
            KEYS.join(", ")
        ));
    }
    let line = Line {
        at_ms: integer(&object, "at_ms")?,
        total_bytes: integer(&object, "total_bytes")?,
        others_bytes: integer(&object, "others_bytes")?,
        level: level(&object)?,
        disk_free_bytes: if object.contains_key("disk_free_bytes") {
            Some(integer(&object, "disk_free_bytes")?)
        } else {
            None
        },
    };
    if line.total_bytes == 0 {
        return Err("\"total_bytes\" must not be 0".into());
    }
    if line.others_bytes > line.total_bytes {
        return Err(format!(
            "other apps use {} bytes, more than the total of {} bytes",
            line.others_bytes, line.total_bytes
        ));
    }
    Ok(line)
}

fn integer(object: &Map<String, Value>, key: &str) -> Result<u64, String> {
    match object.get(key) {
        None => Err(format!("\"{key}\" is missing")),
        Some(value) => value
            .as_u64()
            .filter(|number| *number <= MAX_INTEGER)
            .ok_or_else(|| {
                format!("\"{key}\" is {value}, not a whole number from 0 to {MAX_INTEGER}")
            }),
    }
}

fn level(object: &Map<String, Value>) -> Result<Option<Level>, String> {
    match object.get("level") {
        None => Ok(None),
        Some(value) => serde_json::from_value(value.clone())
            .map(Some)
            .map_err(|_| {
                format!("\"level\" is {value}, not \"normal\", \"warning\" or \"critical\"")
            }),
    }
}

#[cfg(test)]
mod tests;
