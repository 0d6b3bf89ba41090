//! Adds the sums of all ranks up at the end of a step. Every rank gets the same bits.

use super::device_link::DeviceLink;
use super::rounding_errors::RoundingErrors;
use super::{MachineReport, Owners, RunGroup, unreadable_message};
use crate::error::Result;
use crate::gradient_accumulation::BatchSums;
use crate::task::MetricSums;
use candle_core::{DType, Tensor};
use dataset::SampleError;
use distributed::{GroupError, Values};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::Range;
use tape::Parameters;
use tape::device::read;

/// Most values that are copied to the host at once, unless a single parameter has more: 64 MB in
/// f32.
pub(super) const VALUES_AT_ONCE: usize = 1 << 24;

/// The small sums of one rank. Bits, so that a text keeps every value as it is.
#[derive(Serialize, Deserialize)]
struct SmallSums {
    loss: u64,
    weight: u64,
    micro_batches: Vec<u32>,
    checkpoint_blocks: Vec<u32>,
    not_finite: Vec<u32>,
    /// Sum and weight of each metric.
    metrics: BTreeMap<String, (u64, u64)>,
    /// Samples that could not be read: file and reason.
    unreadable: Vec<(std::path::PathBuf, String)>,
    /// What all ranks must have in common: a checksum of the last update. `None` for a rank that
    /// has freed its weights.
    last_update: Option<u64>,
    has_gradients: bool,
    /// Whether the device of this rank is connected with those of the others.
    is_linked: bool,
    /// At rank 0: a checkpoint of the weights before this step exists.
    is_saved: bool,
    /// At rank 0: a checkpoint waits until it has everything that it needs.
    owes_checkpoint: bool,
    report: MachineReport,
}

/// What the ranks have processed together.
pub(crate) struct Exchanged {
    pub(crate) sums: BatchSums,
    /// Samples that a rank could not read.
    pub(crate) unreadable: Vec<SampleError>,
    /// What each rank did, in the order of ranks.
    pub(crate) reports: Vec<MachineReport>,
    /// The weight of the gradients, if they are those of this rank alone.
    pub(crate) own_weight: Option<f64>,
    /// A checkpoint of rank 0 waits until it has everything that it needs.
    pub(crate) owes_checkpoint: bool,
}

/// Which gradients the ranks exchange.
pub(super) enum Gradients<'a> {
    /// All, as they are: between the devices if those of all ranks are connected.
    Exact(&'a mut DeviceLink),
    /// All, in bf16.
    Rounded(&'a mut RoundingErrors),
    /// None: each rank makes a step of its own.
    Own,
}

/// What a rank adds to the exchange of a step.
pub(crate) struct Contribution {
    pub(crate) sums: BatchSums,
    pub(crate) unreadable: Vec<SampleError>,
    /// Whether a checkpoint of the weights before this step exists. That of rank 0 counts.
    pub(crate) is_saved: bool,
    /// Whether a checkpoint waits until it has everything that it needs. That of rank 0 counts.
    pub(crate) owes_checkpoint: bool,
    pub(crate) report: MachineReport,
}

/// Adds the sums of all ranks up, in the order of ranks; the gradients as `gradients` says. A rank
/// that has freed its parameters takes part, and gets no gradients.
///
/// # Errors
/// The group is broken, the device failed, or the ranks have different weights.
pub(super) fn exchange(
    group: &RunGroup,
    parameters: &Parameters,
    layout: &Layout,
    gradients: Gradients,
    mine: Contribution,
) -> Result<Exchanged> {
    let mut gradients = gradients;
    let is_own = matches!(gradients, Gradients::Own);
    let is_suspended = parameters.is_empty();
    let last_update = (!is_suspended).then(|| group.last_update());
    let sums = mine.sums;
    let mine = SmallSums {
        last_update,
        is_linked: gradients.is_linked() && !is_suspended,
        is_saved: mine.is_saved,
        owes_checkpoint: mine.owes_checkpoint,
        ..SmallSums::new(&sums, mine.unreadable, mine.report)
    };
    let mine = serde_json::to_vec(&mine).map_err(unreadable_message)?;
    let mut total = BatchSums::default();
    let (mut unreadable, mut reports) = (Vec::new(), Vec::new());
    let (mut has_gradients, mut owes_checkpoint) = (false, false);
    for (rank, bytes) in group.gather(mine)?.into_iter().enumerate() {
        let mut sums: SmallSums = serde_json::from_slice(&bytes).map_err(unreadable_message)?;
        expect_same_update(group, rank, sums.last_update.zip(last_update))?;
        gradients.agree(group, rank, &sums);
        has_gradients |= sums.has_gradients;
        owes_checkpoint |= rank == 0 && sums.owes_checkpoint;
        let unread = sums.unreadable.iter().cloned();
        unreadable.extend(unread.map(|(file, reason)| SampleError { file, reason }));
        reports.push(std::mem::take(&mut sums.report));
        sums.add_to(&mut total);
    }
    let own_weight = is_own.then_some(sums.weight);
    if has_gradients {
        let weight = total.weight;
        total.gradients = gradients.sum(group, parameters, layout, weight, sums.gradients)?;
    }
    Ok(Exchanged {
        sums: total,
        unreadable,
        reports,
        own_weight,
        owes_checkpoint,
    })
}

impl Gradients<'_> {
    /// Whether the device of this rank is connected with those of the others.
    fn is_linked(&self) -> bool {
        matches!(self, Gradients::Exact(link) if link.is_connected())
    }

    /// Prepares to exchange gradients as `rank` does.
    fn agree(&mut self, group: &RunGroup, rank: usize, sums: &SmallSums) {
        match self {
            Gradients::Exact(link) if link.is_connected() && !sums.is_linked => {
                link.disconnect(&format!("{} has freed its weights", group.member(rank)));
            }
            Gradients::Rounded(errors) if rank == 0 && sums.is_saved => errors.clear(),
            Gradients::Exact(_) | Gradients::Rounded(_) | Gradients::Own => {}
        }
    }

    /// The gradients of all ranks, or those of this rank alone, which are empty if it has processed
    /// nothing. `None` for a rank that has freed its parameters. The sums are later divided by
    /// `weight`.
    fn sum(
        self,
        group: &RunGroup,
        parameters: &Parameters,
        layout: &Layout,
        weight: f64,
        mine: Option<Vec<Tensor>>,
    ) -> Result<Option<Vec<Tensor>>> {
        let errors = match self {
            Gradients::Own => return Ok(Some(mine.unwrap_or_default())),
            Gradients::Exact(link) if link.is_connected() => {
                return link.sum(group, parameters, mine).map(Some);
            }
            Gradients::Exact(_) => None,
            Gradients::Rounded(errors) => Some(errors),
        };
        let mut exchange = Exchange { group, errors };
        exchange.begin(weight);
        if parameters.is_empty() {
            exchange.sum_zeros(layout)?;
            return Ok(None);
        }
        exchange.sum_gradients(parameters, mine).map(Some)
    }
}

/// Fails if another rank and this one have different numbers after the last update.
fn expect_same_update(group: &RunGroup, rank: usize, numbers: Option<(u64, u64)>) -> Result<()> {
    if numbers.is_none_or(|(theirs, mine)| theirs == mine) {
        return Ok(());
    }
    Err(GroupError::Disagreement(format!(
        "the weights of {} and {} differ after the last step; the machines compute differently, so they cannot train together",
        group.member(rank), group.member(group.rank())
    ))
    .into())
}

impl SmallSums {
    fn new(sums: &BatchSums, unreadable: Vec<SampleError>, report: MachineReport) -> Self {
        let metrics = sums.metrics.iter();
        let bits = |(name, (sum, weight)): (&str, (f64, f64))| {
            (name.to_owned(), (sum.to_bits(), weight.to_bits()))
        };
        let unreadable = unreadable.into_iter();
        SmallSums {
            loss: sums.loss.to_bits(),
            weight: sums.weight.to_bits(),
            micro_batches: sums.micro_batches.clone(),
            checkpoint_blocks: sums.checkpoint_blocks.clone(),
            not_finite: sums.not_finite.clone(),
            metrics: metrics.map(bits).collect(),
            unreadable: unreadable.map(|error| (error.file, error.reason)).collect(),
            last_update: None,
            has_gradients: sums.gradients.is_some(),
            is_linked: false,
            is_saved: false,
            owes_checkpoint: false,
            report,
        }
    }

    fn add_to(self, total: &mut BatchSums) {
        total.loss += f64::from_bits(self.loss);
        total.weight += f64::from_bits(self.weight);
        total.micro_batches.extend(self.micro_batches);
        total.checkpoint_blocks.extend(self.checkpoint_blocks);
        total.not_finite.extend(self.not_finite);
        let mut metrics = MetricSums::default();
        for (name, (sum, weight)) in self.metrics {
            metrics.add_to(name, f64::from_bits(sum), f64::from_bits(weight));
        }
        total.metrics.add(&metrics);
    }
}

/// Element types and sizes of all parameters, which a rank remembers while it is suspended.
#[derive(Debug, Clone, Default)]
pub(super) struct Layout(Vec<Size>);

/// Element type and number of values of a parameter.
#[derive(Debug, Clone, Copy)]
struct Size {
    dtype: DType,
    values: usize,
}

impl Layout {
    /// The layout of these parameters.
    pub(super) fn new(parameters: &Parameters) -> Self {
        let parameters = parameters.iter().map(|parameter| &parameter.tensor);
        Layout(parameters.map(Size::from_tensor).collect())
    }

    /// The parameters whose values are added up at once, by position: all of them are in f64, or
    /// none is, and together they have at most [`VALUES_AT_ONCE`] values, unless there is only one.
    fn buckets(&self) -> Vec<Range<usize>> {
        let mut buckets: Vec<Range<usize>> = Vec::new();
        let mut values = 0;
        for (at, size) in self.0.iter().enumerate() {
            let is_alike = |first: &Size| (first.dtype == DType::F64) == (size.dtype == DType::F64);
            let fits = values + size.values <= VALUES_AT_ONCE;
            let last = buckets.last_mut();
            if let Some(bucket) = last.filter(|bucket| fits && is_alike(&self.0[bucket.start])) {
                bucket.end = at + 1;
                values += size.values;
            } else {
                buckets.push(at..at + 1);
                values = size.values;
            }
        }
        buckets
    }
}

impl Size {
    fn from_tensor(tensor: &Tensor) -> Self {
        Size {
            dtype: tensor.dtype(),
            values: tensor.elem_count(),
        }
    }
}

/// The exchange of the gradients of one step.
struct Exchange<'a> {
    group: &'a RunGroup,
    /// If there are any, values are exchanged in bf16.
    errors: Option<&'a mut RoundingErrors>,
}

impl Exchange<'_> {
    fn begin(&mut self, weight: f64) {
        if let Some(errors) = &mut self.errors {
            errors.begin_step(weight);
        }
    }

    fn sum(&mut self, values: Values) -> Result<Values> {
        match (values, &mut self.errors) {
            (Values::Single(values), Some(errors)) => {
                Ok(Values::Single(errors.sum(self.group, values)?))
            }
            (values, _) => self.group.sum(values),
        }
    }

    /// Takes part with zeros, for a rank without parameters. It has no memory for rounding errors.
    fn sum_zeros(&mut self, layout: &Layout) -> Result<()> {
        for range in layout.buckets() {
            let mut bucket = Bucket::new(layout.0[range.start].dtype);
            for size in &layout.0[range] {
                bucket.append_zeros(size.values);
            }
            self.sum(bucket.0)?;
            if let Some(errors) = &mut self.errors {
                errors.clear();
            }
        }
        Ok(())
    }

    /// The gradients of all ranks. A rank without any, because it processed nothing, adds zeros.
    fn sum_gradients(
        &mut self,
        parameters: &Parameters,
        gradients: Option<Vec<Tensor>>,
    ) -> Result<Vec<Tensor>> {
        let mut gradients = gradients.map(Vec::into_iter);
        let mut sums = Vec::with_capacity(parameters.len());
        for range in Layout::new(parameters).buckets() {
            let mut bucket = Bucket::new(parameters.at(range.start).tensor.dtype());
            for index in range.clone() {
                let gradient = gradients.as_mut().and_then(Iterator::next);
                bucket.append(&parameters.at(index).tensor, gradient.as_ref())?;
            }
            let tensors = range.map(|index| &parameters.at(index).tensor);
            let summed = self.sum(bucket.0)?;
            sums.extend(split(&summed, tensors)?);
        }
        Ok(sums)
    }
}

/// Sends the parameters that each rank owns to all others, which replace theirs. To be called by
/// all ranks after each has updated its own parameters.
///
/// # Errors
/// The group is broken, or the device failed.
pub(super) fn spread_parameters(
    group: &RunGroup,
    owners: &Owners,
    parameters: &mut Parameters,
) -> Result<()> {
    for range in Layout::new(parameters).buckets() {
        let mut bucket = Bucket::new(parameters.at(range.start).tensor.dtype());
        for index in range.clone() {
            let tensor = &parameters.at(index).tensor;
            bucket.append(tensor, owners.is_mine(index).then_some(tensor))?;
        }
        let summed = group.sum(bucket.0)?;
        let tensors = range.clone().map(|index| &parameters.at(index).tensor);
        let arrived = split(&summed, tensors)?;
        for (index, tensor) in range.zip(arrived) {
            if !owners.is_mine(index) {
                parameters.set(index, tensor)?;
            }
        }
    }
    Ok(())
}

/// Values of several parameters, one after the other: gradients, or the parameters themselves.
struct Bucket(Values);

impl Bucket {
    /// Sums are kept in f32, or in f64 for parameters in f64.
    fn new(dtype: DType) -> Self {
        Bucket(match dtype {
            DType::F64 => Values::Double(Vec::new()),
            _ => Values::Single(Vec::new()),
        })
    }

    /// Appends the values that this rank has for a parameter, or zeros.
    fn append(&mut self, parameter: &Tensor, mine: Option<&Tensor>) -> Result<()> {
        match (&mut self.0, mine) {
            (Values::Single(values), Some(mine)) => values.extend(read::<f32>(mine)?),
            (Values::Double(values), Some(mine)) => values.extend(read::<f64>(mine)?),
            (_, None) => self.append_zeros(parameter.elem_count()),
        }
        Ok(())
    }

    /// Appends negative zeros, which change no bit of a sum.
    fn append_zeros(&mut self, count: usize) {
        match &mut self.0 {
            Values::Single(values) => values.resize(values.len() + count, -0.0),
            Values::Double(values) => values.resize(values.len() + count, -0.0),
        }
    }
}

/// Summed values as tensors with shape and device of these parameters.
fn split<'a>(summed: &Values, parameters: impl Iterator<Item = &'a Tensor>) -> Result<Vec<Tensor>> {
    let mut first = 0;
    let tensor = |parameter: &Tensor| -> Result<Tensor> {
        let range = first..first + parameter.elem_count();
        first = range.end;
        let (dims, device) = (parameter.dims(), parameter.device());
        Ok(match summed {
            Values::Single(values) => Tensor::from_slice(&values[range], dims, device)?,
            Values::Double(values) => Tensor::from_slice(&values[range], dims, device)?,
        })
    };
    parameters.map(tensor).collect()
}
