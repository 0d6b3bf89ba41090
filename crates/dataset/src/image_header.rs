//! The size that an image's header declares, and the limits that it must respect. Each format
//! stores the size elsewhere; none of the pixels are decoded.

use format::format_bytes;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};

/// Most pixels of an image. Phones reach 50 million; decoding 100 million takes seconds.
const MAX_PIXELS: u64 = 100_000_000;
/// Most bytes of a decoded image.
const MAX_DECODED_BYTES: u64 = 512 << 20;
/// Largest ratio of the longer side to the shorter one. Beyond it a crop has only a few pixels.
const MAX_ASPECT: u64 = 50;

/// Most bytes of garbage between two JPEG segments that are skipped.
const MAX_JPEG_GARBAGE: u64 = 64 << 10;
/// Most JPEG segments that are skipped before the frame header.
const MAX_JPEG_SEGMENTS: u32 = 10_000;
/// Most pixels that the scans of a progressive JPEG visit together. A decoder visits every pixel in
/// each scan, and a scan without content takes only a few bytes of the file. Encoders write about
/// ten scans. With this limit, an image of 24 million pixels may have 125.
const MAX_SCANNED_PIXELS: u64 = 3_000_000_000;
/// Most chunks of a WebP that are looked at; an animation has one for each frame.
const MAX_WEBP_CHUNKS: u32 = 100_000;
/// Scans that an image of any size may have.
const MIN_MAX_SCANS: u64 = 30;
/// Fewest bytes of a scan that a decoder accepts: its marker and its header.
const MIN_SCAN_BYTES: u64 = 10;
/// The marker of a progressive frame, which has several scans.
const PROGRESSIVE: u8 = 0xC2;
/// The marker of the end of an image.
const END_OF_IMAGE: u8 = 0xD9;
/// The marker of a scan.
const START_OF_SCAN: u8 = 0xDA;

/// The size that a header declares.
#[derive(Debug, PartialEq)]
pub(crate) struct ImageHeader {
    /// Width in pixels as stored.
    pub width: u32,
    /// Height in pixels as stored.
    pub height: u32,
    /// Most bytes that one decoded pixel takes.
    pub bytes_per_pixel: u64,
}

impl ImageHeader {
    /// Why an image of this size is not decoded; `None` if it may be.
    pub(crate) fn beyond_limits(&self) -> Option<String> {
        let pixels = u64::from(self.width) * u64::from(self.height);
        beyond_limits(self.width, self.height, pixels * self.bytes_per_pixel)
    }
}

fn damaged() -> String {
    "The image header is damaged. Copy the file here again.".to_string()
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

/// Reads the IHDR chunk, which comes first: width, height, bits per channel, color type.
pub(crate) fn png(start: &[u8]) -> Result<ImageHeader, String> {
    if start.len() < 26 || &start[12..16] != b"IHDR" {
        return Err(damaged());
    }
    let channels = match start[25] {
        0 => 1,
        4 => 2,
        // A palette or RGB image may declare a transparent color, which decodes to a fourth
        // channel.
        _ => 4,
    };
    let bytes_per_channel = if start[24] == 16 { 2 } else { 1 };
    Ok(ImageHeader {
        width: be32(&start[16..20]),
        height: be32(&start[20..24]),
        bytes_per_pixel: channels * bytes_per_channel,
    })
}

/// Reads the canvas size from the first chunk, which has one of three forms.
pub(crate) fn webp(start: &[u8]) -> Result<ImageHeader, String> {
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
    Ok(ImageHeader {
        width,
        height,
        bytes_per_pixel: 4,
    })
}

/// Reads the frame header of a JPEG, skipping the contents of the segments before it.
pub(crate) fn jpeg(reader: &mut BufReader<File>) -> Result<ImageHeader, String> {
    let cut =
        |_| "The file ends before its image data begins. Copy the file here again.".to_string();
    reader.seek_relative(2).map_err(cut)?;
    for _ in 0..MAX_JPEG_SEGMENTS {
        let marker = next_marker(reader).map_err(cut)?.ok_or_else(damaged)?;
        match marker {
            // Restart markers and TEM have no contents.
            0x01 | 0xD0..=0xD8 => continue,
            // The end of the image, or its data before any frame header.
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
                        "This JPEG has more than 8 bits per channel. Save the image as an ordinary JPEG or PNG."
                            .to_string(),
                    );
                }
                let (height, width) = (be32(&frame[1..3]), be32(&frame[3..5]));
                if marker == PROGRESSIVE {
                    reader.seek_relative(i64::from(rest) - 6).map_err(cut)?;
                    refuse_many_scans(reader, u64::from(width) * u64::from(height))?;
                }
                return Ok(ImageHeader {
                    width,
                    height,
                    bytes_per_pixel: u64::from(frame[5].max(3)),
                });
            }
            0xC0..=0xC2 => return Err(damaged()),
            0xC3 | 0xC5..=0xC7 | 0xC9..=0xCB | 0xCD..=0xCF => {
                return Err(
                    "This JPEG uses lossless or arithmetic coding. Save the image as an ordinary JPEG or PNG."
                        .to_string(),
                );
            }
            _ => reader.seek_relative(i64::from(rest)).map_err(cut)?,
        }
    }
    Err(damaged())
}

/// Counts the scans that follow the frame header of a progressive JPEG. Reads the whole file,
/// unless it is too short for that many.
///
/// # Errors
/// The image has too many for its size. The error is a sentence.
fn refuse_many_scans(reader: &mut BufReader<File>, pixels: u64) -> Result<(), String> {
    let most = (MAX_SCANNED_PIXELS / pixels.max(1)).max(MIN_MAX_SCANS);
    let about = reader.get_ref().metadata();
    if about.is_ok_and(|about| about.len() / MIN_SCAN_BYTES <= most) {
        return Ok(());
    }
    let mut scans = 0;
    // A file that ends early is an error of the decoder, which has a sentence for it.
    while let Ok(Some(marker)) = next_segment(reader) {
        scans += u64::from(marker == START_OF_SCAN);
        if scans > most {
            return Err(format!(
                "This JPEG stores its image in more than {most} scans, which takes long to decode. Save the image as an ordinary JPEG or PNG."
            ));
        }
    }
    Ok(())
}

/// Goes to the next segment and skips its content. Returns its marker; `None` at the end of the
/// image or of the file. The pixels of a scan contain a 0xFF only before a 0 or a restart marker.
fn next_segment(reader: &mut BufReader<File>) -> io::Result<Option<u8>> {
    loop {
        if reader.skip_until(0xFF)? == 0 {
            return Ok(None);
        }
        let mut byte = [0xFF];
        while byte[0] == 0xFF {
            reader.read_exact(&mut byte)?;
        }
        match byte[0] {
            0x00 | 0x01 | 0xD0..=0xD8 => continue,
            END_OF_IMAGE => return Ok(None),
            marker => {
                let mut length = [0; 2];
                reader.read_exact(&mut length)?;
                reader.seek_relative(i64::from(be32(&length)).saturating_sub(2).max(0))?;
                return Ok(Some(marker));
            }
        }
    }
}

/// Reads the next marker byte; `None` if only garbage follows.
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

/// Why a JPEG is not decoded although its size is allowed; `None` if it may be, or if it is no
/// JPEG. Every decode checks this again. Leaves the reader at the beginning of the file.
///
/// # Errors
/// The file cannot be read.
pub(crate) fn beyond_jpeg_limits(reader: &mut BufReader<File>) -> io::Result<Option<String>> {
    let is_jpeg = reader.fill_buf()?.starts_with(&[0xFF, 0xD8, 0xFF]);
    let refused = if is_jpeg { jpeg(reader).err() } else { None };
    reader.rewind()?;
    Ok(refused)
}

/// Why a WebP is not decoded although its size is allowed; `None` if it may be. The decoder
/// allocates as many bytes as a chunk of metadata declares, also if the file is shorter. Leaves the
/// reader at the beginning of the file.
///
/// # Errors
/// The file cannot be read.
pub(crate) fn beyond_webp_limits(reader: &mut BufReader<File>) -> io::Result<Option<String>> {
    let end = reader.seek(SeekFrom::End(0))?;
    // The chunks follow the header of the container.
    let mut at = reader.seek(SeekFrom::Start(12))?;
    let mut is_damaged = false;
    for _ in 0..MAX_WEBP_CHUNKS {
        if at + 8 > end {
            break;
        }
        let mut header = [0; 8];
        reader.read_exact(&mut header)?;
        let (name, size) = (&header[..4], u64::from(le(&header[4..])));
        is_damaged |= matches!(name, b"EXIF" | b"ICCP" | b"XMP ") && at + 8 + size > end;
        let padded = size + size % 2;
        at += 8 + padded;
        reader.seek_relative(padded as i64)?;
    }
    reader.rewind()?;
    Ok(is_damaged.then(damaged))
}

/// Why an image of this size is not decoded; `None` if it may be. Every decode checks again, since
/// the file may have changed and its headers may disagree.
pub(crate) fn beyond_limits(width: u32, height: u32, decoded_bytes: u64) -> Option<String> {
    let (w, h) = (u64::from(width), u64::from(height));
    if w == 0 || h == 0 {
        Some(
            "The image header declares no size, so the file is damaged. Copy the file here again."
                .to_string(),
        )
    } else if w * h > MAX_PIXELS {
        Some(format!(
            "The image has {width} x {height} pixels; at most 100 million are supported. Resize the image."
        ))
    } else if decoded_bytes > MAX_DECODED_BYTES {
        Some(format!(
            "The decoded image would take {}; at most {} are supported. Resize the image, or save it with 8 bits per channel.",
            format_bytes(decoded_bytes),
            format_bytes(MAX_DECODED_BYTES)
        ))
    } else if w.max(h) > MAX_ASPECT * w.min(h) {
        Some(format!(
            "The image has {width} x {height} pixels; aspect ratios beyond 1:50 are not supported. Crop the image."
        ))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add_segment(file: &mut Vec<u8>, marker: u8, content: &[u8]) {
        file.extend([0xFF, marker]);
        file.extend((content.len() as u16 + 2).to_be_bytes());
        file.extend(content);
    }

    /// A progressive JPEG of this size. Its scans contain the byte 0xFF, and the preview in its
    /// EXIF segment looks like scans.
    fn progressive_jpeg(side: u16, scans: u64) -> Vec<u8> {
        let mut file = vec![0xFF, 0xD8];
        add_segment(&mut file, 0xE1, &[0xFF, START_OF_SCAN, 0, 2].repeat(500));
        let [high, low] = side.to_be_bytes();
        let frame = [8, high, low, high, low, 1, 1, 0x11, 0];
        add_segment(&mut file, PROGRESSIVE, &frame);
        for _ in 0..scans {
            add_segment(&mut file, START_OF_SCAN, &[1, 1, 0, 1, 1, 0]);
            file.extend([0x12, 0xFF, 0x00, START_OF_SCAN, 0xFF, 0xD0, 0x34]);
        }
        file.extend([0xFF, END_OF_IMAGE, 0xFF, START_OF_SCAN]);
        file
    }

    #[test]
    fn a_progressive_jpeg_has_as_many_scans_as_its_size_allows() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("image.jpg");
        let read = |side: u16, scans: u64| {
            std::fs::write(&path, progressive_jpeg(side, scans)).expect("it can be written");
            let mut reader = BufReader::new(File::open(&path).expect("it is there"));
            jpeg(&mut reader)
        };
        let size = read(10_000, 30).map(|header| (header.width, header.height));
        assert_eq!(size, Ok((10_000, 10_000)));
        assert!(read(10_000, 31).is_err_and(|reason| reason.contains("more than 30 scans")));
        // A larger one is refused for its size.
        assert!(read(u16::MAX, 10).is_ok_and(|header| header.beyond_limits().is_some()));
        assert!(read(1_000, 3_000).is_ok());
        assert!(read(1_000, 3_001).is_err());
    }

    #[test]
    fn images_beyond_the_size_limits_are_refused() {
        let allowed = |w, h, bytes| beyond_limits(w, h, bytes).is_none();
        assert!(allowed(10_000, 10_000, 300_000_000) && !allowed(10_001, 10_000, 1));
        assert!(allowed(9_000, 7_000, 512 << 20) && !allowed(9_000, 7_000, (512 << 20) + 1));
        assert!(allowed(100, 5_000, 1) && !allowed(100, 5_001, 1) && !allowed(5_001, 100, 1));
        assert!(!allowed(0, 10, 1) && !allowed(10, 0, 1));
        assert!(!allowed(u32::MAX, u32::MAX, u64::MAX), "nothing overflows");
    }
}
