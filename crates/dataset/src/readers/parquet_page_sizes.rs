//! How far the pages of a Parquet file unpack. The library `parquet` unpacks pages of some codecs
//! as far as they go, whatever size their headers declare: a page of 1 MB could fill the memory.
//! Such pages are unpacked here first, without storing anything.

use super::parquet_header_limits::PageHeader;
use brotli::Decompressor;
use flate2::read::MultiGzDecoder;
use lz4_flex::frame::FrameDecoder;
use parquet::basic::Compression;
use std::io::{self, Read};

/// Bytes that Brotli unpacks at once.
const BUFFER_BYTES: usize = 64 << 10;

/// Whether a page unpacks to more bytes than its header declares. `packed` are its bytes. Stops as
/// soon as it is certain.
pub(super) fn unpacks_to_more(codec: Compression, page: PageHeader, packed: &[u8]) -> bool {
    let level_bytes = page.level_bytes.min(packed.len() as u64) as usize;
    let limit = page.unpacked_bytes.saturating_sub(page.level_bytes);
    let packed = &packed[level_bytes..];
    match codec {
        Compression::GZIP(_) => exceeds(MultiGzDecoder::new(packed), limit),
        Compression::BROTLI(_) => {
            has_large_window(packed) || exceeds(Decompressor::new(packed, BUFFER_BYTES), limit)
        }
        // The library tries this format if a page has none of the others.
        Compression::LZ4 => exceeds(FrameDecoder::new(packed), limit),
        // The library unpacks the others to the declared size.
        _ => false,
    }
}

/// Whether there are more than `limit` bytes to read. An error ends the bytes; the library reports
/// it when it unpacks the page.
fn exceeds(mut unpacked: impl Read, limit: u64) -> bool {
    let mut beyond = unpacked.by_ref().take(limit.saturating_add(1));
    let mut buffer = [0; 4096];
    let mut bytes = 0u64;
    loop {
        match beyond.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => bytes += read as u64,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    bytes > limit
}

/// Whether a Brotli stream asks for a window of up to 1 GB. No program writes such pages.
fn has_large_window(packed: &[u8]) -> bool {
    matches!(packed, [0x11, second, ..] if (10..=30).contains(&(second & 0x3F)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::basic::{BrotliLevel, GzipLevel};
    use std::io::Write;

    fn page(unpacked_bytes: u64, level_bytes: u64) -> PageHeader {
        PageHeader {
            unpacked_bytes,
            level_bytes,
            ..PageHeader::default()
        }
    }

    #[test]
    fn a_page_may_unpack_to_its_declared_size_and_no_further() {
        let text = vec![b'a'; 100_000];
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&text).expect("memory can be written");
        let gzip = gzip.finish().expect("memory can be written");
        let mut lz4 = lz4_flex::frame::FrameEncoder::new(Vec::new());
        lz4.write_all(&text).expect("memory can be written");
        let lz4 = lz4.finish().expect("memory can be written");
        for (codec, packed) in [
            (Compression::GZIP(GzipLevel::default()), gzip),
            (Compression::LZ4, lz4),
        ] {
            assert!(packed.len() < 2_000, "{codec:?}");
            assert!(!unpacks_to_more(codec, page(100_000, 0), &packed));
            assert!(unpacks_to_more(codec, page(99_999, 0), &packed));
            // Levels come first, and are not compressed.
            let with_levels = [&[0; 7][..], &packed].concat();
            assert!(!unpacks_to_more(codec, page(100_007, 7), &with_levels));
            assert!(unpacks_to_more(codec, page(100_006, 7), &with_levels));
            // What is damaged is for the library to refuse.
            assert!(!unpacks_to_more(codec, page(100_000, 0), &packed[..20]));
            assert!(!unpacks_to_more(codec, page(9, 0), b"no such codec"));
        }
        let brotli = Compression::BROTLI(BrotliLevel::default());
        assert!(unpacks_to_more(brotli, page(9, 0), &[0x11, 0x1E, 0, 0]));
    }
}
