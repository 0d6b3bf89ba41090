//! One page about a run, as SVG, PNG and PDF: what was trained, how the training went, and how
//! memory was used. The page is drawn from a folded `Run`.

mod canvas;
mod axis_ticks;

mod panel_frame;
mod page_header;

mod changes;
mod machines;
mod panels;

mod pdf;
mod png;

use crate::{Run, RunFolder, RunlogError};
use canvas::{Backend, DrawResult, EDGE, Page, SCALE, WIDTH};
use pdf::PdfBackend;
use plotters::prelude::{BitMapBackend, DrawingBackend, SVGBackend};
use std::path::PathBuf;

/// Size of the page in device pixels.
#[derive(Clone, Copy)]
struct Size {
    width: u32,
    height: u32,
}

impl Size {
    fn for_run(run: &Run) -> Size {
        let height = panel_frame::BOTTOM + changes::height(run) + machines::height(run) + EDGE;
        Size {
            width: (WIDTH * f64::from(SCALE)) as u32,
            height: (height * f64::from(SCALE)) as u32,
        }
    }
}

/// Draws the report of a run into its folder, as `report.svg`, `report.png` and `report.pdf`, and
/// returns their paths. Each file is written completely or not at all.
///
/// # Errors
/// If the report cannot be drawn or written.
pub fn report(run: &Run, folder: &RunFolder) -> Result<[PathBuf; 3], RunlogError> {
    let paths = ["svg", "png", "pdf"].map(|end| folder.path.join(format!("report.{end}")));
    let (svg, png) = report_pages(run, &folder.id())?;
    let pdf = report_pdf(run, &folder.id())?;
    for (path, bytes) in paths.iter().zip([svg.as_bytes(), &png, &pdf]) {
        disk::write_atomic(path, bytes).map_err(RunlogError::disk("written", path))?;
    }
    Ok(paths)
}

/// The report of a run as a PDF.
///
/// # Errors
/// If the report cannot be drawn.
pub fn report_pdf(run: &Run, id: &str) -> Result<Vec<u8>, RunlogError> {
    let Size { width, height } = Size::for_run(run);
    let mut file = Vec::new();
    let drawn = PdfBackend::new(&mut file, (width, height))
        .and_then(|backend| draw(run, id, backend, Backend::Svg));
    drawn.map_err(|reason| RunlogError::Report {
        name: id.to_owned(),
        reason,
    })?;
    Ok(file)
}

/// The report of a run as an SVG and as a PNG.
///
/// # Errors
/// If the report cannot be drawn.
pub fn report_pages(run: &Run, id: &str) -> Result<(String, Vec<u8>), RunlogError> {
    let size = Size::for_run(run);
    let failed = |reason| RunlogError::Report {
        name: id.to_owned(),
        reason,
    };
    let svg = draw_svg(run, id, size).map_err(failed)?;
    let pixels = draw_pixels(run, id, size).map_err(failed)?;
    let png = png::encode(&pixels, size.width as usize, size.height as usize);
    Ok((svg, png.map_err(|error| failed(error.to_string()))?))
}

/// Draws the SVG in device pixels; its displayed size is in logical pixels.
fn draw_svg(run: &Run, id: &str, size: Size) -> Result<String, String> {
    let Size { width, height } = size;
    let mut svg = String::new();
    let backend = SVGBackend::with_string(&mut svg, (width, height));
    draw(run, id, backend, Backend::Svg)?;
    let device = format!("<svg width=\"{width}\" height=\"{height}\"");
    let (width, height) = (width / SCALE, height / SCALE);
    let logical = format!("<svg width=\"{width}\" height=\"{height}\"");
    Ok(svg.replacen(&device, &logical, 1))
}

/// Draws the page as RGB pixels; this takes about 50 MB.
fn draw_pixels(run: &Run, id: &str, size: Size) -> Result<Vec<u8>, String> {
    let mut pixels = vec![0; size.width as usize * size.height as usize * 3];
    let backend = BitMapBackend::with_buffer(&mut pixels, (size.width, size.height));
    draw(run, id, backend, Backend::Bitmap)?;
    Ok(pixels)
}

fn draw<B: DrawingBackend>(run: &Run, id: &str, backend: B, target: Backend) -> DrawResult {
    let page = Page::new(backend, target)?;
    page_header::draw(run, id, &page)?;
    panels::draw(run, &page)?;
    changes::draw(run, &page)?;
    machines::draw(run, &page)?;
    page.finish()
}
