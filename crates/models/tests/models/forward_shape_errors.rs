//! Shape errors name the operation, the parameter and both shapes, in every model.

// A helper that fails fails the test.
#![allow(clippy::unwrap_used)]

use candle_core::{DType, Device, Tensor};
use models::{
    Gpt, ParameterBuilder, ResNet, ResNetShape, SequenceShape, TextEncoder, Vit, VitShape,
};
use tape::{Cancel, Kernels, Parameters, Tape, Value};

const VIT: VitShape = VitShape {
    image: 16,
    patch: 8,
    width: 12,
    depth: 1,
    heads: 2,
};

fn images(side: usize) -> Value {
    let zeros = Tensor::zeros((2, 3, side, side), DType::F32, &Device::Cpu);
    Value::constant(zeros.unwrap())
}

/// The error of a model's forward pass with the parameter `spoilt` in another shape.
fn refusal(
    build: impl Fn(&mut ParameterBuilder) -> tape::Result<Box<dyn Fn(&Tape) -> tape::Result<Value>>>,
    spoilt: &str,
    shape: &[usize],
) -> String {
    let mut parameters = Parameters::default();
    let forward = build(&mut ParameterBuilder::new(
        &mut parameters,
        1,
        DType::F32,
        &Device::Cpu,
    ))
    .unwrap();
    let mut others = Parameters::default();
    for parameter in parameters.iter() {
        let shape = if parameter.name == spoilt {
            shape
        } else {
            parameter.tensor.dims()
        };
        let values = vec![0.0; shape.iter().product()];
        let name = parameter.name.clone();
        others
            .add(name, values, shape, DType::F32, &Device::Cpu)
            .unwrap();
    }
    let fits = Tape::forward_only(&parameters, Cancel::default(), Kernels::Fused);
    forward(&fits).unwrap();
    let tape = Tape::record(&others, Cancel::default(), Kernels::Fused);
    forward(&tape).unwrap_err().to_string()
}

#[track_caller]
fn check(message: &str, words: &[&str]) {
    for word in words {
        assert!(message.contains(word), "{message}: no {word}");
    }
}

#[test]
fn a_transformer_names_the_parameter_that_does_not_fit() {
    let spoil = |name: &str, shape: &[usize]| {
        let build = |b: &mut ParameterBuilder| {
            let network = Vit::build(b, VIT, 3)?;
            let forward = move |t: &Tape| network.forward(t, &images(16), 0);
            Ok(Box::new(forward) as Box<dyn Fn(&Tape) -> tape::Result<Value>>)
        };
        refusal(build, name, shape)
    };
    check(
        &spoil("blocks.0.up.weight", &[48, 13]),
        &["linear", "weight (blocks.0.up)", "[48, 13]", "[48, 12]"],
    );
    check(
        &spoil("blocks.0.qkv.weight", &[36, 11]),
        &["linear", "weight (blocks.0.qkv)", "[36, 11]", "[36, 12]"],
    );
    check(
        &spoil("blocks.0.norm2.bias", &[13]),
        &["layer_norm", "bias (blocks.0.norm2)", "[13]", "[12]"],
    );
    check(
        &spoil("head.bias", &[4]),
        &["linear", "bias (head)", "[4]", "[3]"],
    );
    check(
        &spoil("positions", &[6, 12]),
        &["add_repeated", "(positions)", "[6, 12]", "[5, 12]"],
    );
    check(
        &spoil("class_token", &[11]),
        &["prepend_token", "(class_token)", "[11]", "[12]"],
    );
}

#[test]
fn a_residual_network_names_the_parameter_that_does_not_fit() {
    let spoil = |name: &str, shape: &[usize]| {
        let build = |b: &mut ParameterBuilder| {
            let shape = ResNetShape {
                channels: 4,
                blocks: vec![(8, 2)],
                groups: 2,
                ..ResNetShape::convnet()
            };
            let network = ResNet::build(b, &shape, 3)?;
            let forward = move |t: &Tape| network.forward(t, &images(8), 0);
            Ok(Box::new(forward) as Box<dyn Fn(&Tape) -> tape::Result<Value>>)
        };
        refusal(build, name, shape)
    };
    check(
        &spoil("blocks.0.conv2.weight", &[8, 6, 3, 3]),
        &[
            "conv2d",
            "weight (blocks.0.conv2)",
            "[8, 6, 3, 3]",
            "[8, 8, 3, 3]",
        ],
    );
    check(
        &spoil("blocks.0.shortcut.norm.weight", &[7]),
        &[
            "group_norm",
            "weight (blocks.0.shortcut.norm)",
            "[7]",
            "[8]",
        ],
    );
}

#[test]
fn text_models_name_the_parameter_that_does_not_fit() {
    let text = |b: &mut ParameterBuilder| {
        let shape = SequenceShape {
            tokens: 4,
            vocabulary: 9,
            width: 6,
            depth: 1,
            heads: 2,
        };
        let network = TextEncoder::build(b, shape, 3)?;
        let forward = move |t: &Tape| network.forward(t, &[1; 8], &[4, 4], 0);
        Ok(Box::new(forward) as Box<dyn Fn(&Tape) -> tape::Result<Value>>)
    };
    let language = |b: &mut ParameterBuilder| {
        let shape = SequenceShape {
            tokens: 4,
            vocabulary: 9,
            width: 6,
            depth: 1,
            heads: 2,
        };
        let network = Gpt::build(b, shape)?;
        let forward = move |t: &Tape| Ok(network.loss(t, &[1; 8], &[2; 8], 2, 0)?.sum);
        Ok(Box::new(forward) as Box<dyn Fn(&Tape) -> tape::Result<Value>>)
    };
    for message in [
        refusal(text, "positions", &[5, 6]),
        refusal(language, "positions", &[5, 6]),
    ] {
        check(
            &message,
            &["add_repeated", "(positions)", "[5, 6]", "[4, 6]"],
        );
    }
    let message = refusal(language, "blocks.0.down.weight", &[6, 23]);
    check(
        &message,
        &["linear", "weight (blocks.0.down)", "[6, 23]", "[6, 24]"],
    );
}
