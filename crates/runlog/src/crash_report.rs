//! The crash report: what happened in the last two minutes of a run whose process exited without an
//! end event. It is written from the events alone.

use crate::amounts::format_bytes;
use crate::event::RunEvent;
use jiff::{Timestamp, Zoned};
use pressure::{Action, Component, Level, MemorySample, Phase, Reading, pressure};
use serde::Serialize;

/// Period before the last event that the report covers.
pub(crate) const REPORT_MS: u64 = 120_000;
/// Period over which the growth of other apps is reported.
const GROWTH_MS: u64 = 20_000;
/// Smallest growth of other apps that is reported.
const MIN_GROWTH_BYTES: u64 = 64 << 20;
/// The level of this period before the last sample may explain the crash.
const LEVEL_MS: u64 = 10_000;
/// Number of decisions in the report.
const MAX_DECISIONS: usize = 3;

/// The last two minutes of a run whose process exited without an end event.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CrashReport {
    /// The last sign of the run: its last event, or the last change of the event file. Wall clock,
    /// milliseconds since 1970.
    pub end_unix_ms: u64,
    /// The last memory sample. Wall clock, milliseconds since 1970.
    pub sample_unix_ms: u64,
    /// Highest level of the last ten seconds.
    pub level: Level,
    /// Highest pressure of the last two minutes, `0.0..=1.0`.
    pub highest_pressure: f64,
    /// The report as sentences.
    pub messages: Vec<String>,
}

impl CrashReport {
    /// Writes the report of the newest life in `events`; `None` if that life has no memory sample.
    /// `modified_unix_ms` is the last change of the event file; `now` gives the current day and the
    /// time zone of the report.
    pub(crate) fn from_events(
        events: &[RunEvent],
        modified_unix_ms: u64,
        now: &Zoned,
    ) -> Option<CrashReport> {
        let minutes = LastMinutes::from_events(events, modified_unix_ms, now)?;
        let (last, highest) = (minutes.last(), minutes.highest());
        let recent = minutes.samples.iter().rev();
        let recent = recent.take_while(|sample| sample.unix_ms + LEVEL_MS >= last.unix_ms);
        Some(CrashReport {
            end_unix_ms: minutes.end_unix_ms,
            sample_unix_ms: last.unix_ms,
            level: recent.map(|sample| sample.pressure.level()).max()?,
            highest_pressure: highest.pressure.value,
            messages: minutes.messages(last, highest),
        })
    }
}

/// A memory sample with its pressure.
struct Sample {
    unix_ms: u64,
    memory: MemorySample,
    pressure: Reading,
    budget_bytes: u64,
}

/// A decision of the memory controller.
struct TimedMessage<'a> {
    unix_ms: u64,
    message: &'a str,
}

/// The last two minutes, as far as the events show.
struct LastMinutes<'a> {
    /// Never empty; oldest first.
    samples: Vec<Sample>,
    decisions: Vec<TimedMessage<'a>>,
    /// The last action of the memory controller.
    action: Action,
    /// The last micro-batch in training; 0 if it is unknown.
    micro_batch: u32,
    effective_batch: u32,
    /// The run waited for memory, or for the user, at some point.
    waited: bool,
    end_unix_ms: u64,
    now: &'a Zoned,
}

impl<'a> LastMinutes<'a> {
    fn from_events(
        events: &'a [RunEvent],
        modified_unix_ms: u64,
        now: &'a Zoned,
    ) -> Option<LastMinutes<'a>> {
        let life_start = |event: &RunEvent| match event {
            RunEvent::Started(started) => Some((started.at_ms, started.unix_ms)),
            RunEvent::Resumed { at_ms, unix_ms, .. } => Some((*at_ms, *unix_ms)),
            _ => None,
        };
        let (start, (start_ms, start_unix_ms)) = events
            .iter()
            .enumerate()
            .rev()
            .find_map(|(index, event)| Some((index, life_start(event)?)))?;
        let unix_ms = |event: &RunEvent| start_unix_ms + event.at_ms().saturating_sub(start_ms);
        let effective_batch = events.iter().rev().find_map(|event| match event {
            RunEvent::Started(started) => Some(started.effective_batch),
            _ => None,
        });
        let newest_unix_ms = unix_ms(events.last()?);
        let mut minutes = LastMinutes {
            samples: Vec::new(),
            decisions: Vec::new(),
            action: Action::Run,
            micro_batch: 0,
            effective_batch: effective_batch.unwrap_or(0),
            waited: false,
            end_unix_ms: newest_unix_ms.max(modified_unix_ms),
            now,
        };
        for event in &events[start..] {
            minutes.add(event, unix_ms(event), newest_unix_ms);
        }
        (!minutes.samples.is_empty()).then_some(minutes)
    }

    /// Adds an event of the newest life. Only the state of the run is taken from events before the
    /// last two minutes.
    fn add(&mut self, event: &'a RunEvent, unix_ms: u64, newest_unix_ms: u64) {
        let recent = unix_ms + REPORT_MS >= newest_unix_ms;
        match event {
            RunEvent::Decision {
                phase,
                decision,
                message,
                ..
            } => {
                self.action = decision.action;
                if *phase == Phase::Train {
                    self.micro_batch = decision.micro_batch;
                }
                let is_shown = *phase == Phase::Train || decision.change.is_shown_in_evaluation();
                if recent && is_shown {
                    self.decisions.push(TimedMessage { unix_ms, message });
                }
            }
            RunEvent::Memory {
                sample,
                budget_bytes,
                ..
            } if recent => self.samples.push(Sample {
                unix_ms,
                memory: *sample,
                pressure: pressure(sample),
                budget_bytes: *budget_bytes,
            }),
            _ => {}
        }
        self.waited |= recent && self.action != Action::Run;
    }

    fn last(&self) -> &Sample {
        self.samples.last().expect("there is a sample")
    }

    /// The first of the samples with the highest pressure.
    fn highest(&self) -> &Sample {
        let mut highest = self.samples.first().expect("there is a sample");
        for sample in &self.samples {
            if sample.pressure.value > highest.pressure.value {
                highest = sample;
            }
        }
        highest
    }

    fn messages(&self, last: &Sample, highest: &Sample) -> Vec<String> {
        let mut messages = vec![
            self.last_sample_message(last),
            footprint_message(last),
            self.pressure_message(highest),
        ];
        if self.decisions.is_empty() {
            messages.push("The memory controller changed nothing in the last two minutes.".into());
        }
        let skipped = self.decisions.len().saturating_sub(MAX_DECISIONS);
        messages.extend(self.decisions[skipped..].iter().map(|decision| {
            let time = self.format_time(decision.unix_ms);
            format!("At {time}: {}.", decision.message)
        }));
        messages
    }

    /// "The last memory sample was taken at 14:02:11, 0.4 s before the end: pressure 0.97, other
    /// apps had taken 6.1 GB in the last 20 s; Ebb computed 4 samples at a time (16 per step)."
    fn last_sample_message(&self, last: &Sample) -> String {
        let seconds = self.end_unix_ms.saturating_sub(last.unix_ms) as f64 / 1000.0;
        let others = match self.growth(last) {
            Some(growth) => format!(
                "other apps had taken {} in the last {} s",
                format_bytes(growth.bytes),
                growth.seconds
            ),
            None => format!(
                "other apps used {}",
                format_bytes(last.memory.others_bytes())
            ),
        };
        format!(
            "The last memory sample was taken at {}, {seconds:.1} s before the end: pressure {:.2}, {others}{}.",
            self.format_time(last.unix_ms),
            last.pressure.value,
            self.state_text()
        )
    }

    /// How much other apps grew from their minimum in the last seconds to the last sample.
    fn growth(&self, last: &Sample) -> Option<Growth> {
        let recent = self.samples.iter();
        let recent = recent.filter(|sample| sample.unix_ms + GROWTH_MS >= last.unix_ms);
        // Of several equal minima the last one: the growth began there.
        let lowest = recent
            .rev()
            .min_by_key(|sample| sample.memory.others_bytes())?;
        let before = lowest.memory.others_bytes();
        let bytes = last.memory.others_bytes().saturating_sub(before);
        let elapsed_ms = last.unix_ms.saturating_sub(lowest.unix_ms);
        let seconds = elapsed_ms.div_ceil(1000).max(1);
        (bytes >= MIN_GROWTH_BYTES).then_some(Growth { bytes, seconds })
    }

    /// The last state of the run as the end of a sentence.
    fn state_text(&self) -> String {
        match self.action {
            Action::Run if self.micro_batch == 0 => String::new(),
            Action::Run => format!(
                "; Ebb computed {} samples at a time ({} per step)",
                self.micro_batch, self.effective_batch
            ),
            Action::Pause => "; the run was paused".into(),
            Action::Suspend => "; the run was suspended".into(),
            Action::Stop => "; the run was about to stop".into(),
        }
    }

    fn pressure_message(&self, highest: &Sample) -> String {
        let (value, time) = (highest.pressure.value, self.format_time(highest.unix_ms));
        match highest.pressure.level() {
            // Ebb waited, so that other apps had enough memory. The decisions explain it.
            Level::Normal if self.waited => {
                format!(
                    "The highest memory pressure of the last two minutes was {value:.2}, at {time}."
                )
            }
            Level::Normal => format!(
                "The highest memory pressure of the last two minutes was {value:.2}, at {time}. This is the normal level."
            ),
            Level::Warning | Level::Critical => format!(
                "The highest memory pressure of the last two minutes was {value:.2} at {time}, because {}.",
                cause_text(highest.pressure.cause, &highest.memory)
            ),
        }
    }

    /// "14:02:11", with the day unless it is today.
    fn format_time(&self, unix_ms: u64) -> String {
        let Ok(time) = Timestamp::from_millisecond(unix_ms as i64) else {
            return "an unknown time".to_owned();
        };
        let time = time.to_zoned(self.now.time_zone().clone());
        let format = if time.date() == self.now.date() {
            "%H:%M:%S"
        } else {
            "%H:%M:%S on %-d %B"
        };
        time.strftime(format).to_string()
    }
}

/// Growth of the memory that other apps use.
struct Growth {
    bytes: u64,
    seconds: u64,
}

fn footprint_message(last: &Sample) -> String {
    format!(
        "Ebb used {}, its budget was {}, and {} was free.",
        format_bytes(last.memory.own_bytes),
        format_bytes(last.budget_bytes),
        format_bytes(last.memory.available_bytes)
    )
}

fn cause_text(cause: Component, sample: &MemorySample) -> String {
    match cause {
        Component::Headroom => format!("only {} was free", format_bytes(sample.available_bytes)),
        Component::Device => "the GPU's memory was nearly full".into(),
        Component::Kernel if sample.stall_fraction.is_some() => {
            "apps had to wait for memory".into()
        }
        Component::Kernel => "the system was compressing other apps' memory".into(),
        Component::Disk => "the disk was nearly full".into(),
        Component::System => "the system reported memory pressure".into(),
        Component::User => "you requested it".into(),
        Component::Speed => "a larger micro-batch would not have been faster".into(),
    }
}

#[cfg(test)]
mod tests;
