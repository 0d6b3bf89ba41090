//! A decoder that stands in for a system's where there is none: of files in boxes like a HEIC's, which tell their size and
//! pixels plainly. What Ebb does around a system's decoder can be seen with it on any machine; nothing of a Mac's can.

use super::{Alpha, Described, Drawn, SystemDecoder, Unread, damaged};

/// Reads what `Plain::bytes` writes.
pub(super) const DECODER: SystemDecoder = SystemDecoder { describe, draw };

/// What a file of plain pixels says.
#[derive(Debug, Clone)]
pub(super) struct Plain {
    pub brand: &'static [u8; 4],
    pub width: u32,
    pub height: u32,
    pub bits: u8,
    pub orientation: u8,
    /// As drawn; `None` where the file has no transparency.
    pub alpha: Option<u8>,
    /// Of each pixel as stored, already multiplied by alpha.
    pub pixels: Vec<[u8; 3]>,
}

impl Plain {
    /// A picture of 8 bits, upright and opaque.
    pub(super) fn new(width: u32, height: u32, pixel: impl Fn(u32, u32) -> [u8; 3]) -> Self {
        let places = (0..height).flat_map(|y| (0..width).map(move |x| (x, y)));
        Self {
            brand: b"heic",
            width,
            height,
            bits: 8,
            orientation: 1,
            alpha: None,
            pixels: places.map(|(x, y)| pixel(x, y)).collect(),
        }
    }

    /// A file that only promises a size.
    pub(super) fn promising(width: u32, height: u32) -> Self {
        Self {
            width,
            height,
            ..Self::new(0, 0, |_, _| [0; 3])
        }
    }

    /// Three boxes, as cameras write them.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let alpha = self.alpha.map_or([0, 255], |alpha| [1, alpha]);
        let meta = [
            &self.width.to_be_bytes()[..],
            &self.height.to_be_bytes(),
            &[self.bits, self.orientation],
            &alpha,
        ];
        let brand = [&self.brand[..], &[0; 4]].concat();
        let pixels = self.pixels.concat();
        [
            in_box(b"ftyp", &brand),
            in_box(b"meta", &meta.concat()),
            in_box(b"mdat", &pixels),
        ]
        .concat()
    }
}

pub(super) fn in_box(name: &[u8; 4], contents: &[u8]) -> Vec<u8> {
    let length = (contents.len() as u32 + 8).to_be_bytes();
    [&length, &name[..], contents].concat()
}

/// Brand and four zeros, then the description.
const META: usize = 16 + 8;
/// Behind the description and the header of the pixels.
const PIXELS: usize = META + 12 + 8;

fn meta(file: &[u8]) -> Result<&[u8; 12], Unread> {
    let meta = file.get(META..).and_then(|rest| rest.first_chunk());
    meta.ok_or_else(|| damaged("it has no properties"))
}

fn describe(file: &[u8]) -> Result<Described, Unread> {
    let meta = meta(file)?;
    if meta[8] == 0 {
        // As a system answers that has no decoder for what is in the boxes.
        return Err(Unread::Format);
    }
    assert_ne!(meta[8], 66, "the system's decoder fails");
    let side = |at: usize| {
        let bytes = [meta[at], meta[at + 1], meta[at + 2], meta[at + 3]];
        Some(i64::from(u32::from_be_bytes(bytes)))
    };
    let turn = Some(i64::from(meta[9]));
    Ok(Described::new(
        [side(0), side(4)],
        Some(i64::from(meta[8])),
        turn,
    ))
}

fn draw(file: &[u8], described: &Described) -> Result<Drawn, Unread> {
    let meta = meta(file)?;
    let (pixels, _) = file[PIXELS..].as_chunks::<3>();
    let (width, height) = (described.promise.width, described.promise.height);
    let promised = u64::from(width) * u64::from(height);
    assert!(promised < 1 << 20, "only what may be decoded is drawn");
    if pixels.is_empty() {
        described.agrees(0, 0)?;
    }
    let alpha = match meta[10] {
        0 => Alpha::Opaque,
        _ => Alpha::Channel,
    };
    let mut rgba: Vec<u8> = pixels
        .iter()
        .flat_map(|[r, g, b]| [*r, *g, *b, meta[11]])
        .collect();
    // What was not decoded stays undrawn.
    rgba.resize(promised as usize * 4, 0);
    Ok(Drawn { rgba, alpha })
}
