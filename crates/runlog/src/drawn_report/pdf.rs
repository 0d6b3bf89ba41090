//! Draws the report as a PDF: lines and shapes as vectors, text as text in the embedded fonts.

mod font;

use font::Font;
use pdf_writer::{Content, Finish, Name, Pdf, Rect, Ref, Str};
use plotters_backend::text_anchor::HPos;
use plotters_backend::{
    BackendColor, BackendCoord, BackendStyle, BackendTextStyle, DrawingBackend, DrawingErrorKind,
    FontStyle,
};
use std::convert::Infallible;

/// Points per device pixel: the page is as wide as A4 in landscape.
const POINTS_PER_PIXEL: f32 = 842.0 / 4640.0;
/// plotters divides the font size by this line height.
const LINE_HEIGHT: f32 = 1.24;
/// Distance from the top of a text to its baseline in ems, as in plotters' SVG.
const BASELINE: f32 = 0.76;
/// Names of the fonts in the file: regular and bold.
const FONT_NAMES: [&[u8]; 2] = [b"EbbReportSans", b"EbbReportSans-Bold"];

type Drawn = Result<(), DrawingErrorKind<Infallible>>;

/// A page in device pixels.
pub(super) struct PdfBackend<'a> {
    size: (u32, u32),
    content: Content,
    fonts: [Font; 2],
    /// Opacities in use, in percent.
    opacities: Vec<u8>,
    file: &'a mut Vec<u8>,
}

impl<'a> PdfBackend<'a> {
    /// A page whose file is written to `file` by `present`.
    pub fn new(file: &'a mut Vec<u8>, size: (u32, u32)) -> Result<Self, String> {
        let mut content = Content::new();
        // Pixels from the top left, as plotters counts.
        let height = size.1 as f32 * POINTS_PER_PIXEL;
        content.transform([POINTS_PER_PIXEL, 0.0, 0.0, -POINTS_PER_PIXEL, 0.0, height]);
        let ([regular, bold], [name, bold_name]) = (super::canvas::FONTS, FONT_NAMES);
        Ok(PdfBackend {
            size,
            content,
            fonts: [Font::new(name, regular)?, Font::new(bold_name, bold)?],
            opacities: Vec::new(),
            file,
        })
    }

    /// Sets the color of what follows.
    fn color(&mut self, color: BackendColor) {
        let opacity = (color.alpha * 100.0).round() as u8;
        if !self.opacities.contains(&opacity) {
            self.opacities.push(opacity);
        }
        let name = opacity_name(opacity);
        let (r, g, b) = color.rgb;
        let [r, g, b] = [r, g, b].map(|part| f32::from(part) / 255.0);
        self.content.set_parameters(Name(name.as_bytes()));
        self.content.set_fill_rgb(r, g, b).set_stroke_rgb(r, g, b);
    }

    fn path(&mut self, points: impl IntoIterator<Item = BackendCoord>) {
        for (i, (x, y)) in points.into_iter().enumerate() {
            let (x, y) = (x as f32, y as f32);
            if i == 0 {
                self.content.move_to(x, y);
            } else {
                self.content.line_to(x, y);
            }
        }
    }

    /// The file: a page, its content, fonts and opacities.
    fn encode(&self, drawn: &[u8]) -> Vec<u8> {
        let [catalog, pages, page, content] = [1, 2, 3, 4].map(Ref::new);
        let fonts = [Ref::new(5), Ref::new(5 + font::OBJECTS)];
        let first_opacity = 5 + 2 * font::OBJECTS;
        let (width, height) = self.size;
        let [width, height] = [width, height].map(|pixels| pixels as f32 * POINTS_PER_PIXEL);
        let mut pdf = Pdf::new();
        pdf.catalog(catalog).pages(pages);
        pdf.pages(pages).kids([page]).count(1);
        let mut sheet = pdf.page(page);
        sheet.media_box(Rect::new(0.0, 0.0, width, height));
        sheet.parent(pages).contents(content);
        let mut resources = sheet.resources();
        let mut named = resources.fonts();
        for (name, id) in FONT_NAMES.into_iter().zip(fonts) {
            named.pair(Name(name), id);
        }
        named.finish();
        let mut named = resources.ext_g_states();
        let opacities = (first_opacity..).map(Ref::new).zip(&self.opacities);
        for (id, opacity) in opacities.clone() {
            named.pair(Name(opacity_name(*opacity).as_bytes()), id);
        }
        named.finish();
        resources.finish();
        sheet.finish();
        for (id, opacity) in opacities {
            let opacity = f32::from(*opacity) / 100.0;
            let mut state = pdf.ext_graphics(id);
            state.non_stroking_alpha(opacity).stroking_alpha(opacity);
        }
        for (font, id) in self.fonts.iter().zip(fonts) {
            font.write(&mut pdf, id);
        }
        pdf.stream(content, drawn);
        pdf.finish()
    }
}

fn opacity_name(percent: u8) -> String {
    format!("Opacity{percent}")
}

impl DrawingBackend for PdfBackend<'_> {
    type ErrorType = Infallible;

    fn get_size(&self) -> (u32, u32) {
        self.size
    }

    fn ensure_prepared(&mut self) -> Drawn {
        Ok(())
    }

    fn present(&mut self) -> Drawn {
        let drawn = std::mem::replace(&mut self.content, Content::new()).finish();
        *self.file = self.encode(&drawn);
        Ok(())
    }

    fn draw_pixel(&mut self, (x, y): BackendCoord, color: BackendColor) -> Drawn {
        self.draw_rect((x, y), (x + 1, y + 1), &color, true)
    }

    fn draw_line<S: BackendStyle>(
        &mut self,
        from: BackendCoord,
        to: BackendCoord,
        style: &S,
    ) -> Drawn {
        self.draw_path([from, to], style)
    }

    fn draw_rect<S: BackendStyle>(
        &mut self,
        (left, top): BackendCoord,
        (right, bottom): BackendCoord,
        style: &S,
        fill: bool,
    ) -> Drawn {
        let corners = [(left, top), (right, top), (right, bottom), (left, bottom)];
        if fill {
            return self.fill_polygon(corners, style);
        }
        self.draw_path(corners.into_iter().chain([(left, top)]), style)
    }

    fn draw_path<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(
        &mut self,
        path: I,
        style: &S,
    ) -> Drawn {
        self.color(style.color());
        self.content.set_line_width(style.stroke_width() as f32);
        self.path(path);
        self.content.stroke();
        Ok(())
    }

    fn fill_polygon<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(
        &mut self,
        points: I,
        style: &S,
    ) -> Drawn {
        self.color(style.color());
        self.path(points);
        self.content.close_path().fill_nonzero();
        Ok(())
    }

    fn draw_text<T: BackendTextStyle>(
        &mut self,
        text: &str,
        style: &T,
        (x, y): BackendCoord,
    ) -> Drawn {
        self.color(style.color());
        let index = usize::from(matches!(style.style(), FontStyle::Bold));
        let size = style.size() as f32 / LINE_HEIGHT;
        let (glyphs, width) = self.fonts[index].shape(text);
        let x = match style.anchor().h_pos {
            HPos::Left => x as f32,
            HPos::Right => x as f32 - width * size,
            HPos::Center => x as f32 - width * size / 2.0,
        };
        let baseline = y as f32 + BASELINE * size;
        self.content
            .begin_text()
            .set_font(Name(FONT_NAMES[index]), size)
            // Upright again: the page is upside down.
            .set_text_matrix([1.0, 0.0, 0.0, -1.0, x, baseline])
            .show(Str(&glyphs))
            .end_text();
        Ok(())
    }
}
