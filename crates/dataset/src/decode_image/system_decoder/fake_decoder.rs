//! A fake system decoder for tests. It reads files in boxes like those of HEIC that state their
//! size and pixels plainly. It shows what Ebb does around a decoder on any machine, but nothing of
//! a Mac.

use super::decoder_types::{
    Alpha, ImageProperties, RenderedImage, SystemDecoder, Unreadable, damaged,
};

/// Reads the files that `FakeImage::bytes` writes.
pub(crate) const DECODER: SystemDecoder = SystemDecoder { describe, draw };

/// The contents of a fake file.
#[derive(Debug, Clone)]
pub(crate) struct FakeImage {
    pub brand: &'static [u8; 4],
    pub width: u32,
    pub height: u32,
    pub bits: u8,
    pub orientation: u8,
    /// Alpha of every pixel; `None` if the file has no transparency.
    pub alpha: Option<u8>,
    /// The pixels as stored, premultiplied by alpha.
    pub pixels: Vec<[u8; 3]>,
}

impl FakeImage {
    /// An upright, opaque image with 8 bits per channel.
    pub(crate) fn new(width: u32, height: u32, pixel: impl Fn(u32, u32) -> [u8; 3]) -> Self {
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

    /// A file that declares a size and has no pixels.
    pub(crate) fn declaring(width: u32, height: u32) -> Self {
        Self {
            width,
            height,
            ..Self::new(0, 0, |_, _| [0; 3])
        }
    }

    /// The file: three boxes, as cameras write them.
    pub(crate) fn bytes(&self) -> Vec<u8> {
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

pub(crate) fn in_box(name: &[u8; 4], contents: &[u8]) -> Vec<u8> {
    let length = (contents.len() as u32 + 8).to_be_bytes();
    [&length, &name[..], contents].concat()
}

/// Offset of the description, after the brand and four zeros.
const META: usize = 16 + 8;
/// Offset of the pixels, after the description and their box header.
const PIXELS: usize = META + 12 + 8;

fn meta(file: &[u8]) -> Result<&[u8; 12], Unreadable> {
    let meta = file.get(META..).and_then(|rest| rest.first_chunk());
    meta.ok_or_else(|| damaged("it has no properties"))
}

fn describe(file: &[u8]) -> Result<ImageProperties, Unreadable> {
    let meta = meta(file)?;
    if meta[8] == 0 {
        // As a system answers that has no decoder for the contents of the boxes.
        return Err(Unreadable::Format);
    }
    assert_ne!(meta[8], 66, "the system's decoder fails");
    let side = |at: usize| {
        let bytes = [meta[at], meta[at + 1], meta[at + 2], meta[at + 3]];
        Some(i64::from(u32::from_be_bytes(bytes)))
    };
    Ok(ImageProperties::new(
        [side(0), side(4)],
        Some(i64::from(meta[8])),
        Some(i64::from(meta[9])),
    ))
}

fn draw(file: &[u8], properties: &ImageProperties) -> Result<RenderedImage, Unreadable> {
    let meta = meta(file)?;
    let (pixels, _) = file[PIXELS..].as_chunks::<3>();
    let (width, height) = (properties.header.width, properties.header.height);
    let declared = u64::from(width) * u64::from(height);
    assert!(
        declared < 1 << 20,
        "only images within the size limits are decoded"
    );
    if pixels.is_empty() {
        properties.check_size(0, 0)?;
    }
    let alpha = match meta[10] {
        0 => Alpha::Opaque,
        _ => Alpha::Channel,
    };
    let mut rgba: Vec<u8> = pixels
        .iter()
        .flat_map(|[r, g, b]| [*r, *g, *b, meta[11]])
        .collect();
    // Missing pixels stay transparent.
    rgba.resize(declared as usize * 4, 0);
    Ok(RenderedImage { rgba, alpha })
}
