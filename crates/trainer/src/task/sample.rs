//! One sample of any task, as the loop carries it from the feed to the piece.

use super::Sequence;
use dataset::Window;

/// A sample.
#[derive(Debug, Clone, PartialEq)]
pub enum Sample {
    /// A photograph with its class.
    Photograph(dataset::ImageSample),
    /// A text with its class.
    Text(Text),
    /// A window of documents, each token with the one that follows.
    Window(Window),
    /// Tokens to be compressed.
    Sequence(Sequence),
}

/// A text as tokens, at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text {
    /// Its place in the data.
    pub index: u32,
    /// Its class.
    pub label: u32,
    /// Its tokens.
    pub ids: Vec<u32>,
}

impl Sample {
    /// The photographs among samples: all of them in an image task.
    pub(super) fn photographs(samples: &[Sample]) -> Vec<&dataset::ImageSample> {
        let photographs = samples.iter().filter_map(|sample| match sample {
            Sample::Photograph(photograph) => Some(photograph),
            Sample::Text(_) | Sample::Window(_) | Sample::Sequence(_) => None,
        });
        photographs.collect()
    }

    /// The texts among samples: all of them in a text task.
    pub(super) fn texts(samples: &[Sample]) -> Vec<&Text> {
        let texts = samples.iter().filter_map(|sample| match sample {
            Sample::Text(text) => Some(text),
            Sample::Photograph(_) | Sample::Window(_) | Sample::Sequence(_) => None,
        });
        texts.collect()
    }

    /// The windows among samples: all of them for a language model.
    pub(super) fn windows(samples: &[Sample]) -> Vec<&Window> {
        let windows = samples.iter().filter_map(|sample| match sample {
            Sample::Window(window) => Some(window),
            Sample::Photograph(_) | Sample::Text(_) | Sample::Sequence(_) => None,
        });
        windows.collect()
    }

    /// The sequences among samples: all of them in a token compression.
    pub(super) fn sequences(samples: &[Sample]) -> Vec<&Sequence> {
        let sequences = samples.iter().filter_map(|sample| match sample {
            Sample::Sequence(sequence) => Some(sequence),
            Sample::Photograph(_) | Sample::Text(_) | Sample::Window(_) => None,
        });
        sequences.collect()
    }
}
