//! Reading and writing of model folders, exports and adapters. One topic per file.

// A helper that fails fails the test.
#![allow(clippy::unwrap_used)]

#[path = "../exports/mod.rs"]
mod exports;
#[path = "../folders/mod.rs"]
mod folders;

mod checkpoint_segments;
mod convnext;
mod pretrained_language_models;
mod export_core_ml;
mod export_gguf;
mod export_hub_folder;
mod export_onnx;
mod forward_shape_errors;
mod hub_format;
mod hub_format_errors;
mod lora;
