//! A font with CFF outlines in a PDF: glyphs are named by their index in the font, and a table maps
//! them to characters, so that the text of the page can be searched and copied.

use pdf_writer::types::{CidFontType, FontFlags, SystemInfo, UnicodeCmap};
use pdf_writer::{Finish, Name, Pdf, Rect, Ref, Str};
use std::collections::BTreeMap;
use ttf_parser::{Face, GlyphId, Tag};

/// Number of objects of a font.
pub(super) const OBJECTS: i32 = 5;
/// Glyph widths in a PDF are in thousandths of an em.
const EM: f32 = 1000.0;
const SYSTEM: SystemInfo = SystemInfo {
    registry: Str(b"Adobe"),
    ordering: Str(b"Identity"),
    supplement: 0,
};

/// A font, and the glyphs that the page uses.
pub(super) struct Font {
    name: &'static [u8],
    face: Face<'static>,
    outlines: &'static [u8],
    used: BTreeMap<u16, char>,
}

impl Font {
    pub fn new(name: &'static [u8], file: &'static [u8]) -> Result<Self, String> {
        let face = Face::parse(file, 0).map_err(|error| error.to_string())?;
        let outlines = face.raw_face().table(Tag::from_bytes(b"CFF "));
        Ok(Font {
            name,
            outlines: outlines.ok_or("the font has no CFF outlines")?,
            face,
            used: BTreeMap::new(),
        })
    }

    /// The glyphs of a text, two bytes each, and its width in ems.
    pub fn shape(&mut self, text: &str) -> (Vec<u8>, f32) {
        let (mut glyphs, mut width) = (Vec::new(), 0.0);
        for character in text.chars() {
            let glyph = self.face.glyph_index(character).unwrap_or_default();
            self.used.insert(glyph.0, character);
            glyphs.extend(glyph.0.to_be_bytes());
            width += self.advance(glyph) / EM;
        }
        (glyphs, width)
    }

    /// Width of a glyph in thousandths of an em.
    fn advance(&self, glyph: GlyphId) -> f32 {
        let advance = self.face.glyph_hor_advance(glyph).unwrap_or_default();
        self.scaled(i32::from(advance))
    }

    fn scaled(&self, units: i32) -> f32 {
        units as f32 * EM / f32::from(self.face.units_per_em())
    }

    /// Writes the font as the object `id` and those after it.
    pub fn write(&self, pdf: &mut Pdf, id: Ref) {
        let [cid, descriptor, characters, outlines] = [1, 2, 3, 4].map(|n| Ref::new(id.get() + n));
        let name = Name(self.name);
        pdf.type0_font(id)
            .base_font(name)
            .encoding_predefined(Name(b"Identity-H"))
            .descendant_font(cid)
            .to_unicode(characters);
        let mut font = pdf.cid_font(cid);
        font.subtype(CidFontType::Type0)
            .base_font(name)
            .system_info(SYSTEM)
            .font_descriptor(descriptor)
            .default_width(EM);
        let mut widths = font.widths();
        for &glyph in self.used.keys() {
            widths.consecutive(glyph, [self.advance(GlyphId(glyph))]);
        }
        widths.finish();
        font.finish();
        let bounds = self.face.global_bounding_box();
        let [left, bottom, right, top] = [bounds.x_min, bounds.y_min, bounds.x_max, bounds.y_max]
            .map(|units| self.scaled(i32::from(units)));
        let (ascent, descent) = (self.face.ascender(), self.face.descender());
        let cap_height = self.face.capital_height().unwrap_or(ascent);
        pdf.font_descriptor(descriptor)
            .name(name)
            .flags(FontFlags::SYMBOLIC)
            .bbox(Rect::new(left, bottom, right, top))
            .italic_angle(0.0)
            .ascent(self.scaled(i32::from(ascent)))
            .descent(self.scaled(i32::from(descent)))
            .cap_height(self.scaled(i32::from(cap_height)))
            .stem_v(STEM)
            .font_file3(outlines);
        let mut map = UnicodeCmap::new(Name(b"Characters"), SYSTEM);
        for (&glyph, &character) in &self.used {
            map.pair(glyph, character);
        }
        pdf.cmap(characters, &map.finish());
        pdf.stream(outlines, self.outlines)
            .pair(Name(b"Subtype"), Name(b"CIDFontType0C"));
    }
}

/// Width of vertical stems in thousandths of an em. Viewers only use it to replace a font.
const STEM: f32 = 90.0;
