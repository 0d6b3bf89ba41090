//! READ: what a dropped folder is, and its photographs or texts as plain arrays.
//! Decides by names and file headers, decodes late, never writes into the folder. Knows no tensor, no device, no model
//! and no screen; whatever it reads it treats as hostile.

// The words.
mod error;
mod inspection;

// Looking at a folder: list, judge headers, read the names, choose what is held out, say it.
mod inspect;
mod walk;

mod header;
mod promise;

mod groups;
mod layout;
mod roster;
mod split;
mod table;

mod sentences;

// Photographs as samples.
mod images;

mod decode;

mod augment;
mod cache;

// Samples in order and in time.
mod order;

mod loader;
mod queue;

mod stream;

// Texts: tables, class folders, documents.
mod text;

// A folder of any kind.
mod look;

mod weights;

// The folder while the window is open.
mod watch;

pub use augment::Mix;
pub use error::{DatasetError, SampleError};
pub use images::{Augment, ImageDataset, ImageOptions, Sample};
pub use inspect::{DEFAULT_SEED, InspectOptions, inspect};
pub use inspection::{Class, Ignored, ImageFile, Inspection, Part, SkippedFile, SplitKind};
pub use loader::{Loader, LoaderOptions};
pub use look::{Found, look};
pub use order::{KeptOrder, Order};
pub use table::{TableOptions, TargetColumn};
pub use text::{
    Buckets, Column, Documents, EncodingFound, KeptTexts, Lengths, Packing, Role, SkippedRows,
    Task, TextFile, TextInspection, TextOptions, TextRows, TextSample, Tokenizer, Vocabulary,
    Window,
};
pub use watch::{Watch, watch};
pub use weights::is_model;
