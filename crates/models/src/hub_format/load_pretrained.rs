//! Builds the network of a folder, freezes the parameters that are not trained, and fills all of
//! them with pretrained weights.

use super::architecture::HubArchitecture;
use super::fill_parameters::WeightFiller;
use super::fine_tuning::FineTuning;
use super::hub_network::HubNetwork;
use super::pretrained_folder::HubFolder;
use crate::error::{ModelError, Result};
use crate::gpt::Gpt;
use crate::lora::set_magnitudes;
use crate::network::Network;
use crate::parameter_builder::ParameterBuilder;
use crate::tensor_map::TensorTable;
use crate::text_encoder::TextEncoder;
use candle_core::{DType, Device};
use tape::Parameters;

/// The head of a classifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Head {
    /// The published head with the published classes.
    Pretrained,
    /// A new head with this many outputs and random initial weights.
    New(usize),
}

/// How a network is built from a folder.
#[derive(Debug, Clone, Copy)]
pub struct LoadOptions<'a> {
    /// Its head. Language models ignore it.
    pub head: Head,
    /// Which weights are trained, and how the frozen ones are stored.
    pub tuning: FineTuning,
    /// Seed of the initial weights of a new head and of adapters.
    pub seed: u64,
    /// Element type of the parameters: f32, or f64 for checks.
    pub dtype: DType,
    /// Device of the parameters.
    pub device: &'a Device,
}

/// A network with pretrained weights.
#[derive(Debug, Clone)]
pub struct Loaded<N> {
    /// The network.
    pub network: N,
    /// Its parameters.
    pub parameters: Parameters,
}

impl<N> Loaded<N> {
    fn map<M>(self, into: impl FnOnce(N) -> M) -> Loaded<M> {
        Loaded {
            network: into(self.network),
            parameters: self.parameters,
        }
    }
}

/// The values of the parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Weights {
    Pretrained,
    /// The network is only built for its shapes.
    Zeros,
}

impl HubFolder {
    /// A classifier of images of `side` pixels, the published side by default. Position embeddings
    /// of a vision transformer are resized.
    ///
    /// # Errors
    /// [`ModelError::WeightsMisfit`] with every tensor that is missing, misshaped or unknown;
    /// [`ModelError::HubFolder`] if the folder holds another kind of network, or has no head and no
    /// new one is asked for.
    pub fn image_classifier(
        &self,
        side: Option<usize>,
        options: &LoadOptions,
    ) -> Result<Loaded<Network>> {
        self.load_image_network(side, options, Weights::Pretrained)
    }

    /// A classifier of texts, which can also embed them ([`TextEncoder::embed`]).
    pub fn text_classifier(&self, options: &LoadOptions) -> Result<Loaded<TextEncoder>> {
        self.load_text_encoder(options, Weights::Pretrained)
    }

    /// A language model.
    pub fn language_model(&self, options: &LoadOptions) -> Result<Loaded<Gpt>> {
        self.load_gpt(options, Weights::Pretrained)
    }

    /// The network of any kind. `side` is that of images in pixels.
    pub fn network(&self, side: Option<usize>, options: &LoadOptions) -> Result<Loaded<Network>> {
        self.load_network(side, options, Weights::Pretrained)
    }

    /// Like [`HubFolder::network`] with zeros for parameters, in almost no time and memory. The
    /// tensors must exist, but their values are not read.
    pub fn with_zeros(
        &self,
        side: Option<usize>,
        options: &LoadOptions,
    ) -> Result<Loaded<Network>> {
        self.load_network(side, options, Weights::Zeros)
    }

    fn load_network(
        &self,
        side: Option<usize>,
        options: &LoadOptions,
        weights: Weights,
    ) -> Result<Loaded<Network>> {
        match self.architecture() {
            HubArchitecture::Image(_) => self.load_image_network(side, options, weights),
            HubArchitecture::Bert(_) => {
                let loaded = self.load_text_encoder(options, weights)?;
                Ok(loaded.map(Network::TextEncoder))
            }
            HubArchitecture::Gpt2(_) | HubArchitecture::Decoder(_) => {
                Ok(self.load_gpt(options, weights)?.map(Network::Gpt))
            }
        }
    }

    fn load_image_network(
        &self,
        side: Option<usize>,
        options: &LoadOptions,
        weights: Weights,
    ) -> Result<Loaded<Network>> {
        let outputs = self.outputs(options)?;
        let HubArchitecture::Image(network) = self.architecture() else {
            return Err(self.wrong_kind("an image classifier"));
        };
        let is_new_head = options.head != Head::Pretrained;
        let architecture = network
            .architecture(side, is_new_head)
            .map_err(|reason| self.refuse(reason))?;
        self.load(options, weights, &network.table(), |b| {
            Ok(Network::Image(architecture.build(b, outputs)?))
        })
    }

    fn load_text_encoder(
        &self,
        options: &LoadOptions,
        weights: Weights,
    ) -> Result<Loaded<TextEncoder>> {
        let outputs = self.outputs(options)?;
        match self.architecture() {
            HubArchitecture::Bert(bert) => self.load(options, weights, &bert.table(), |b| {
                TextEncoder::with_style(b, bert.shape, bert.style, outputs)
            }),
            _ => Err(self.wrong_kind("a text classifier")),
        }
    }

    fn load_gpt(&self, options: &LoadOptions, weights: Weights) -> Result<Loaded<Gpt>> {
        match self.architecture() {
            HubArchitecture::Gpt2(gpt) => self.load(options, weights, &gpt.table(), |b| {
                Gpt::with_block(b, gpt.shape, gpt.block)
            }),
            HubArchitecture::Decoder(decoder) => {
                self.load(options, weights, &decoder.table(), |b| {
                    Gpt::with_decoder(b, &decoder.shape)
                })
            }
            _ => Err(self.wrong_kind("a language model")),
        }
    }

    fn load<N>(
        &self,
        options: &LoadOptions,
        weights: Weights,
        table: &TensorTable,
        build: impl FnOnce(&mut ParameterBuilder) -> tape::Result<N>,
    ) -> Result<Loaded<N>> {
        let mut parameters = Parameters::default();
        let layout = self.architecture().network().blocks();
        let builder =
            ParameterBuilder::new(&mut parameters, options.seed, options.dtype, options.device);
        let builder = match (weights, options.head) {
            (Weights::Zeros, _) => builder.with_zeros(),
            (Weights::Pretrained, Head::Pretrained) => builder.with_random_under(&[]),
            (Weights::Pretrained, Head::New(_)) => builder.with_random_under(&["head"]),
        };
        let network = build(&mut builder.with_adapters(options.tuning.adapter))?;
        parameters.freeze(|name| options.tuning.trains(name, layout));
        let filler = WeightFiller {
            tensors: self.tensors(),
            table,
            uses_head: options.head == Head::Pretrained,
            tuning: options.tuning,
            layout,
        };
        match weights {
            Weights::Zeros => {
                filler.check(&parameters)?;
                options.tuning.store(&mut parameters, layout)?;
            }
            Weights::Pretrained => {
                filler.fill(&mut parameters)?;
                set_magnitudes(&mut parameters)?;
            }
        }
        Ok(Loaded {
            network,
            parameters,
        })
    }

    /// Number of outputs of the head.
    fn outputs(&self, options: &LoadOptions) -> Result<usize> {
        match options.head {
            Head::New(outputs) if outputs > 0 => Ok(outputs),
            Head::New(_) => Err(self.refuse("a network needs at least one class")),
            Head::Pretrained => self.head_outputs().ok_or_else(|| {
                self.refuse(
                    "the pretrained network has no head; give the number of classes for a new head",
                )
            }),
        }
    }

    fn wrong_kind(&self, wanted: &str) -> ModelError {
        self.refuse(format!(
            "a network of type {} is not {wanted}; choose another folder",
            self.model_type()
        ))
    }
}
