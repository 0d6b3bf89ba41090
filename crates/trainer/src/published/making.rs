//! A described folder becomes a network: built, frozen as far as it is to stand still, filled with the published numbers.
//! Refuses to know runs and data.

use super::fill::{Fill, Head};
use super::names::Table;
use super::tuning::Tuning;
use super::{Architecture, PublishedFolder, resnet};
use crate::error::{Result, TrainError};
use crate::models::{Builder, Gpt, Network, ResNet, TextEncoder, Vit, VitReads, VitShape};
use candle_core::{DType, Device};
use tape::Parameters;

/// Whose classes a network tells apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Classes {
    /// The published ones, with the published head.
    Published,
    /// So many others, with a head that begins as Ebb's heads do.
    New(usize),
}

/// How a network is made.
#[derive(Debug, Clone, Copy)]
pub struct Make<'a> {
    /// Its classes. A language model has none.
    pub classes: Classes,
    /// What trains, and how the rest is held.
    pub tuning: Tuning,
    /// What a new head's first values follow, and those of adapters.
    pub seed: u64,
    /// Element type of the parameters: f32, or f64 for checks.
    pub dtype: DType,
    /// Where they lie.
    pub device: &'a Device,
}

/// A network with its published weights.
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

/// What a network's parameters begin with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Numbers {
    /// What was published.
    Published,
    /// Nothing: it is built for its shapes.
    Zeros,
}

impl PublishedFolder {
    /// A classifier of images. `side` is that of the images in pixels, where it is not to be the published one; a vision
    /// transformer's position embeddings are resized to it.
    ///
    /// # Errors
    /// [`TrainError::WeightsMismatch`] with every tensor that is missing, misshaped or not known; [`TrainError::UnsupportedWeights`]
    /// where the folder holds no such network, or has no head and no other classes are asked for.
    pub fn image_classifier(&self, side: Option<usize>, make: &Make) -> Result<Loaded<Network>> {
        self.of_images(side, make, Numbers::Published)
    }

    fn of_images(
        &self,
        side: Option<usize>,
        make: &Make,
        numbers: Numbers,
    ) -> Result<Loaded<Network>> {
        let classes = self.class_count(make)?;
        match &self.architecture {
            Architecture::Vit(vit) => {
                let shape = VitShape {
                    image: side.unwrap_or(vit.shape.image),
                    ..vit.shape
                };
                if shape.image == 0 || !shape.image.is_multiple_of(shape.patch) {
                    return Err(self.refuse(format!(
                        "its patches have {} px and do not divide images of {} px; choose a multiple",
                        shape.patch, shape.image
                    )));
                }
                let mut vit = vit.clone();
                if make.classes != Classes::Published
                    && vit.style.reads == VitReads::ClassAndTeacher
                {
                    vit.style.reads = VitReads::Class;
                }
                self.load((make, numbers), &vit.table(), |b| {
                    Ok(Network::Vit(Vit::styled(b, shape, vit.style, classes)?))
                })
            }
            Architecture::ResNet(resnet) => self.load((make, numbers), &resnet.table(), |b| {
                let network = ResNet::styled(b, &resnet.shape, resnet.style, classes)?;
                Ok(Network::ResNet(network))
            }),
            _ => Err(self.other_than("images")),
        }
    }

    /// A classifier of texts, which also tells what stands for a text ([`TextEncoder::embed`]).
    ///
    /// # Errors
    /// As [`PublishedFolder::image_classifier`].
    pub fn text_classifier(&self, make: &Make) -> Result<Loaded<TextEncoder>> {
        self.of_texts(make, Numbers::Published)
    }

    fn of_texts(&self, make: &Make, numbers: Numbers) -> Result<Loaded<TextEncoder>> {
        let classes = self.class_count(make)?;
        match &self.architecture {
            Architecture::Bert(bert) => self.load((make, numbers), &bert.table(), |b| {
                TextEncoder::styled(b, bert.shape, bert.style, classes)
            }),
            _ => Err(self.other_than("texts' classes")),
        }
    }

    /// A language model.
    ///
    /// # Errors
    /// As [`PublishedFolder::image_classifier`].
    pub fn language_model(&self, make: &Make) -> Result<Loaded<Gpt>> {
        self.of_documents(make, Numbers::Published)
    }

    fn of_documents(&self, make: &Make, numbers: Numbers) -> Result<Loaded<Gpt>> {
        match &self.architecture {
            Architecture::Gpt2(gpt) => self.load((make, numbers), &gpt.table(), |b| {
                Gpt::styled(b, gpt.shape, gpt.block)
            }),
            _ => Err(self.other_than("the next token")),
        }
    }

    fn network_of(
        &self,
        side: Option<usize>,
        make: &Make,
        numbers: Numbers,
    ) -> Result<Loaded<Network>> {
        match &self.architecture {
            Architecture::Vit(_) | Architecture::ResNet(_) => self.of_images(side, make, numbers),
            Architecture::Bert(_) => {
                let loaded = self.of_texts(make, numbers)?;
                Ok(loaded.map(Network::TextEncoder))
            }
            Architecture::Gpt2(_) => Ok(self.of_documents(make, numbers)?.map(Network::Gpt)),
        }
    }

    /// The same network with zeros for parameters: its shapes, in no time and next to no memory. The tensors have to be there, though
    /// their numbers are not read.
    ///
    /// # Errors
    /// As [`PublishedFolder::image_classifier`], but for what the numbers are.
    pub fn of_zeros(&self, side: Option<usize>, make: &Make) -> Result<Loaded<Network>> {
        self.network_of(side, make, Numbers::Zeros)
    }

    /// The network, whatever it learns.
    ///
    /// # Errors
    /// As [`PublishedFolder::image_classifier`].
    pub fn network(&self, side: Option<usize>, make: &Make) -> Result<Loaded<Network>> {
        self.network_of(side, make, Numbers::Published)
    }

    fn load<N>(
        &self,
        (make, numbers): (&Make, Numbers),
        table: &Table,
        build: impl FnOnce(&mut Builder) -> tape::Result<N>,
    ) -> Result<Loaded<N>> {
        let (mut parameters, depth) = (Parameters::default(), self.depth());
        let builder = Builder::new(&mut parameters, make.seed, make.dtype, make.device);
        let (head, drawn): (_, &[_]) = match make.classes {
            Classes::Published => (Head::Published, &[]),
            Classes::New(_) => (Head::New, &["head"]),
        };
        let builder = match numbers {
            Numbers::Zeros => builder.of_zeros(),
            Numbers::Published => builder.drawn_under(drawn),
        };
        let network = build(&mut builder.adapting(make.tuning.adapter))?;
        parameters.freeze(|name| make.tuning.trains(name, depth));
        let fill = Fill {
            tensors: &self.tensors,
            table,
            head,
            epsilon: resnet::EPSILON,
            hold: (make.tuning, depth),
        };
        match numbers {
            Numbers::Zeros => {
                fill.check(&parameters)?;
                make.tuning.hold(&mut parameters, depth)?;
            }
            Numbers::Published => fill.run(&mut parameters)?,
        }
        Ok(Loaded {
            network,
            parameters,
        })
    }

    fn class_count(&self, make: &Make) -> Result<usize> {
        match make.classes {
            Classes::New(classes) if classes > 0 => Ok(classes),
            Classes::New(_) => Err(self.refuse("a network needs at least one class".to_owned())),
            Classes::Published => self.labels().ok_or_else(|| {
                self.refuse(
                    "it was published without a head; say how many classes a new one has"
                        .to_owned(),
                )
            }),
        }
    }

    fn other_than(&self, wanted: &str) -> TrainError {
        self.refuse(format!(
            "a {} does not tell {wanted}; choose another folder",
            self.kind
        ))
    }
}
