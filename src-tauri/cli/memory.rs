//! `ebb memory`: shows this machine's memory as Ebb sees it, once per second.

use super::args;
use super::failure::Failure;
use super::interrupt::on_interrupt;
use super::output::{out, status};
use super::train::machine;
use pressure::{Level, LevelTracker, MemorySample, Thermal, pressure};
use runlog::format_bytes;
use serde_json::json;
use std::io::{IsTerminal, Write};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Interval between two readings of the memory.
const EVERY: Duration = Duration::from_secs(1);

/// Runs `ebb memory` until Ctrl-C. With `--once`, reads the memory only once.
pub fn run(args: &args::Memory) -> Result<(), Failure> {
    let mut source = machine(&args.script).open()?;
    let mut levels = LevelTracker::default();
    let (interrupt, interrupted) = channel();
    if !args.once {
        on_interrupt(move || {
            // The receiver is gone if the command has ended anyway.
            let _ = interrupt.send(());
        })?;
    }
    if !args.json {
        out!("Source: {}", source.describe());
    }
    loop {
        show(&source.sample()?, &mut levels, args);
        if let Some(notice) = source.take_notice() {
            status!("ebb: {notice}");
        }
        if args.once {
            break;
        }
        if interrupted.recv_timeout(EVERY) != Err(RecvTimeoutError::Timeout) {
            end_line(args);
            break;
        }
    }
    Ok(())
}

/// Ends the line that is rewritten in place, so that the shell's prompt begins on a new line.
fn end_line(args: &args::Memory) {
    if !args.json && std::io::stdout().is_terminal() {
        out!("");
    }
}

fn show(sample: &MemorySample, levels: &mut LevelTracker, args: &args::Memory) {
    let reading = pressure(sample);
    let level = levels.update(sample.at_ms, reading.value);
    if args.json {
        out!(
            "{}",
            json!({"sample": sample, "pressure": reading.value, "level": level, "cause": reading.cause})
        );
        return;
    }
    let word = match level {
        Level::Normal => "● normal",
        Level::Warning => "▲ warning",
        Level::Critical => "⬣ critical",
    };
    let used = sample.total_bytes.saturating_sub(sample.available_bytes);
    let line = format!(
        "{word}, pressure {:>3.0} %, {} of {} in use: system {}, other apps {}, Ebb {}; swap {}{}",
        100.0 * reading.value,
        format_bytes(used),
        format_bytes(sample.total_bytes),
        format_bytes(sample.system_bytes),
        format_bytes(sample.others_bytes()),
        format_bytes(sample.own_bytes),
        format_bytes(sample.swap_used_bytes),
        condition(sample)
    );
    if args.once || !std::io::stdout().is_terminal() {
        out!("{line}");
    } else {
        print!("\r\x1b[2K{line}");
        let _ = std::io::stdout().flush();
    }
}

/// Describes heat and power saving, for example as "; hot: the processors are slowed; saving
/// power". Empty if the machine is cool and does not save power. A value that the machine does not
/// report is left out.
fn condition(sample: &MemorySample) -> String {
    let heat = match sample.thermal {
        None | Some(Thermal::Nominal) => "",
        Some(Thermal::Fair) => "; warm",
        Some(Thermal::Serious) => "; hot: the processors are slowed",
        Some(Thermal::Critical) => "; too hot: the machine must cool down",
    };
    let saving = match sample.low_power {
        Some(true) => "; saving power",
        _ => "",
    };
    format!("{heat}{saving}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heat_and_power_saving_are_shown_if_they_matter() {
        let shown = |thermal, low_power| {
            condition(&MemorySample {
                thermal,
                low_power,
                ..MemorySample::default()
            })
        };
        assert_eq!(shown(None, None), "");
        assert_eq!(shown(Some(Thermal::Nominal), Some(false)), "");
        assert_eq!(
            shown(Some(Thermal::Serious), Some(true)),
            "; hot: the processors are slowed; saving power"
        );
    }
}
