//! Encodes drawn pixels as a PNG. A pixel is three bytes: red, green, blue.

use std::io;

/// Drawn pixels per output pixel in each direction. Averaging them smooths the edges.
const SUPERSAMPLING: usize = 2;

/// Averages squares of `SUPERSAMPLING` by `SUPERSAMPLING` drawn pixels and encodes the result.
pub(super) fn encode(drawn: &[u8], width: usize, height: usize) -> io::Result<Vec<u8>> {
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
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width as u32, height as u32);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&pixels)?;
    writer.finish()?;
    Ok(file)
}
