//! A source that never fails: while the machine cannot be read, it falls back to its own footprint
//! and reports that once.

use super::memory_source::MemorySource;
use crate::error::PressureError;
use crate::memory_sample::MemorySample;
use std::time::Instant;

pub(super) struct FallbackSource<S> {
    source: S,
    opened: Instant,
    reported: bool,
    notice: Option<String>,
}

impl<S: MemorySource> FallbackSource<S> {
    /// Wraps a source that was opened at `opened`.
    pub(super) fn new(source: S, opened: Instant) -> Self {
        Self {
            source,
            opened,
            reported: false,
            notice: None,
        }
    }

    /// The sample, or one that is marked as unreadable.
    fn or_unreadable(&mut self, sample: Result<MemorySample, PressureError>) -> MemorySample {
        let error = match sample {
            Err(error) => error,
            Ok(sample) => return sample,
        };
        if !std::mem::replace(&mut self.reported, true) {
            self.notice = Some(format!(
                "{error} Until Ebb can read the memory of this machine again, it knows only its own footprint. It uses small micro-batches meanwhile, and changes their size slowly."
            ));
        }
        MemorySample {
            at_ms: self.opened.elapsed().as_millis() as u64,
            own_bytes: self.source.own_bytes(),
            ..MemorySample::default()
        }
    }
}

impl<S: MemorySource> MemorySource for FallbackSource<S> {
    fn sample(&mut self) -> Result<MemorySample, PressureError> {
        let sample = self.source.sample();
        Ok(self.or_unreadable(sample))
    }

    fn sample_fast(&mut self) -> Result<MemorySample, PressureError> {
        let sample = self.source.sample_fast();
        Ok(self.or_unreadable(sample))
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
    struct Unreliable(u64);

    impl MemorySource for Unreliable {
        fn sample(&mut self) -> Result<MemorySample, PressureError> {
            self.0 += 1;
            let sample = MemorySample {
                total_bytes: 100,
                available_bytes: 50,
                ..MemorySample::default()
            };
            if self.0.is_multiple_of(2) {
                return Err(PressureError::Unexpected {
                    what: "/proc/meminfo".into(),
                    found: "nothing".into(),
                });
            }
            Ok(sample)
        }

        fn describe(&self) -> String {
            "every second reading".into()
        }
    }

    #[test]
    fn an_unreadable_machine_is_reported_once_and_may_come_back() {
        let mut source = FallbackSource::new(Unreliable(0), Instant::now());
        let mut notices = Vec::new();
        for reading in 1..=6 {
            let sample = source
                .sample()
                .expect("a memory source with a fallback never fails");
            let unreadable = reading % 2 == 0;
            assert_eq!(sample.total_bytes == 0, unreadable, "reading {reading}");
            notices.extend(source.take_notice());
        }
        assert_eq!(notices.len(), 1, "{notices:?}");
        assert!(
            notices[0].starts_with(
                "Ebb expects an amount of memory in /proc/meminfo, but found nothing."
            ),
            "{notices:?}"
        );
    }
}
