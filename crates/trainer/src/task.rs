//! What is learnt from which samples: photographs into classes, texts into classes, the next token of documents. The rooms around
//! it (loop, session, effective batch) fetch samples of a step, cut off a piece of so many, and get sums; what a sample is
//! stays here.

mod corpus;
mod data;
mod compression;
mod errors;
mod evaluated;
mod heads;
mod held_out;
mod language;
mod measures;
mod photographs;
mod report;
mod sample;
mod shares;
mod supply;
mod text;
mod work;

pub use compression::{CompressionTask, Sequence};
pub(crate) use corpus::boundary;
pub use corpus::{Corpus, TOKENIZER};
pub use data::{Data, Reading};
pub use errors::{NumberErrors, NumberReport};
pub use evaluated::{EvaluatedPiece, Metrics};
pub use held_out::HeldOut;
pub use language::LanguageTask;
pub use measures::Sums;
pub(crate) use models::BALANCE;
pub use models::{Balance, Heads, PixelNormalization};
pub use photographs::{ImageTask, Prediction};
pub(crate) use report::part_name;
pub use report::{ClassReport, EvaluationReport, Taken, wilson};
pub use sample::{Sample, Text};
pub use shares::kept as kept_shares;
pub use supply::Supply;
pub use text::TextTask;
pub use work::{TrainedPiece, Work};
