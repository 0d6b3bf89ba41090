//! Whether a config describes a network of about as many numbers as there are weights beside it: asked before room is made.

use super::{Architecture, PublishedFolder};
use crate::error::Result;
use crate::models::SequenceShape;

impl PublishedFolder {
    /// Refuses a config that describes a network out of all proportion to the weights, before room is made for it.
    pub(super) fn expect_plausible(&self) -> Result<()> {
        let blocks = |depth: usize, width: usize, hidden: usize| {
            depth as f64 * width as f64 * (4.0 * width as f64 + 2.0 * hidden as f64)
        };
        let texts = |shape: &SequenceShape, hidden: usize| {
            (shape.vocabulary as f64 + shape.tokens as f64) * shape.width as f64
                + blocks(shape.depth, shape.width, hidden)
        };
        let described = match &self.architecture {
            Architecture::Bert(bert) => {
                texts(&bert.shape, bert.style.block.hidden)
                    + bert.style.kinds as f64 * bert.shape.width as f64
            }
            Architecture::Gpt2(gpt) => texts(&gpt.shape, gpt.block.hidden),
            Architecture::Vit(vit) => {
                let (image, patch, width) = (vit.shape.image, vit.shape.patch, vit.shape.width);
                let places = (image / patch) as f64 * (image / patch) as f64;
                (places + 3.0 * patch as f64 * patch as f64) * width as f64
                    + blocks(vit.shape.depth, width, vit.style.block.hidden)
            }
            Architecture::ResNet(resnet) => {
                let blocks = resnet.shape.blocks.iter();
                blocks.map(|(width, _)| *width as f64 * *width as f64).sum()
            }
        };
        let held = self.numbers();
        if described > 16.0 * held as f64 + 1e8 {
            return Err(self.config.refuse(format!(
                "it describes a network of about {described:.0} numbers, and the weights beside it are {held}; download the folder again"
            )));
        }
        Ok(())
    }
}
