//! Writes a PNG of drawn pixels. A pixel is three bytes: red, green, blue.

use std::io::{self, BufWriter};
use std::path::Path;

/// Drawn pixels per output pixel in each direction. Averaging them smooths the edges.
const SUPERSAMPLING: usize = 2;

/// Averages squares of `SUPERSAMPLING` by `SUPERSAMPLING` drawn pixels and writes the result.
pub(super) fn write(path: &Path, drawn: &[u8], width: usize, height: usize) -> io::Result<()> {
    let (width, height, row) = (width / SUPERSAMPLING, height / SUPERSAMPLING, width * 3);
    let mut pixels = Vec::with_capacity(width * height * 3);
    for y in 0..height {
        for x in 0..width {
            for channel in 0..3 {
                let sum: usize = (0..SUPERSAMPLING * SUPERSAMPLING)
                    .map(|i| {
                        let (x, y) = (
                            x * SUPERSAMPLING + i % SUPERSAMPLING,
                            y * SUPERSAMPLING + i / SUPERSAMPLING,
                        );
                        usize::from(drawn[y * row + x * 3 + channel])
                    })
                    .sum();
                pixels.push((sum / (SUPERSAMPLING * SUPERSAMPLING)) as u8);
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
