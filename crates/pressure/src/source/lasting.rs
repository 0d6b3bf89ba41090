//! A source that never fails: while the machine cannot be read it sees only itself, and says so once. Knows no platform.

use super::MemorySource;
use crate::error::PressureError;
use crate::sample::MemorySample;
use std::time::Instant;

/// A source, and what is done where it fails.
pub(super) struct Lasting<S> {
    source: S,
    opened: Instant,
    said: bool,
    notice: Option<String>,
}

impl<S: MemorySource> Lasting<S> {
    /// Wraps a source that was opened at `opened`.
    pub(super) fn of(source: S, opened: Instant) -> Self {
        Self {
            source,
            opened,
            said: false,
            notice: None,
        }
    }

    /// The sample, or what is known without it.
    fn lasting(&mut self, sample: Result<MemorySample, PressureError>) -> MemorySample {
        let error = match sample {
            Err(error) => error,
            Ok(sample) => return sample,
        };
        if !std::mem::replace(&mut self.said, true) {
            self.notice = Some(format!(
                "{error} Until it can be read again Ebb knows its own footprint alone and works in small, slowly changing pieces."
            ));
        }
        MemorySample {
            at_ms: self.opened.elapsed().as_millis() as u64,
            own_bytes: self.source.own_bytes(),
            ..MemorySample::default()
        }
    }
}

impl<S: MemorySource> MemorySource for Lasting<S> {
    fn sample(&mut self) -> Result<MemorySample, PressureError> {
        let sample = self.source.sample();
        Ok(self.lasting(sample))
    }

    fn glance(&mut self) -> Result<MemorySample, PressureError> {
        let glance = self.source.glance();
        Ok(self.lasting(glance))
    }

    fn describe(&self) -> String {
        self.source.describe()
    }

    fn own_bytes(&mut self) -> u64 {
        self.source.own_bytes()
    }

    fn take_peak_bytes(&mut self) -> Option<u64> {
        self.source.take_peak_bytes()
    }

    fn own_headroom_bytes(&mut self) -> Option<u64> {
        self.source.own_headroom_bytes()
    }

    fn take_notice(&mut self) -> Option<String> {
        self.source.take_notice().or_else(|| self.notice.take())
    }

    fn is_stepped(&self) -> bool {
        self.source.is_stepped()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails at every second reading.
    struct Torn(u64);

    impl MemorySource for Torn {
        fn sample(&mut self) -> Result<MemorySample, PressureError> {
            self.0 += 1;
            let sample = MemorySample {
                total_bytes: 100,
                available_bytes: 50,
                ..MemorySample::default()
            };
            match self.0.is_multiple_of(2) {
                true => Err(PressureError::Unexpected {
                    what: "/proc/meminfo".into(),
                    found: "nothing".into(),
                }),
                false => Ok(sample),
            }
        }

        fn describe(&self) -> String {
            "every second reading".into()
        }
    }

    #[test]
    fn a_machine_that_can_no_longer_be_read_is_said_once_and_comes_back() {
        let mut source = Lasting::of(Torn(0), Instant::now());
        let mut notices = Vec::new();
        for reading in 1..=6 {
            let sample = source.sample().expect("a lasting source never fails");
            let blind = reading % 2 == 0;
            assert_eq!(sample.total_bytes == 0, blind, "reading {reading}");
            notices.extend(source.take_notice());
        }
        assert_eq!(notices.len(), 1, "{notices:?}");
        assert!(
            notices[0].starts_with("/proc/meminfo holds nothing"),
            "{notices:?}"
        );
    }
}
