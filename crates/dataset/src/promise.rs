//! The size that a JPEG, PNG or WebP header promises, found without decoding: each format keeps it elsewhere. Judges
//! nothing but whether the header can be read.

use crate::header::beyond_limits;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};

/// Bytes of the longest run of garbage between two JPEG segments that is looked through.
const MAX_JPEG_GARBAGE: u64 = 64 << 10;
/// JPEG segments stepped over before the frame header.
const MAX_JPEG_SEGMENTS: u32 = 10_000;

/// Size promised by a header.
#[derive(Debug, PartialEq)]
pub(crate) struct Promise {
    pub width: u32,
    pub height: u32,
    /// As decoded, at most.
    pub bytes_per_pixel: u64,
}

impl Promise {
    /// Why an image of this size is not decoded; nothing when it may be.
    pub(crate) fn beyond_limits(&self) -> Option<String> {
        let pixels = u64::from(self.width) * u64::from(self.height);
        beyond_limits(self.width, self.height, pixels * self.bytes_per_pixel)
    }
}

type Judged<T> = Result<T, String>;

fn damaged() -> String {
    "Its header is damaged. Copy it here again.".to_string()
}

fn be32(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |n, byte| n << 8 | u32::from(*byte))
}

fn le(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .rev()
        .fold(0, |n, byte| n << 8 | u32::from(*byte))
}

/// IHDR stands first: width, height, bits a channel, colour type.
pub(crate) fn png(start: &[u8]) -> Judged<Promise> {
    if start.len() < 26 || &start[12..16] != b"IHDR" {
        return Err(damaged());
    }
    let channels = match start[25] {
        0 => 1,
        4 => 2,
        // A palette or plain colours may bring a transparent colour, decoded as a fourth channel.
        _ => 4,
    };
    let bytes_per_channel = if start[24] == 16 { 2 } else { 1 };
    Ok(Promise {
        width: be32(&start[16..20]),
        height: be32(&start[20..24]),
        bytes_per_pixel: channels * bytes_per_channel,
    })
}

/// The first chunk tells the canvas, in one of three ways.
pub(crate) fn webp(start: &[u8]) -> Judged<Promise> {
    if start.len() < 30 {
        return Err(damaged());
    }
    let (width, height) = match (&start[12..16], &start[20..]) {
        (b"VP8 ", [_, _, _, 0x9D, 0x01, 0x2A, size @ ..]) => {
            (le(&size[..2]) & 0x3FFF, le(&size[2..4]) & 0x3FFF)
        }
        (b"VP8L", [0x2F, size @ ..]) => {
            let bits = le(&size[..4]);
            ((bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1)
        }
        (b"VP8X", [_, _, _, _, size @ ..]) => (le(&size[..3]) + 1, le(&size[3..6]) + 1),
        _ => return Err(damaged()),
    };
    Ok(Promise {
        width,
        height,
        bytes_per_pixel: 4,
    })
}

/// Walks the segments up to the frame header, stepping over their contents.
pub(crate) fn jpeg(reader: &mut BufReader<File>) -> Judged<Promise> {
    let cut = |_| "It ends before its picture begins. Copy it here again.".to_string();
    reader.seek_relative(2).map_err(cut)?;
    for _ in 0..MAX_JPEG_SEGMENTS {
        let marker = next_marker(reader).map_err(cut)?.ok_or_else(damaged)?;
        match marker {
            // Restart marks and TEM have no contents.
            0x01 | 0xD0..=0xD8 => continue,
            // The picture's end or its data before any frame header.
            0xD9 | 0xDA => return Err(damaged()),
            _ => {}
        }
        let mut length = [0; 2];
        reader.read_exact(&mut length).map_err(cut)?;
        let rest = be32(&length).checked_sub(2).ok_or_else(damaged)?;
        match marker {
            0xC0..=0xC2 if rest >= 6 => {
                let mut frame = [0; 6];
                reader.read_exact(&mut frame).map_err(cut)?;
                if frame[0] != 8 {
                    return Err(
                        "It is a JPEG of more than 8 bits. Save it as an ordinary JPEG or PNG."
                            .to_string(),
                    );
                }
                let (height, width) = (be32(&frame[1..3]), be32(&frame[3..5]));
                return Ok(Promise {
                    width,
                    height,
                    bytes_per_pixel: u64::from(frame[5].max(3)),
                });
            }
            0xC0..=0xC2 => return Err(damaged()),
            0xC3 | 0xC5..=0xC7 | 0xC9..=0xCB | 0xCD..=0xCF => {
                return Err(
                    "It is a lossless or arithmetic JPEG. Save it as an ordinary JPEG or PNG."
                        .to_string(),
                );
            }
            _ => reader.seek_relative(i64::from(rest)).map_err(cut)?,
        }
    }
    Err(damaged())
}

/// The next marker byte; nothing when only garbage follows.
fn next_marker(reader: &mut BufReader<File>) -> io::Result<Option<u8>> {
    let garbage = reader.by_ref().take(MAX_JPEG_GARBAGE).skip_until(0xFF)?;
    if garbage as u64 == MAX_JPEG_GARBAGE {
        return Ok(None);
    }
    let mut byte = [0xFF];
    while byte[0] == 0xFF {
        reader.read_exact(&mut byte)?;
    }
    Ok(Some(byte[0]))
}
