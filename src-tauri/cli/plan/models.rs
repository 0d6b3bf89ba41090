//! The models and resolutions of the table, smallest first.

use super::{Plan, lengths};
use dataset::Task;
use trainer::estimate::IMAGE_SIZES;
use trainer::{ModelId, TextModel, TextSize, model_task};

/// Models and resolutions of the table, including those that the user plans to train.
pub(super) fn listed(args: &Plan, plan: &trainer::Plan) -> Vec<(ModelId, u32)> {
    if plan.pretrained.is_some() {
        let lengths = lengths::listed(&args.settings.config, plan).into_iter();
        return lengths.map(|tokens| (plan.model, tokens)).collect();
    }
    if let Some(model) = plan.text_model() {
        let mut sizes: Vec<TextSize> = TextSize::for_task(model_task(plan.task())).collect();
        sizes.retain(|size| args.settings.config.model.is_none() || *size == model.size);
        sizes.sort_unstable();
        let sized = sizes.into_iter();
        let sized = sized.map(|size| ModelId::Text(TextModel { size, ..model }));
        return sized.map(|model| (model, plan.input_size)).collect();
    }
    let models = match args.settings.config.model {
        Some(_) => vec![plan.model],
        None => ModelId::SMALL.to_vec(),
    };
    let mut sizes: Vec<u32> = match args.settings.config.image_size {
        Some(_) => Vec::new(),
        None => IMAGE_SIZES.to_vec(),
    };
    sizes.push(plan.input_size);
    sizes.sort_unstable();
    sizes.dedup();
    let fits = |model: ModelId, side: u32| side.is_multiple_of(model.input_multiple());
    let pairs = models
        .into_iter()
        .flat_map(|model| sizes.iter().map(move |&side| (model, side)));
    pairs.filter(|&(model, side)| fits(model, side)).collect()
}

/// Networks that the table leaves out because they are large; none if the user named a network.
pub(super) fn large_models(args: &Plan, plan: &trainer::Plan) -> Vec<&'static str> {
    if args.settings.config.model.is_some()
        || plan.pretrained.is_some()
        || plan.task() != Task::ImageClassification
    {
        return Vec::new();
    }
    let large = ModelId::image_models().filter(|model| !ModelId::SMALL.contains(model));
    large.map(ModelId::name).collect()
}
