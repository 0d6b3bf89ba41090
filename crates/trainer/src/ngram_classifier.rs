//! A text classifier without a network, trained in seconds: a linear softmax over hashed n-grams of
//! words and characters. It is the baseline of a trained network, and can be exported and used
//! instead. The weights start as the log-count ratios of naive Bayes (Wang and Manning 2012).

mod fit;
mod model_file;
mod hashed_ngrams;

pub(crate) use fit::{FitOptions, fit};

use hashed_ngrams::{Ngrams, normalized};

/// What the model is called in the events and in the window.
pub(crate) const NAME: &str = "word and character n-grams";

/// The Python file of an exported baseline.
pub(crate) const PYTHON_FILE: &str = "ngram_baseline.py";
/// What it contains. It computes the same features and scores as this module.
pub(crate) const PYTHON_SOURCE: &str = include_str!("ngram_classifier/ngram_baseline.py");

/// A trained baseline.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NgramModel {
    /// Class names in label order.
    pub classes: Vec<String>,
    /// Hashes of the n-grams that it knows, in ascending order.
    hashes: Vec<u32>,
    /// A row per n-gram: [n-grams, classes].
    weights: Vec<f32>,
    /// [classes].
    bias: Vec<f32>,
}

impl NgramModel {
    /// The score of each class: the logarithm of its probability, plus a constant.
    pub fn scores(&self, text: &str) -> Vec<f64> {
        let row = |hash: u32| self.hashes.binary_search(&hash).ok().map(|row| row as u32);
        let features = normalized(&Ngrams::from_text(text), row);
        let mut scores: Vec<f64> = self.bias.iter().map(|bias| f64::from(*bias)).collect();
        let classes = scores.len();
        for (row, value) in features {
            let weights = &self.weights[row as usize * classes..][..classes];
            for (score, weight) in scores.iter_mut().zip(weights) {
                *score += f64::from(value) * f64::from(*weight);
            }
        }
        scores
    }
}
