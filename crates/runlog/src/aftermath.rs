//! What happened in the last two minutes of a run that ended without a word, in plain sentences made from its flight
//! recorder. Knows no widget; decides nothing.

use crate::RunlogError;
use crate::flight::{FlightRecord, read_flight};
use crate::folder::RunFolder;
use crate::words::format_bytes;
use jiff::{Timestamp, Zoned, tz::TimeZone};
use pressure::{Action, Component, Level, MemorySample, Reading, pressure};
use serde::Serialize;
use std::fs;
use std::time::UNIX_EPOCH;

/// What is told of.
const TOLD_MS: u64 = 120_000;
/// Growth of other apps is told over so long.
const GROWTH_MS: u64 = 20_000;
/// Less than this is called no growth, bytes.
const GROWTH_LEAST_BYTES: u64 = 64 << 20;
/// What the pressure was so shortly before the end may be why it came.
const LAST_MS: u64 = 10_000;
/// Decisions told.
const DECISIONS: usize = 3;

/// The end of a run, as its flight recorder shows it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Aftermath {
    /// The last trace of the run, wall clock in milliseconds since 1970: the newest record, or the last event written.
    pub end_unix_ms: u64,
    /// The last reading, wall clock in milliseconds since 1970.
    pub reading_unix_ms: u64,
    /// Highest level of the last ten seconds: what the end may have come from.
    pub level: Level,
    /// Highest pressure of the last two minutes, `0.0..=1.0`.
    pub highest_pressure: f64,
    /// What happened, in plain words.
    pub sentences: Vec<String>,
}

impl RunFolder {
    /// What the flight recorder of this run says about its newest life; nothing where there is no reading.
    pub fn aftermath(&self) -> Result<Option<Aftermath>, RunlogError> {
        let records = read_flight(self)?;
        let changed = fs::metadata(self.events_path()).and_then(|about| about.modified());
        let events_unix_ms = changed
            .ok()
            .and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        let events_unix_ms = events_unix_ms.map_or(0, |age| age.as_millis() as u64);
        Ok(aftermath(&records, events_unix_ms, &Zoned::now()))
    }
}

/// The same from records and the time of the last event. `now` gives the day and the time zone of the words.
pub(crate) fn aftermath(
    records: &[FlightRecord],
    events_unix_ms: u64,
    now: &Zoned,
) -> Option<Aftermath> {
    let begin = |record: &FlightRecord| matches!(record, FlightRecord::Life { .. });
    let life = records.iter().rposition(begin).unwrap_or(0);
    let newest = records.last()?.unix_ms();
    let end_unix_ms = newest.max(events_unix_ms);
    let told = |record: &&FlightRecord| record.unix_ms() + TOLD_MS >= newest;
    let records: Vec<&FlightRecord> = records[life..].iter().filter(told).collect();
    let story = Story {
        readings: records
            .iter()
            .filter_map(|record| reading(record))
            .collect(),
        records,
        end_unix_ms,
        now,
    };
    let last = story.readings.last()?;
    let highest = story.highest();
    let late = story.readings.iter().rev();
    let late = late.take_while(|read| read.unix_ms + LAST_MS >= last.unix_ms);
    Some(Aftermath {
        end_unix_ms,
        reading_unix_ms: last.unix_ms,
        level: late.map(|read| read.pressure.level()).max()?,
        highest_pressure: highest.pressure.value,
        sentences: story.sentences(last, highest),
    })
}

/// A reading with its pressure.
#[derive(Clone, Copy)]
struct Read {
    unix_ms: u64,
    sample: MemorySample,
    pressure: Reading,
}

fn reading(record: &FlightRecord) -> Option<Read> {
    match record {
        FlightRecord::Sample { unix_ms, sample } => Some(Read {
            unix_ms: *unix_ms,
            sample: *sample,
            pressure: pressure(sample),
        }),
        _ => None,
    }
}

struct Story<'a> {
    records: Vec<&'a FlightRecord>,
    readings: Vec<Read>,
    end_unix_ms: u64,
    now: &'a Zoned,
}

impl Story<'_> {
    /// The first of the highest readings.
    fn highest(&self) -> Read {
        let first = self.readings[0];
        let higher = |high: Read, read: &Read| match read.pressure.value > high.pressure.value {
            true => *read,
            false => high,
        };
        self.readings.iter().fold(first, higher)
    }

    fn sentences(&self, last: &Read, highest: Read) -> Vec<String> {
        let mut sentences = vec![self.last_reading(last)];
        sentences.extend(self.footprint(last));
        sentences.push(self.pressure(highest));
        let decisions = self.records.iter().filter_map(|record| match record {
            FlightRecord::Decision { unix_ms, sentence } => {
                Some(format!("At {}: {sentence}.", self.time(*unix_ms)))
            }
            _ => None,
        });
        let decisions: Vec<String> = decisions.collect();
        match decisions.len() {
            0 => sentences.push("The pilot changed nothing in that time.".into()),
            all => sentences.extend(decisions.into_iter().skip(all.saturating_sub(DECISIONS))),
        }
        sentences
    }

    /// "The last reading was at 14:02:11, 0.4 s before the end: pressure 0.97, other apps had taken 6.1 GB in the last 20 s;
    /// the micro-batch was 4 of 16."
    fn last_reading(&self, last: &Read) -> String {
        let before = self.end_unix_ms.saturating_sub(last.unix_ms) as f64 / 1000.0;
        let others = match self.growth(last) {
            Some((bytes, seconds)) => format!(
                "other apps had taken {} in the last {seconds} s",
                format_bytes(bytes)
            ),
            None => format!(
                "other apps used {}",
                format_bytes(last.sample.others_bytes())
            ),
        };
        format!(
            "The last reading was at {}, {before:.1} s before the end: pressure {:.2}, {others}{}.",
            self.time(last.unix_ms),
            last.pressure.value,
            self.standing()
                .map_or(String::new(), |(words, _)| format!("; {words}"))
        )
    }

    /// What other apps took from their low of the last seconds to the end, and in how many seconds.
    fn growth(&self, last: &Read) -> Option<(u64, u64)> {
        let recent = self.readings.iter();
        let recent = recent.filter(|read| read.unix_ms + GROWTH_MS >= last.unix_ms);
        // The last of several equal lows: from there it rose.
        let low = recent.rev().min_by_key(|read| read.sample.others_bytes())?;
        let taken = last
            .sample
            .others_bytes()
            .saturating_sub(low.sample.others_bytes());
        let seconds = last
            .unix_ms
            .saturating_sub(low.unix_ms)
            .div_ceil(1000)
            .max(1);
        (taken >= GROWTH_LEAST_BYTES).then_some((taken, seconds))
    }

    /// Where the run stood last, in words, and its budget.
    fn standing(&self) -> Option<(String, u64)> {
        self.records.iter().rev().find_map(|record| match record {
            FlightRecord::Standing {
                action,
                micro_batch,
                effective_batch,
                budget_bytes,
                ..
            } => Some((
                match action {
                    Action::Run => {
                        format!("the micro-batch was {micro_batch} of {effective_batch}")
                    }
                    Action::Pause => "the run was paused".to_owned(),
                    Action::Suspend => "the run was parked".to_owned(),
                    Action::Stop => "the run was about to stop".to_owned(),
                },
                *budget_bytes,
            )),
            _ => None,
        })
    }

    fn footprint(&self, last: &Read) -> Option<String> {
        let (_, budget_bytes) = self.standing()?;
        let (own, budget) = (
            format_bytes(last.sample.own_bytes),
            format_bytes(budget_bytes),
        );
        Some(format!(
            "Ebb held {own}, its budget was {budget}, and {} were free.",
            format_bytes(last.sample.available_bytes)
        ))
    }

    fn pressure(&self, highest: Read) -> String {
        let (value, at) = (highest.pressure.value, self.time(highest.unix_ms));
        match highest.pressure.level() {
            // Ebb had given way, so that nobody else ran short: what was done says the rest.
            Level::Normal if self.waited() => {
                format!("The highest pressure of the last two minutes was {value:.2}, at {at}.")
            }
            Level::Normal => format!(
                "Memory was not short in the last two minutes: the highest pressure was {value:.2}, at {at}."
            ),
            Level::Warning | Level::Critical => format!(
                "The highest pressure of the last two minutes was {value:.2} at {at}, because {}.",
                cause(highest.pressure.cause, &highest.sample)
            ),
        }
    }

    /// The run stood still for a while.
    fn waited(&self) -> bool {
        let still = |record: &&FlightRecord| matches!(record, FlightRecord::Standing { action, .. } if *action != Action::Run);
        self.records.iter().any(still)
    }

    /// "14:02:11", with the day where it is not today.
    fn time(&self, unix_ms: u64) -> String {
        let Ok(at) = Timestamp::from_millisecond(unix_ms as i64) else {
            return "an unknown time".to_owned();
        };
        let at = at.to_zoned(self.zone());
        let format = match at.date() == self.now.date() {
            true => "%H:%M:%S",
            false => "%H:%M:%S on %-d %B",
        };
        at.strftime(format).to_string()
    }

    fn zone(&self) -> TimeZone {
        self.now.time_zone().clone()
    }
}

fn cause(component: Component, sample: &MemorySample) -> String {
    match component {
        Component::Headroom => format!("only {} were free", format_bytes(sample.available_bytes)),
        Component::Device => "the GPU's memory was nearly full".into(),
        Component::Kernel if sample.stall_fraction.is_some() => {
            "apps had to wait for memory".into()
        }
        Component::Kernel => "the system was compressing other apps' memory".into(),
        Component::Disk => "the disk was nearly full".into(),
        Component::System => "the system reported memory pressure".into(),
        Component::User => "you asked for it".into(),
        Component::Speed => "more would have been no faster".into(),
    }
}

#[cfg(test)]
#[path = "aftermath/tests.rs"]
mod tests;
