//! The curves of a run as a TensorBoard event file: a TFRecord of `Event` messages, each with one
//! `Summary` of scalars. See tensorflow/core/util/event.proto and tsl/lib/io/record_writer.cc.

use runlog::RunEvent;

/// The steps and evaluations of a run. Numbers that are not finite are left out.
pub fn tensorboard(events: &[RunEvent]) -> Vec<u8> {
    let mut started_unix_ms = 0;
    let mut file = Vec::new();
    record(&mut file, &message(0.0, 0, &Content::Version));
    for event in events {
        let (step, scalars): (u64, Vec<(String, f64)>) = match event {
            RunEvent::Started(started) => {
                started_unix_ms = started.unix_ms;
                continue;
            }
            RunEvent::Step {
                step,
                loss,
                learning_rate,
                gradient_norm,
                samples_per_second,
                command_buffer_ms,
                ..
            } => {
                let buffer_ms = command_buffer_ms.unwrap_or(f64::NAN);
                let scalars = [
                    ("train/loss", *loss),
                    ("train/learning_rate", *learning_rate),
                    ("train/gradient_norm", *gradient_norm),
                    ("train/samples_per_second", *samples_per_second),
                    ("train/command_buffer_ms", buffer_ms),
                ];
                (
                    *step,
                    scalars.map(|(tag, value)| (tag.to_owned(), value)).into(),
                )
            }
            RunEvent::Evaluation {
                step,
                loss,
                metrics,
                ..
            } => {
                let metrics = metrics.iter();
                let metrics = metrics.map(|(name, value)| (format!("held_out/{name}"), *value));
                let loss = ("held_out/loss".to_owned(), *loss);
                (*step, std::iter::once(loss).chain(metrics).collect())
            }
            _ => continue,
        };
        let finite = scalars.into_iter().filter(|(_, value)| value.is_finite());
        let seconds = (started_unix_ms + event.at_ms()) as f64 / 1000.0;
        let content = Content::Scalars(finite.collect());
        record(&mut file, &message(seconds, step, &content));
    }
    file
}

enum Content {
    /// The first message of a file.
    Version,
    Scalars(Vec<(String, f64)>),
}

/// An `Event`: wall time (1), step (2), version (3) or summary (5).
fn message(seconds: f64, step: u64, content: &Content) -> Vec<u8> {
    let mut event = vec![0x09];
    event.extend(seconds.to_le_bytes());
    event.push(0x10);
    varint(&mut event, step);
    match content {
        Content::Version => field(&mut event, 3, b"brain.Event:2"),
        Content::Scalars(scalars) => {
            let mut summary = Vec::new();
            for (tag, number) in scalars {
                let mut value = Vec::new();
                field(&mut value, 1, tag.as_bytes());
                value.push(0x15);
                value.extend((*number as f32).to_le_bytes());
                field(&mut summary, 1, &value);
            }
            field(&mut event, 5, &summary);
        }
    }
    event
}

/// A field with a length: its number, the length, the bytes.
fn field(message: &mut Vec<u8>, number: u8, bytes: &[u8]) {
    message.push((number << 3) | 2);
    varint(message, bytes.len() as u64);
    message.extend(bytes);
}

fn varint(message: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        message.push(value as u8 | 0x80);
        value >>= 7;
    }
    message.push(value as u8);
}

/// A record: the length, its checksum, the bytes, their checksum.
fn record(file: &mut Vec<u8>, bytes: &[u8]) {
    let length = (bytes.len() as u64).to_le_bytes();
    file.extend(length);
    file.extend(masked_checksum(&length).to_le_bytes());
    file.extend(bytes);
    file.extend(masked_checksum(bytes).to_le_bytes());
}

/// The CRC-32C, rotated and shifted as TFRecords ask for.
fn masked_checksum(bytes: &[u8]) -> u32 {
    checksum(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// CRC-32C (Castagnoli), bit by bit: a few hundred kilobytes take milliseconds.
fn checksum(bytes: &[u8]) -> u32 {
    let step = |crc: u32| match crc & 1 {
        1 => (crc >> 1) ^ 0x82f6_3b78,
        _ => crc >> 1,
    };
    let crc = bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc))
    });
    !crc
}

#[cfg(test)]
#[path = "../../tests/support/python.rs"]
mod python;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn the_checksum_is_crc_32c() {
        // The check value of the catalogue of CRC algorithms.
        assert_eq!(checksum(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn the_time_per_command_buffer_is_a_curve_if_it_was_measured() {
        let curves = |command_buffer_ms: Option<f64>| {
            let step = RunEvent::Step {
                at_ms: 1000,
                step: 1,
                epoch: 0,
                loss: 2.0,
                learning_rate: 0.1,
                gradient_norm: 1.0,
                samples_per_second: 8.0,
                wait_ms: 0.0,
                command_buffer_ms,
                micro_batches: vec![8],
                checkpoint_blocks: Vec::new(),
                ledger: Vec::new(),
                metrics: BTreeMap::new(),
            };
            let file = tensorboard(&[step]);
            let tags = [&b"train/loss"[..], b"train/command_buffer_ms"];
            tags.map(|tag| file.windows(tag.len()).any(|part| part == tag))
        };
        assert_eq!(curves(Some(3.5)), [true, true]);
        assert_eq!(curves(None), [true, false]);
    }

    /// Prints step and value of each curve of an event file.
    const READ: &str = "
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
file = EventAccumulator(sys.argv[1])
file.Reload()
curves = {tag: [[s.step, s.value, s.wall_time] for s in file.Scalars(tag)] for tag in file.Tags()['scalars']}
print(json.dumps(curves))";

    #[test]
    fn tensorboard_opens_the_file() {
        let Some(python) = python::python("tensorboard") else {
            return;
        };
        let step = |step: u64, loss: f64| RunEvent::Step {
            at_ms: 1000 * step,
            step,
            epoch: 0,
            loss,
            learning_rate: 0.125,
            gradient_norm: f64::INFINITY,
            samples_per_second: 8.0,
            wait_ms: 0.0,
            command_buffer_ms: None,
            micro_batches: vec![8],
            checkpoint_blocks: Vec::new(),
            ledger: Vec::new(),
            metrics: BTreeMap::new(),
        };
        let evaluation = RunEvent::Evaluation {
            at_ms: 300_000,
            step: 300,
            epoch: 1,
            samples: 10,
            loss: 0.5,
            metrics: BTreeMap::from([("accuracy".to_owned(), 0.75)]),
            best: true,
        };
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("events.out.tfevents.ebb");
        let bytes = tensorboard(&[step(1, 2.0), step(300, 1.5), evaluation]);
        std::fs::write(&file, bytes).expect("the file can be written");
        let output = std::process::Command::new(python)
            .args(["-c", READ])
            .arg(&file)
            .output()
            .expect("Python runs");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        let curves: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let expected = serde_json::json!({
            "train/loss": [[1, 2.0, 1.0], [300, 1.5, 300.0]],
            "train/learning_rate": [[1, 0.125, 1.0], [300, 0.125, 300.0]],
            "train/samples_per_second": [[1, 8.0, 1.0], [300, 8.0, 300.0]],
            "held_out/loss": [[300, 0.5, 300.0]],
            "held_out/accuracy": [[300, 0.75, 300.0]],
        });
        assert_eq!(curves, expected);
    }

    #[test]
    fn every_record_has_its_length_and_the_scalars_of_one_event() {
        let evaluation = RunEvent::Evaluation {
            at_ms: 2000,
            step: 300,
            epoch: 1,
            samples: 10,
            loss: f64::NAN,
            metrics: BTreeMap::from([("accuracy".to_owned(), 0.75)]),
            best: true,
        };
        let mut file = &tensorboard(&[evaluation])[..];
        let mut records = Vec::new();
        while !file.is_empty() {
            let (length, rest) = file.split_at(8);
            let bytes = u64::from_le_bytes(length.try_into().expect("8 bytes")) as usize;
            assert_eq!(rest[..4], masked_checksum(length).to_le_bytes());
            let content = &rest[4..4 + bytes];
            assert_eq!(
                rest[4 + bytes..8 + bytes],
                masked_checksum(content).to_le_bytes()
            );
            records.push(content);
            file = &rest[8 + bytes..];
        }
        let [version, scalars] = records[..] else {
            panic!("{records:?}")
        };
        assert!(version.ends_with(b"brain.Event:2"));
        let mut expected = vec![0x09];
        expected.extend(2.0f64.to_le_bytes());
        // Step 300 is a varint of two bytes; the summary has 26 bytes, its value 24, the tag 17.
        expected.extend([0x10, 0xac, 0x02, 0x2a, 26, 0x0a, 24, 0x0a, 17]);
        expected.extend(b"held_out/accuracy");
        expected.push(0x15);
        expected.extend(0.75f32.to_le_bytes());
        assert_eq!(scalars, expected);
    }
}
