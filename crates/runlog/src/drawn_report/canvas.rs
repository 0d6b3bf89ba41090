//! A page to draw on, in logical pixels. The same calls draw the SVG and the bitmap.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{FontStyle, FontTransform, register_font};
use std::fmt::Display;
use std::sync::Once;

/// Width of the page in logical pixels.
pub(super) const WIDTH: f64 = 1160.0;
/// Margin of the page in logical pixels.
pub(super) const EDGE: f64 = 32.0;
/// Device pixels per logical pixel: plotters rounds all coordinates to device pixels.
pub(super) const SCALE: u32 = 4;
/// The embedded font: regular and bold.
pub(super) const FONTS: [&[u8]; 2] = [
    include_bytes!("../../assets/ebb-report-sans-regular.otf"),
    include_bytes!("../../assets/ebb-report-sans-semibold.otf"),
];
/// Font of the SVG: that of the window. PNG and PDF are drawn with the embedded font.
const FAMILY: &str = "Inter, -apple-system, 'Helvetica Neue', sans-serif";
/// plotters divides the font size by this line height.
const LINE_HEIGHT: f64 = 1.24;

/// The light theme of the window, named like its CSS tokens.
pub(super) mod colour {
    use plotters::style::RGBColor;
    pub const BG: RGBColor = RGBColor(0xfc, 0xfc, 0xfd);
    pub const LINE: RGBColor = RGBColor(0xe2, 0xe2, 0xe6);
    pub const AXIS: RGBColor = RGBColor(0xc9, 0xc9, 0xcf);
    pub const GRID: RGBColor = RGBColor(0xec, 0xec, 0xef);
    pub const TEXT: RGBColor = RGBColor(0x1d, 0x1d, 0x20);
    pub const TEXT_2: RGBColor = RGBColor(0x55, 0x56, 0x5e);
    pub const TEXT_3: RGBColor = RGBColor(0x68, 0x69, 0x72);
    pub const ACCENT: RGBColor = RGBColor(0x0a, 0x6a, 0x86);
    pub const WARNING: RGBColor = RGBColor(0xb2, 0x6a, 0x00);
    pub const WARNING_TEXT: RGBColor = RGBColor(0x8a, 0x52, 0x00);
    pub const WARNING_WASH: RGBColor = RGBColor(0xfd, 0xf1, 0xdc);
    pub const CRITICAL: RGBColor = RGBColor(0xc0, 0x32, 0x2b);
    pub const CRITICAL_TEXT: RGBColor = RGBColor(0xab, 0x2a, 0x24);
    pub const CRITICAL_WASH: RGBColor = RGBColor(0xfb, 0xe6, 0xe4);
    pub const SYSTEM: RGBColor = RGBColor(0x8d, 0x90, 0x98);
    pub const OTHERS: RGBColor = RGBColor(0xc3, 0xc6, 0xcc);
    pub const STATE: RGBColor = RGBColor(0x0a, 0x6a, 0x86);
    pub const ACTIVATIONS: RGBColor = RGBColor(0x74, 0xb9, 0xcd);
    pub const CACHED: RGBColor = RGBColor(0xb9, 0xdc, 0xe6);
    pub const BUDGET: RGBColor = RGBColor(0x1d, 0x1d, 0x20);
    pub const RAW: RGBColor = RGBColor(0xbc, 0xc0, 0xc7);
    pub const SMOOTHED: RGBColor = RGBColor(0x0a, 0x6a, 0x86);
    pub const EVALUATION: RGBColor = RGBColor(0x1d, 0x1d, 0x20);
}

/// The result of drawing; the error is the drawing library's message.
pub(super) type DrawResult = Result<(), String>;
/// A position on the page, in logical pixels.
pub(super) type Point = (f64, f64);

/// Which end of a text is at its position.
#[derive(Clone, Copy)]
pub(super) enum Align {
    Left,
    Right,
}

/// A text style.
#[derive(Clone, Copy)]
pub(super) struct Type {
    size: f64,
    weight: FontStyle,
    colour: RGBColor,
}

impl Type {
    pub const fn plain(size: f64, colour: RGBColor) -> Type {
        Type {
            size,
            weight: FontStyle::Normal,
            colour,
        }
    }

    pub const fn strong(size: f64, colour: RGBColor) -> Type {
        Type {
            size,
            weight: FontStyle::Bold,
            colour,
        }
    }

    fn style(&self) -> TextStyle<'static> {
        let size = self.size * LINE_HEIGHT * f64::from(SCALE);
        let style = TextStyle::from((FontFamily::Name(FAMILY), size, self.weight));
        TextStyle {
            color: self.colour.to_backend_color(),
            ..style
        }
    }

    /// Width of a text in logical pixels.
    pub fn width(&self, text: &str) -> f64 {
        let size = self.style().font.layout_box(text);
        size.map_or(0.0, |(least, greatest)| {
            f64::from(greatest.0 - least.0) / f64::from(SCALE)
        })
    }
    /// Shortens the text with an ellipsis if it is wider than `available` logical pixels.
    pub fn fit(&self, text: &str, available: f64) -> String {
        if self.width(text) <= available {
            return text.to_owned();
        }
        let mut cut = text.to_owned();
        while cut.pop().is_some() {
            let short = format!("{}…", cut.trim_end());
            if self.width(&short) <= available {
                return short;
            }
        }
        String::new()
    }
}

/// A dash pattern, in logical pixels.
#[derive(Clone, Copy)]
pub(super) struct Dashes {
    pub on: f64,
    pub off: f64,
}

/// The kind of image that is drawn.
#[derive(Clone, Copy)]
pub(super) enum Backend {
    Svg,
    Bitmap,
}

impl Backend {
    /// Distance from a text's position to its baseline, in ems. It differs between plotters'
    /// backends.
    fn baseline_offset(self) -> f64 {
        match self {
            Backend::Svg => 0.76,
            Backend::Bitmap => LINE_HEIGHT / 2.0,
        }
    }
}

pub(super) struct Page<B: DrawingBackend> {
    area: DrawingArea<B, Shift>,
    target: Backend,
}

impl<B: DrawingBackend> Page<B> {
    pub fn new(backend: B, target: Backend) -> Result<Page<B>, String> {
        load_fonts();
        let page = Page {
            area: backend.into_drawing_area(),
            target,
        };
        page.area.fill(&colour::BG).map_err(message)?;
        Ok(page)
    }

    pub fn finish(&self) -> DrawResult {
        self.area.present().map_err(message)
    }

    /// Draws a text whose baseline starts or ends at a position.
    pub fn text(&self, (x, y): Point, text: &str, kind: Type, align: Align) -> DrawResult {
        let h_pos = match align {
            Align::Left => HPos::Left,
            Align::Right => HPos::Right,
        };
        let style = kind.style().pos(Pos::new(h_pos, VPos::Top));
        let style = style.transform(FontTransform::None);
        let top = y - self.target.baseline_offset() * kind.size;
        self.area
            .draw(&Text::new(text, device_point((x, top)), style))
            .map_err(message)
    }

    /// Draws a line through points.
    pub fn line(&self, points: &[Point], width: f64, colour: RGBColor) -> DrawResult {
        let style = colour.stroke_width((width * f64::from(SCALE)).round() as u32);
        match points.len() {
            0 | 1 => Ok(()),
            _ => self
                .area
                .draw(&PathElement::new(device_points(points), style))
                .map_err(message),
        }
    }

    /// Draws a dashed line.
    pub fn dashes(
        &self,
        points: &[Point],
        pattern: Dashes,
        width: f64,
        colour: RGBColor,
    ) -> DrawResult {
        let Dashes { on, off } = pattern;
        // The pattern continues at the corners.
        let mut at = 0.0;
        for pair in points.windows(2) {
            let (from, to) = (pair[0], pair[1]);
            let length = (to.0 - from.0).hypot(to.1 - from.1);
            let point_at = |t: f64| {
                let fraction = (t / length).clamp(0.0, 1.0);
                (
                    from.0 + fraction * (to.0 - from.0),
                    from.1 + fraction * (to.1 - from.1),
                )
            };
            let mut begin = -(at % (on + off));
            while begin < length {
                if begin + on > 0.0 {
                    self.line(
                        &[point_at(begin.max(0.0)), point_at((begin + on).min(length))],
                        width,
                        colour,
                    )?;
                }
                begin += on + off;
            }
            at += length;
        }
        Ok(())
    }

    pub fn fill(&self, points: &[Point], colour: impl Color) -> DrawResult {
        self.area
            .draw(&Polygon::new(device_points(points), colour.filled()))
            .map_err(message)
    }

    pub fn rect(&self, (left, top): Point, (right, bottom): Point, colour: RGBColor) -> DrawResult {
        let corners = [device_point((left, top)), device_point((right, bottom))];
        self.area
            .draw(&Rectangle::new(corners, colour.filled()))
            .map_err(message)
    }

    /// Draws a small filled shape with an outline. The outline is a larger filled shape, because
    /// plotters breaks thick outlines at sharp corners.
    pub fn shape(&self, points: &[Point], inside: RGBColor, edge: RGBColor) -> DrawResult {
        self.fill(points, edge)?;
        let count = points.len() as f64;
        let sum = points
            .iter()
            .fold((0.0, 0.0), |(x, y), point| (x + point.0, y + point.1));
        let (x, y) = (sum.0 / count, sum.1 / count);
        let inner = |point: &Point| (x + 0.58 * (point.0 - x), y + 0.58 * (point.1 - y));
        self.fill(&points.iter().map(inner).collect::<Vec<_>>(), inside)
    }
}

fn device_point((x, y): Point) -> (i32, i32) {
    let scaled = |v: f64| (v * f64::from(SCALE)).round() as i32;
    (scaled(x), scaled(y))
}

fn device_points(points: &[Point]) -> Vec<(i32, i32)> {
    points.iter().map(|point| device_point(*point)).collect()
}

fn message(error: impl Display) -> String {
    error.to_string()
}

fn load_fonts() {
    static LOADED: Once = Once::new();
    LOADED.call_once(|| {
        let [regular, strong] = FONTS;
        // If a font cannot be registered, drawing fails with an error message.
        let _ = register_font(FAMILY, FontStyle::Normal, regular);
        let _ = register_font(FAMILY, FontStyle::Bold, strong);
    });
}
