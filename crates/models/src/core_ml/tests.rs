//! The conversion of ONNX graphs, one node at a time.

use super::*;
use crate::onnx_graph::{Axis, Graph};
use std::collections::HashMap;

/// A network of one operation on an image.
fn converted(operation: &str) -> Result<(Model, WeightFile)> {
    let parameters = HashMap::new();
    let mut graph = Graph::new(&parameters);
    let side = Axis::Fixed(8);
    let axes = [Axis::Free("batch"), Axis::Fixed(3), side, side];
    let image = graph.input("pixel_values", &axes);
    let scores = graph.node(operation, &[&image], Vec::new());
    graph.output("numbers", &scores, &axes);
    let export = CoreMlExport {
        label: "ViT-Tiny",
        input: Input::Image {
            side: 8,
            normalization: PixelNormalization::default(),
        },
        classes: &[],
        targets: vec!["mass_g"],
    };
    export.convert(graph.finish())
}

#[test]
fn an_operation_without_counterpart_names_the_model_and_another_format() {
    let refused = converted("Hardmax").expect_err("Core ML has no such operation");
    assert_eq!(
        refused.to_string(),
        "Core ML has no counterpart for the operation Hardmax of ViT-Tiny; export the network as ONNX"
    );
}

#[test]
fn each_node_becomes_one_operation_after_the_normalization() {
    let (model, _) = converted("Relu").expect("Core ML has this operation");
    let program = model.ml_program.expect("a program");
    let block = &program.functions["main"].block_specializations[OPERATIONS];
    let kinds = block.operations.iter().map(|o| o.kind.as_str());
    let kinds: Vec<&str> = kinds.filter(|kind| *kind != "const").collect();
    assert_eq!(kinds, ["mul", "add", "relu", "identity"]);
    assert_eq!(block.outputs, ["numbers"]);
}
