//! The memory stress test: a child process takes memory for a while and gives it back, so that
//! users can watch Ebb react. It ends when its time is over, when its parent ends, or when the
//! machine gets short of memory.

use pressure::{MemorySample, source, stress_test_bytes, stress_test_is_full, stress_test_is_over};
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The hidden subcommand of the process that takes the memory.
pub const HOLD: &str = "stress-hold";
/// Default duration of a stress test.
pub const SECONDS: u64 = 20;
/// Memory that is taken at once, in bytes. After each such block the memory of the machine is
/// checked.
const BITE_BYTES: u64 = 16 << 20;
/// Interval between two checks of the memory.
const LOOK: Duration = Duration::from_millis(100);

/// A running stress test. Dropping it ends it.
pub struct Drill {
    child: Child,
    /// Memory that it takes.
    pub bytes: u64,
    /// What would make a running training shrink, if that much cannot be taken safely.
    #[cfg(feature = "desktop")]
    pub needed_bytes: Option<u64>,
    ends: Instant,
}

impl Drill {
    /// Starts a stress test that takes `wished` bytes, or a quarter of the available memory, for
    /// `seconds`.
    ///
    /// # Errors
    /// A sentence, for example if the test would endanger the machine.
    pub fn begin(wished: Option<u64>, seconds: u64) -> Result<Drill, String> {
        let bytes = stress_test_bytes(&reading()?, wished).map_err(|error| error.to_string())?;
        Drill::take(bytes, seconds)
    }

    /// As [`Drill::begin`], with the memory that makes a running training shrink. If that much
    /// cannot be taken safely, it takes a quarter of the available memory.
    ///
    /// # Errors
    /// A sentence, for example if the test would endanger the machine.
    #[cfg(feature = "desktop")]
    pub fn begin_for(enough: Option<u64>, seconds: u64) -> Result<Drill, String> {
        let (bytes, needed_bytes) = safe_bytes(&reading()?, enough)?;
        let mut drill = Drill::take(bytes, seconds)?;
        drill.needed_bytes = needed_bytes;
        Ok(drill)
    }

    fn take(bytes: u64, seconds: u64) -> Result<Drill, String> {
        let failed = |error: std::io::Error| {
            format!("the stress test could not be started: {error}. Try again.")
        };
        let ebb = std::env::current_exe().map_err(failed)?;
        let child = Command::new(ebb)
            .args([HOLD, &bytes.to_string(), &seconds.to_string()])
            .stdin(Stdio::piped()) // the child ends when it closes
            .stdout(Stdio::null())
            .spawn()
            .map_err(failed)?;
        let ends = Instant::now() + Duration::from_secs(seconds);
        Ok(Drill {
            child,
            bytes,
            #[cfg(feature = "desktop")]
            needed_bytes: None,
            ends,
        })
    }

    /// Waits for the end. Returns true if the memory was held for the whole time.
    pub fn wait(&mut self) -> bool {
        // `Child::wait` would close stdin, which ends the child.
        while self.seconds_left().is_some() {
            std::thread::sleep(LOOK);
        }
        self.child.wait().is_ok_and(|status| status.success())
    }

    /// Seconds until the memory is given back; `None` after that.
    pub fn seconds_left(&mut self) -> Option<f64> {
        match self.child.try_wait() {
            Ok(None) => Some((self.ends - Instant::now()).as_secs_f64().max(0.0)),
            _ => None,
        }
    }
}

impl Drop for Drill {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The bytes to take, and `enough` if that much cannot be taken safely.
#[cfg(feature = "desktop")]
fn safe_bytes(sample: &MemorySample, enough: Option<u64>) -> Result<(u64, Option<u64>), String> {
    if let Ok(bytes) = stress_test_bytes(sample, enough) {
        return Ok((bytes, None));
    }
    let bytes = stress_test_bytes(sample, None).map_err(|error| error.to_string())?;
    Ok((bytes, enough))
}

fn reading() -> Result<MemorySample, String> {
    let mut source = source::open(Default::default());
    source.sample().map_err(|error| error.to_string())
}

/// The child process: takes the memory, holds it and checks the machine. Returns true if it held
/// the memory for the whole time. It has two threads and no runtime, which would take memory of its
/// own: one thread waits for its parent, the other one holds the memory.
pub fn hold(bytes: u64, seconds: u64) -> bool {
    std::thread::spawn(|| {
        // Stdin closes when the parent ends the test or dies.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    let ends = Instant::now() + Duration::from_secs(seconds);
    let mut source = source::open(Default::default());
    let mut held: Vec<Vec<u64>> = Vec::new();
    let mut taken = 0;
    while Instant::now() < ends {
        let Ok(sample) = source.sample() else {
            return false;
        };
        if stress_test_is_over(&sample) {
            return false;
        }
        if taken < bytes && !stress_test_is_full(&sample) {
            let bite = BITE_BYTES.min(bytes - taken);
            held.push(noise(bite, taken));
            taken += bite;
        } else {
            std::thread::sleep(LOOK.min(ends.saturating_duration_since(Instant::now())));
        }
    }
    drop(std::hint::black_box(held));
    true
}

/// Random numbers, which no system can compress, so that every page is really used.
fn noise(bytes: u64, seed: u64) -> Vec<u64> {
    let mut state = seed | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    std::iter::repeat_with(next)
        .take(bytes.div_ceil(8) as usize)
        .collect()
}

#[cfg(all(test, feature = "desktop"))]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_takes_too_little_memory_names_what_is_needed() {
        const GB: u64 = 1 << 30;
        let sample = MemorySample {
            total_bytes: 32 * GB,
            available_bytes: 16 * GB,
            ..MemorySample::default()
        };
        assert_eq!(safe_bytes(&sample, Some(5 * GB)), Ok((5 * GB, None)));
        assert_eq!(safe_bytes(&sample, None), Ok((4 * GB, None)));
        let unsafe_size = Some(20 * GB);
        assert_eq!(safe_bytes(&sample, unsafe_size), Ok((4 * GB, unsafe_size)));
        assert!(safe_bytes(&MemorySample::default(), Some(GB)).is_err());
    }
}
