//! Sense memory pressure and decide the micro-batch. Pure below `source`: time and readings come in as values.
//! Refuses to know what a tensor, a model or a file of samples is.

mod decision;
mod sample;

pub use decision::{Action, Ask, Change, Decision, Outcome, Phase, Piece, PieceKind, SampleCost};
pub use sample::{Component, Level, MemorySample};
