//! READ: what a dropped folder is, and its photographs as plain arrays of bytes.
//! Decides by names and file headers, decodes late, never writes into the folder. Knows no tensor, no device, no model
//! and no screen; whatever it reads it treats as hostile.

mod augment;
mod cache;
mod decode;
mod error;
mod header;
mod images;
mod inspect;
mod inspection;
mod layout;
mod loader;
mod order;
mod sentences;
mod split;
mod stream;
mod walk;
mod watch;

pub use error::{DatasetError, SampleError};
pub use images::{Augment, ImageDataset, ImageOptions, Sample};
pub use inspect::{InspectOptions, inspect};
pub use inspection::{Class, Ignored, ImageFile, Inspection, Part, SkippedFile, SplitKind};
pub use loader::{Loader, LoaderOptions};
pub use order::Order;
pub use watch::{Watch, watch};
