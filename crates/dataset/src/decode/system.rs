//! Photographs that the system decodes for Ebb: HEIC and AVIF, on a Mac. Whether there is such a decoder is a value, and
//! all that can be decided without one is decided here: which files it is asked about, how large they may be, whether they
//! are whole, and how what it drew becomes a picture. The files for each platform are twins with the same surface.

#[cfg_attr(target_os = "macos", path = "system/imageio.rs")]
#[cfg_attr(not(target_os = "macos"), path = "system/none.rs")]
mod platform;

mod examined;
#[cfg(test)]
mod pretended;
#[cfg(test)]
mod tests;

use super::Picture;
use crate::header::lost;
use crate::promise::Promise;
use image::metadata::Orientation;
use std::io::Read;
use std::panic::catch_unwind;
use std::sync::OnceLock;

/// Bytes on disk of the largest file that is handed over whole. A photograph of 100 million pixels takes about 60.
const MAX_FILE_BYTES: u64 = 128 << 20;

/// A format that only a system decodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// High Efficiency Image File Format with HEVC, as phones write it.
    Heic,
    /// The same with AV1.
    Avif,
}

impl Format {
    /// The name shown.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Format::Heic => "HEIC",
            Format::Avif => "AVIF",
        }
    }
}

/// What decodes a format; nothing where nothing does.
pub(crate) type Decoders = fn(Format) -> Option<SystemDecoder>;

/// This machine's decoders. Each is examined when it is first asked for.
pub(crate) fn here(format: Format) -> Option<SystemDecoder> {
    static HEIC: OnceLock<bool> = OnceLock::new();
    static AVIF: OnceLock<bool> = OnceLock::new();
    let decoder = platform::DECODER?;
    let reads = match format {
        Format::Heic => &HEIC,
        Format::Avif => &AVIF,
    };
    let reads = reads.get_or_init(|| examined::reads(decoder, examined::specimen(format)));
    reads.then_some(decoder)
}

/// What the system does with the bytes of a whole file. The primary image of several is meant.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SystemDecoder {
    /// Reads its properties; decodes nothing.
    pub describe: fn(&[u8]) -> Result<Described, Unread>,
    /// Decodes and draws it, if it is as large as was described.
    pub draw: fn(&[u8], &Described) -> Result<Drawn, Unread>,
}

/// What a file's properties say.
#[derive(Debug, PartialEq)]
pub(crate) struct Described {
    /// Its size before it is turned.
    pub promise: Promise,
    /// EXIF's number of its orientation, where there is one.
    pub orientation: Option<i64>,
}

#[cfg_attr(
    not(any(test, target_os = "macos")),
    expect(dead_code, reason = "nothing here describes a file")
)]
impl Described {
    /// From numbers as they stand in a file. A depth above 8 bits a channel is decoded to 16.
    pub(crate) fn new(sides: [Option<i64>; 2], depth: Option<i64>, turn: Option<i64>) -> Self {
        let [width, height] = sides.map(|side| side.and_then(|n| n.try_into().ok()).unwrap_or(0));
        let deep = depth.is_some_and(|bits| bits > 8);
        let promise = Promise {
            width,
            height,
            bytes_per_pixel: if deep { 8 } else { 4 },
        };
        Self {
            promise,
            orientation: turn,
        }
    }

    /// Refuses an image of another size than was described: the limits were asked about that one.
    pub(crate) fn agrees(&self, width: usize, height: usize) -> Result<(), Unread> {
        let promised = (self.promise.width as usize, self.promise.height as usize);
        match promised == (width, height) {
            true => Ok(()),
            false => Err(damaged("its parts disagree about its size")),
        }
    }
}

impl Described {
    fn turned(&self) -> Orientation {
        let number = self.orientation.and_then(|n| u8::try_from(n).ok());
        number
            .and_then(Orientation::from_exif)
            .unwrap_or(Orientation::NoTransforms)
    }
}

/// What the system drew on nothing.
#[derive(Debug, PartialEq)]
pub(crate) struct Drawn {
    /// Red, green, blue and alpha of each pixel in sRGB, colours already multiplied by alpha, rows from the top.
    pub rgba: Vec<u8>,
    /// Whether pixels may let the background through.
    pub alpha: Alpha,
}

/// What the file says of transparency.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(
    not(any(test, target_os = "macos")),
    expect(dead_code, reason = "nothing here draws a file")
)]
pub(crate) enum Alpha {
    /// It has none: every pixel must have been drawn.
    Opaque,
    /// It has a channel of it.
    Channel,
}

/// Why a file gives no picture.
#[derive(Debug, PartialEq)]
pub(crate) enum Unread {
    /// Nothing here decodes its format.
    Format,
    /// This file cannot be used: what is wrong, and the next move.
    File(String),
}

impl Unread {
    /// The same in words, for a file of the named format.
    pub(crate) fn reason(self, format: &str) -> String {
        match self {
            Unread::Format => {
                let article = article(format);
                format!("It is {article} {format} file, which is not read. Save it as JPEG or PNG.")
            }
            Unread::File(reason) => reason,
        }
    }
}

/// The article before a format's name as it is spoken: "an ICO", "a GIF".
fn article(format: &str) -> &'static str {
    match format.starts_with(['A', 'I']) {
        true => "an",
        false => "a",
    }
}

/// A file that the decoder gives up on, and why.
pub(crate) fn damaged(why: &str) -> Unread {
    Unread::File(format!(
        "It cannot be decoded ({why}). Copy it here again, or remove it."
    ))
}

/// A format that only a system decodes, by a file's first bytes: they are a box that tells its brand.
pub(crate) fn format(start: &[u8]) -> Option<Format> {
    let [_, _, _, _, b'f', b't', b'y', b'p', brand @ ..] = start else {
        return None;
    };
    match brand.get(..4)? {
        b"avif" | b"avis" => Some(Format::Avif),
        b"heic" | b"heix" | b"hevc" | b"hevx" | b"heim" | b"heis" | b"mif1" | b"msf1" => {
            Some(Format::Heic)
        }
        _ => None,
    }
}

/// The size that a file's properties promise, if it may be decoded.
pub(crate) fn judge(
    decoder: Option<SystemDecoder>,
    file: &mut impl Read,
) -> Result<Promise, Unread> {
    let decoder = decoder.ok_or(Unread::Format)?;
    let bytes = whole(file)?;
    // The decoder is the system's and the files are hostile: a panic costs one file, not the inspection.
    let described = catch_unwind(|| described(decoder, &bytes));
    described
        .unwrap_or_else(|_| Err(damaged("it makes its decoder fail")))
        .map(|found| found.promise)
}

/// The picture as stored, and how it is to be turned.
pub(crate) fn picture(
    decoder: Option<SystemDecoder>,
    file: &mut impl Read,
) -> Result<(Picture, Orientation), Unread> {
    let decoder = decoder.ok_or(Unread::Format)?;
    let bytes = whole(file)?;
    let found = described(decoder, &bytes)?;
    let rgb = over_white((decoder.draw)(&bytes, &found)?)?;
    let (width, height) = (found.promise.width, found.promise.height);
    match rgb.len() as u64 == u64::from(width) * u64::from(height) * 3 {
        true => Ok((Picture { width, height, rgb }, found.turned())),
        false => Err(damaged("it is drawn at another size")),
    }
}

/// What is asked of every file before any of it is decoded.
fn described(decoder: SystemDecoder, bytes: &[u8]) -> Result<Described, Unread> {
    if ends_early(bytes) {
        let reason = "It ends before its picture does. Copy it here again.";
        return Err(Unread::File(reason.to_owned()));
    }
    let found = (decoder.describe)(bytes)?;
    match found.promise.beyond_limits() {
        Some(reason) => Err(Unread::File(reason)),
        None => Ok(found),
    }
}

/// All bytes of a file that is not too large to hold.
fn whole(file: &mut impl Read) -> Result<Vec<u8>, Unread> {
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|source| Unread::File(lost(&source)))?;
    match bytes.len() as u64 > MAX_FILE_BYTES {
        false => Ok(bytes),
        true => Err(Unread::File(format!(
            "It has more than {} MiB, the most that is read of this format. Save it smaller.",
            MAX_FILE_BYTES >> 20
        ))),
    }
}

/// Whether a box that holds the picture or its description reaches beyond the end, or none is there. A system may draw
/// what it has got of such a file. Each box opens with its length and name (ISO/IEC 14496-12, 4.2); what cameras append
/// behind the boxes is not looked at.
fn ends_early(bytes: &[u8]) -> bool {
    let mut rest = bytes;
    let mut described = false;
    while let Some((header, after)) = rest.split_first_chunk::<8>() {
        let [a, b, c, d, name @ ..] = *header;
        let length = match u32::from_be_bytes([a, b, c, d]) {
            // To the end of the file.
            0 => rest.len() as u64,
            1 => match after.first_chunk() {
                Some(long) => u64::from_be_bytes(*long),
                None => return true,
            },
            short => u64::from(short),
        };
        let is_needed = matches!(&name, b"ftyp" | b"meta" | b"mdat" | b"moov");
        if length < 8 || length > rest.len() as u64 {
            return is_needed || !described;
        }
        described |= matches!(&name, b"meta" | b"moov");
        rest = &rest[length as usize..];
    }
    !described
}

/// Three bytes a pixel, transparent pixels over white. The same numbers as of a PNG, whose colours are multiplied here.
fn over_white(drawn: Drawn) -> Result<Vec<u8>, Unread> {
    let (pixels, _) = drawn.rgba.as_chunks::<4>();
    if drawn.alpha == Alpha::Opaque && pixels.iter().any(|[.., alpha]| *alpha != 255) {
        return Err(damaged("parts of it are missing"));
    }
    let white = |[r, g, b, a]: &[u8; 4]| [r, g, b].map(|colour| colour.saturating_add(255 - a));
    Ok(pixels.iter().flat_map(white).collect())
}
