//! One page about a run, as SVG and PNG: what was trained, how it went, and what memory did meanwhile. Folds nothing
//! itself; it draws what `Run` holds.

mod changes;
mod frame;
mod head;
mod page;
mod panels;
mod png;
mod scale;

use crate::{Run, RunFolder, RunlogError};
use page::{Drawn, Page, Paper, SCALE};
use plotters::prelude::{BitMapBackend, DrawingBackend, SVGBackend};
use std::fs;
use std::path::PathBuf;

/// Width of the page in logical pixels.
const WIDTH: f64 = 1160.0;
/// Room at the page's edges.
const EDGE: f64 = 32.0;

/// Draws the report of a run into its folder: `report.svg` and `report.png`, each put in place whole.
pub fn report(run: &Run, folder: &RunFolder) -> Result<(PathBuf, PathBuf), RunlogError> {
    let (svg_path, png_path) = (
        folder.path.join("report.svg"),
        folder.path.join("report.png"),
    );
    let id = folder.id();
    let failed = |why| RunlogError::Report {
        name: id.clone(),
        why,
    };
    let height = frame::BOTTOM + changes::height(run) + EDGE;
    let size = (
        (WIDTH * f64::from(SCALE)) as u32,
        (height * f64::from(SCALE)) as u32,
    );

    let mut svg = String::new();
    draw(
        run,
        &id,
        SVGBackend::with_string(&mut svg, size),
        Paper::Svg,
    )
    .map_err(failed)?;
    let fresh = folder.path.join("report.svg.new");
    fs::write(&fresh, logical(&svg, size))
        .and_then(|()| fs::rename(&fresh, &svg_path))
        .map_err(RunlogError::disk("written", &svg_path))?;

    // About 50 MB for a moment: nothing of it is kept.
    let mut pixels = vec![0; size.0 as usize * size.1 as usize * 3];
    draw(
        run,
        &id,
        BitMapBackend::with_buffer(&mut pixels, size),
        Paper::Bitmap,
    )
    .map_err(failed)?;
    let fresh = folder.path.join("report.png.new");
    png::write(&fresh, &pixels, size.0 as usize, size.1 as usize)
        .and_then(|()| fs::rename(&fresh, &png_path))
        .map_err(RunlogError::disk("written", &png_path))?;
    Ok((svg_path, png_path))
}

fn draw<B: DrawingBackend>(run: &Run, id: &str, backend: B, paper: Paper) -> Drawn {
    let page = Page::new(backend, paper)?;
    head::draw(run, id, &page)?;
    panels::draw(run, &page)?;
    changes::draw(run, &page)?;
    page.finish()
}

/// The SVG is drawn on a fine grid; its size on a page is the logical one.
fn logical(svg: &str, (width, height): (u32, u32)) -> String {
    let fine = format!("<svg width=\"{width}\" height=\"{height}\"");
    let logical = format!(
        "<svg width=\"{}\" height=\"{}\"",
        width / SCALE,
        height / SCALE
    );
    svg.replacen(&fine, &logical, 1)
}
