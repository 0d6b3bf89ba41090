//! How a language model generates text.

/// How text is generated.
#[derive(Debug, Clone, PartialEq)]
pub struct GenerationOptions {
    /// Most tokens to generate.
    pub tokens: usize,
    /// Logits are divided by it. Below 1, probable tokens become more probable; at 0, the most
    /// probable token is always chosen.
    pub temperature: f64,
    /// Samples from this many of the most probable tokens only; from all if absent.
    pub top_k: Option<usize>,
    /// Samples only from the most probable tokens that together have this probability, in
    /// `0.0..=1.0` (Holtzman et al. 2020, <https://arxiv.org/abs/1904.09751>).
    pub top_p: Option<f64>,
    /// Samples only from tokens that have at least this fraction of the highest probability, in
    /// `0.0..=1.0` (Nguyen et al. 2024, <https://arxiv.org/abs/2407.01082>).
    pub min_p: Option<f64>,
    /// The logits of tokens that the text has already are divided by it if they are positive, and
    /// multiplied by it otherwise; 1 changes nothing (Keskar et al. 2019,
    /// <https://arxiv.org/abs/1909.05858>).
    pub repetition_penalty: f64,
    /// The text ends before the first of these.
    pub stop: Vec<String>,
    /// Seed of the random numbers.
    pub seed: u64,
}

impl Default for GenerationOptions {
    fn default() -> Self {
        GenerationOptions {
            tokens: 200,
            temperature: 1.0,
            top_k: None,
            top_p: None,
            min_p: None,
            repetition_penalty: 1.0,
            stop: Vec::new(),
            seed: 0,
        }
    }
}
