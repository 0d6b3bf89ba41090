//! Makes a PNG of drawn pixels. Knows colours as three bytes.

use std::io::{self, BufWriter};
use std::path::Path;

/// Pixels drawn for one pixel kept, each way: the drawing has hard edges, their mean has soft ones.
pub(super) const FINER: usize = 2;

/// Averages the drawn pixels `FINER` by `FINER` and writes them.
pub(super) fn write(path: &Path, drawn: &[u8], width: usize, height: usize) -> io::Result<()> {
    let (width, height, row) = (width / FINER, height / FINER, width * 3);
    let mut pixels = Vec::with_capacity(width * height * 3);
    for y in 0..height {
        for x in 0..width {
            for channel in 0..3 {
                let sum: usize = (0..FINER * FINER)
                    .map(|i| {
                        let (x, y) = (x * FINER + i % FINER, y * FINER + i / FINER);
                        usize::from(drawn[y * row + x * 3 + channel])
                    })
                    .sum();
                pixels.push((sum / (FINER * FINER)) as u8);
            }
        }
    }
    let file = BufWriter::new(std::fs::File::create(path)?);
    let mut encoder = png::Encoder::new(file, width as u32, height as u32);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&pixels)?;
    writer.finish()?;
    Ok(())
}
