//! Which models and resolutions the table has: the smallest first. Refuses to know what they need.

use super::Plan;
use dataset::Task;
use trainer::forecast::IMAGE_SIZES;
use trainer::{ModelId, TextModel, TextSize, model_task};

/// Models and image sizes of the table: the one to be trained among them.
pub(super) fn listed(args: &Plan, plan: &trainer::Plan) -> Vec<(ModelId, u32)> {
    if plan.pretrained.is_some() {
        return vec![(plan.model, plan.input_size)];
    }
    if let Some(model) = plan.text_model() {
        let mut sizes: Vec<TextSize> = TextSize::for_task(model_task(plan.task())).collect();
        sizes.retain(|size| args.trained.model.is_none() || *size == model.size);
        sizes.sort_unstable();
        let sized = sizes.into_iter();
        let sized = sized.map(|size| ModelId::Text(TextModel { size, ..model }));
        return sized.map(|model| (model, plan.input_size)).collect();
    }
    let models = match args.trained.model {
        Some(_) => vec![plan.model],
        None => ModelId::SMALL.to_vec(),
    };
    let mut sizes: Vec<u32> = match args.trained.image_size {
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

/// Networks that the table leaves out because they are large, where none was named.
pub(super) fn others(args: &Plan, plan: &trainer::Plan) -> Vec<&'static str> {
    if args.trained.model.is_some()
        || plan.pretrained.is_some()
        || plan.task() != Task::ImageClassification
    {
        return Vec::new();
    }
    let large = ModelId::image_models().filter(|model| !ModelId::SMALL.contains(model));
    large.map(ModelId::name).collect()
}

/// What resolutions are counted in.
pub(super) fn unit(task: Task) -> &'static str {
    match task {
        Task::ImageClassification => "px",
        _ => "tokens",
    }
}
