//! Image formats that only the operating system decodes: HEIC and AVIF, on a Mac. The decoder is a
//! value, so everything that Ebb decides around it is tested on any machine: which files the
//! decoder is asked about, how large they may be, and whether they are complete. The platform files
//! are twins with the same surface.

mod decoder_types;

#[cfg_attr(target_os = "macos", path = "system_decoder/imageio.rs")]
#[cfg_attr(not(target_os = "macos"), path = "system_decoder/without_decoder.rs")]
mod platform;

mod decode_with_limits;

mod self_test;

#[cfg(test)]
pub(crate) mod fake_decoder;

pub(crate) use decode_with_limits::{decode, detect_format, read_header};
pub(crate) use decoder_types::{SystemDecoder, SystemFormat, Unreadable};
#[cfg(test)]
pub(crate) use {decode_with_limits::ends_early, decoder_types::ImageProperties};

use std::sync::OnceLock;

/// Gives the decoder of a format; `None` if the system has none.
pub(crate) type Decoders = fn(SystemFormat) -> Option<SystemDecoder>;

/// This machine's decoders. Each is tested on first use.
pub(crate) fn installed(format: SystemFormat) -> Option<SystemDecoder> {
    static HEIC: OnceLock<bool> = OnceLock::new();
    static AVIF: OnceLock<bool> = OnceLock::new();
    let decoder = platform::DECODER?;
    let works = match format {
        SystemFormat::Heic => &HEIC,
        SystemFormat::Avif => &AVIF,
    };
    let works = works.get_or_init(|| self_test::passes(decoder, self_test::test_image(format)));
    works.then_some(decoder)
}
