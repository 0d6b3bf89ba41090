//! `state.json` of a checkpoint: the state of the run, and the checksums of the other files. Its
//! own checksum is inside, computed with zeros in its place.

use super::RunState;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io;

/// Version of the layout.
pub const FORMAT: u32 = 1;
/// The checksum while it is computed.
const BLANK: &str = "00000000";

/// Content of the file.
#[derive(Serialize, Deserialize)]
pub struct StateJson {
    pub format: u32,
    /// CRC-32 of the file in hexadecimal; absent in checkpoints of earlier versions. Before
    /// `state`, so that its first occurrence is this one.
    #[serde(default)]
    pub sum: Option<String>,
    pub state: RunState,
    /// Length in bytes and CRC-32 of each tensor file.
    pub files: HashMap<String, (u64, u32)>,
    /// Length and CRC-32 of the controller state. Not in `files`, because damage to it does not
    /// invalidate the checkpoint.
    #[serde(default, alias = "pilot")]
    pub controller: Option<(u64, u32)>,
}

/// The line of a checksum.
fn sum_line(sum: &str) -> String {
    format!("\"sum\": \"{sum}\"")
}

impl StateJson {
    /// The content with its checksum.
    pub fn into_bytes(mut self) -> io::Result<Vec<u8>> {
        self.sum = Some(BLANK.to_owned());
        let blank = serde_json::to_string_pretty(&self)?;
        let sum = format!("{:08x}", crc32fast::hash(blank.as_bytes()));
        let text = blank.replacen(&sum_line(BLANK), &sum_line(&sum), 1);
        Ok(text.into_bytes())
    }

    /// Parses and checks the content.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(bytes: &[u8]) -> Result<StateJson, String> {
        let file: StateJson = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if let Some(sum) = &file.sum {
            let text = str::from_utf8(bytes).map_err(|error| error.to_string())?;
            let blank = text.replacen(&sum_line(sum), &sum_line(BLANK), 1);
            if *sum != format!("{:08x}", crc32fast::hash(blank.as_bytes())) {
                return Err("state.json has changed since it was written".to_owned());
            }
        }
        Ok(file)
    }

    /// The format of a file that a later version of Ebb wrote, which may have other fields.
    pub fn later_format(bytes: &[u8]) -> Option<u32> {
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }
        let Format { format } = serde_json::from_slice(bytes).ok()?;
        Some(format).filter(|format| *format > FORMAT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> StateJson {
        StateJson {
            format: FORMAT,
            sum: None,
            state: RunState {
                step: 400,
                loss: Some(1.0 / 3.0),
                ..RunState::default()
            },
            files: HashMap::from([("model.safetensors".to_owned(), (12, 34))]),
            controller: None,
        }
    }

    #[test]
    fn every_changed_digit_is_noticed() {
        let bytes = file().into_bytes().expect("it is JSON");
        let parsed = StateJson::parse(&bytes).map(|file| (file.state, file.files));
        assert_eq!(parsed, Ok((file().state, file().files)));
        let digits = bytes.iter().enumerate();
        let digits = digits.filter(|(_, byte)| byte.is_ascii_digit());
        let mut noticed = 0;
        for (at, _) in digits {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert!(StateJson::parse(&changed).is_err(), "byte {at}");
            noticed += 1;
        }
        assert!(noticed > 30, "{noticed}");
    }

    #[test]
    fn a_file_without_checksum_is_of_an_earlier_version() {
        let bytes = serde_json::to_string_pretty(&file()).expect("it is JSON");
        let old = bytes.replacen("  \"sum\": null,\n", "", 1);
        assert_ne!(old, bytes);
        let parsed = StateJson::parse(old.as_bytes()).map(|file| file.state.step);
        assert_eq!(parsed, Ok(400));
    }
}
