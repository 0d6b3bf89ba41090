//! Trained networks as folders that other programs open: in the format of the Hugging Face hub,
//! with one ONNX file, as a Core ML package, or with one GGUF file.
//!
//! An image network describes its exports itself (`ImageArchitecture`). To export another text
//! network, add an arm to `hub_folder` and to `onnx`.

// What is exported, and the files of a folder.
mod trained_network;
mod atomic_folder;
mod config_json;
mod safetensors_file;
mod tokenizer;

// The formats.
mod onnx;
mod classifier_export;
mod fine_tuned_folder;
mod hub_folder;
mod adapter_folder;
mod gguf;
mod gguf_folder;
mod onnx_folder;
mod core_ml_package;

pub use adapter_folder::export_adapter_folder;
pub use atomic_folder::{Exported, export_files, export_with_files};
pub use core_ml_package::export_core_ml;
pub use gguf::{ChatFormat, GgufWeights};
pub use gguf_folder::export_gguf_folder;
pub use hub_folder::export_hub_folder;
pub use onnx_folder::export_onnx;
pub use trained_network::{RegressionTarget, TokenizerFile, TrainedNetwork};
