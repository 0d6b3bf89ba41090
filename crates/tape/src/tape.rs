//! The tape: values, recorded operations, and the backward pass. The operations themselves are in
//! `ops`.

use crate::cancel::Cancel;
use crate::dry_run;
use crate::error::{Result, TapeError};
use crate::fault_injection;
use crate::gradients::{Gradients, Seed};
use crate::kernels::{KernelGroup, run_on};
use crate::kink_log::KinkCursor;
use crate::parameters::{Frozen, ParameterId, Parameters, Place};
use crate::quantized::Quantized;
use crate::sample_noise::SampleNoise;
use crate::saved_input::{Recompute, SavedInput};
use crate::saved_tensors::SavedTensors;
use candle_core::{DType, Tensor};
use std::cell::RefCell;
use std::ops::Range;
use std::sync::atomic::Ordering;

/// The forms of an operation that a tape may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Kernels {
    /// The kernel of the GPU or the fused one of the CPU if there is one, otherwise the composed
    /// form.
    #[default]
    Fused,
    /// Always the form composed of tensor primitives, which runs on every device.
    Composed,
}

/// A tensor on the tape. A value without an id needs no gradient, and operations on it record
/// nothing.
#[derive(Debug, Clone)]
pub struct Value {
    tensor: Tensor,
    id: Option<usize>,
    recompute: Option<Recompute>,
}

impl Value {
    /// A value that needs no gradient, such as data or a mask.
    pub fn constant(tensor: Tensor) -> Self {
        Value {
            tensor: fault_injection::computed(tensor),
            id: None,
            recompute: None,
        }
    }

    /// The numbers.
    pub fn tensor(&self) -> &Tensor {
        &self.tensor
    }

    /// Sizes by axis.
    pub fn dims(&self) -> &[usize] {
        self.tensor.dims()
    }

    pub(crate) fn id(&self) -> Option<usize> {
        self.id
    }

    /// True if the backward pass computes a gradient of this value.
    pub fn needs_gradient(&self) -> bool {
        self.id.is_some()
    }

    /// The tensor that an operation saves if its backward pass needs this value.
    pub(crate) fn saved_input(&self) -> SavedInput {
        match &self.recompute {
            Some(recompute) => SavedInput::Recomputed(recompute.clone()),
            None => SavedInput::Tensor(self.tensor.clone()),
        }
    }

    /// This value, recomputed by `recompute` instead of being saved.
    pub(crate) fn with_recompute(self, recompute: Recompute) -> Self {
        Value {
            recompute: Some(recompute),
            ..self
        }
    }
}

type Backward = Box<dyn FnOnce(Tensor, &mut Gradients) -> Result<()>>;

struct Node {
    output: usize,
    backward: Backward,
    saved: Vec<usize>,
}

/// The gradients of a backward pass; `None` for a value that took no part.
#[derive(Default)]
pub(crate) struct BackwardOutput {
    /// By position of the parameter.
    pub parameters: Vec<Option<Tensor>>,
    /// In the order of the inputs.
    pub inputs: Vec<Option<Tensor>>,
}

struct Recording {
    nodes: Vec<Node>,
    values: usize,
}

/// Records operations while they run, and then runs backward once.
pub struct Tape<'a> {
    parameters: &'a Parameters,
    recording: Option<RefCell<Recording>>,
    saved_tensors: SavedTensors,
    cancel: Cancel,
    kernels: Kernels,
    /// True in a dry run, which records where this tape's operations begin.
    marks_operations: bool,
    /// Set when kinks are recorded or followed; never in training.
    kinks: Option<KinkCursor>,
    /// Only in training.
    sample_noise: Option<SampleNoise>,
    /// True if adapted maps compute as if they had no adapters.
    is_without_adapters: bool,
}

impl<'a> Tape<'a> {
    /// A tape that records, for training.
    pub fn record(parameters: &'a Parameters, cancel: Cancel, kernels: Kernels) -> Self {
        Tape::record_with_limit(parameters, cancel, kernels, None)
    }

    /// A tape that records until its operations have saved more than `limit_bytes`. The next
    /// operation then fails as on a device without memory: [`TapeError::Memory`].
    pub fn record_with_limit(
        parameters: &'a Parameters,
        cancel: Cancel,
        kernels: Kernels,
        limit_bytes: Option<u64>,
    ) -> Self {
        let saved_tensors = SavedTensors::with_limit(limit_bytes);
        parameters
            .iter()
            .for_each(|p| saved_tensors.exempt(&p.tensor));
        for (_, values) in parameters.frozen() {
            match values {
                Frozen::Whole(tensor) => saved_tensors.exempt(tensor),
                Frozen::Quantized(weight) => weight
                    .parts()
                    .into_iter()
                    .for_each(|t| saved_tensors.exempt(t)),
            }
        }
        Tape::record_sharing(parameters, cancel, kernels, saved_tensors)
    }

    /// A tape that adds to the count of another tape with the same parameters.
    pub(crate) fn record_sharing(
        parameters: &'a Parameters,
        cancel: Cancel,
        kernels: Kernels,
        saved_tensors: SavedTensors,
    ) -> Self {
        let recording = Recording {
            nodes: Vec::new(),
            values: parameters.len(),
        };
        Tape {
            parameters,
            recording: Some(RefCell::new(recording)),
            saved_tensors,
            cancel,
            kernels,
            marks_operations: dry_run::is_active(),
            kinks: None,
            sample_noise: None,
            is_without_adapters: false,
        }
    }

    /// A tape that records nothing, for evaluation and for the first run of a checkpointed block.
    pub fn forward_only(parameters: &'a Parameters, cancel: Cancel, kernels: Kernels) -> Self {
        Tape {
            parameters,
            recording: None,
            saved_tensors: SavedTensors::default(),
            cancel,
            kernels,
            marks_operations: dry_run::is_active(),
            kinks: None,
            sample_noise: None,
            is_without_adapters: false,
        }
    }

    /// This tape for a checkpointed block, whose operations count as one operation of the outer
    /// tape. Adapters are left out as they are there.
    pub(crate) fn inside_checkpoint(self, is_without_adapters: bool) -> Self {
        Tape {
            marks_operations: false,
            is_without_adapters,
            ..self
        }
    }

    /// This tape with adapted maps that compute as if they had no adapters: the network is the
    /// frozen one.
    #[must_use]
    pub fn without_adapters(self) -> Self {
        Tape {
            is_without_adapters: true,
            ..self
        }
    }

    /// Whether adapters are left out.
    pub fn is_without_adapters(&self) -> bool {
        self.is_without_adapters
    }

    /// This tape with a position in a kink log.
    pub(crate) fn with_kinks(self, kinks: Option<KinkCursor>) -> Self {
        Tape { kinks, ..self }
    }

    /// This tape for training on these samples: operations such as [`Tape::sample_dropout`] draw.
    #[must_use]
    pub fn with_sample_noise(self, noise: SampleNoise) -> Self {
        Tape {
            sample_noise: Some(noise),
            ..self
        }
    }

    /// This tape for a range of the samples of `noise`.
    pub(crate) fn with_noise_of(self, noise: Option<&SampleNoise>, samples: &Range<usize>) -> Self {
        Tape {
            sample_noise: noise.map(|noise| noise.for_samples(samples)),
            ..self
        }
    }

    /// The noise of a training micro-batch.
    pub(crate) fn sample_noise(&self) -> Option<&SampleNoise> {
        self.sample_noise.as_ref()
    }

    pub(crate) fn kinks(&self) -> Option<&KinkCursor> {
        self.kinks.as_ref()
    }

    /// A parameter as a value. A frozen one is a constant; a quantized matrix is dequantized.
    /// Callers that can use the codes call [`Tape::quantized`] first.
    pub fn parameter(&self, id: ParameterId) -> Value {
        match self.parameters.place(id) {
            Place::Trained(index) => {
                let tensor = self.parameters.at(index).tensor.clone();
                fault_injection::reads_parameter(&tensor);
                Value {
                    tensor,
                    id: self.recording.is_some().then_some(index),
                    recompute: None,
                }
            }
            Place::Frozen(index) => {
                let whole = self.whole(self.parameters.frozen_at(index));
                Value::constant(whole.expect("codes and scales belong together"))
            }
        }
    }

    fn whole(&self, values: &Frozen) -> Result<Tensor> {
        match values {
            Frozen::Quantized(weight)
                if self.kernels == Kernels::Fused
                    && weight.is_indexable(0)
                    && run_on(KernelGroup::QuantizedLinear, weight.parts()[1]) =>
            {
                weight.device_tile(0, weight.dims()[0], DType::F32)
            }
            values => values.whole(),
        }
    }

    /// The quantized matrix of a parameter, if it is one.
    pub fn quantized(&self, id: ParameterId) -> Option<&'a Quantized> {
        match self.parameters.place(id) {
            Place::Frozen(index) => match self.parameters.frozen_at(index) {
                Frozen::Quantized(weight) => Some(weight),
                Frozen::Whole(_) => None,
            },
            Place::Trained(_) => None,
        }
    }

    /// The half type that operations compute in, if there is one ([`Parameters::set_half`]).
    pub fn half(&self) -> Option<DType> {
        self.parameters.half()
    }

    /// The constant that [`Parameters::set_derived`] keeps for a parameter.
    pub fn derived(&self, id: ParameterId) -> Option<&'a Tensor> {
        self.parameters.derived(id)
    }

    /// True if a parameter whose name begins with `prefix` is trained.
    pub fn trains_under(&self, prefix: &str) -> bool {
        let mut trained = self.parameters.iter();
        trained.any(|parameter| parameter.name.starts_with(prefix))
    }

    /// Makes a value that gets a gradient.
    pub fn variable(&self, tensor: Tensor) -> Value {
        let id = self.recording.as_ref().map(|r| r.borrow_mut().next());
        Value {
            tensor,
            id,
            recompute: None,
        }
    }

    /// Bytes that recorded operations save now.
    pub fn saved_bytes(&self) -> u64 {
        self.saved_tensors.bytes()
    }

    /// Peak bytes that recorded operations have saved.
    pub fn peak_saved_bytes(&self) -> u64 {
        self.saved_tensors.peak_bytes()
    }

    /// The count of saved tensors, readable during and after the backward pass.
    pub fn saved_tensors(&self) -> &SavedTensors {
        &self.saved_tensors
    }

    pub(crate) fn recording(&self) -> bool {
        self.recording.is_some()
    }

    pub(crate) fn parameters(&self) -> &'a Parameters {
        self.parameters
    }

    pub(crate) fn cancel(&self) -> &Cancel {
        &self.cancel
    }

    pub(crate) fn kernels(&self) -> Kernels {
        self.kernels
    }

    /// Begins an operation. Fails if the micro-batch was cancelled or the limit of saved bytes is
    /// exceeded.
    pub(crate) fn poll(&self) -> Result<()> {
        if self.marks_operations {
            dry_run::mark_operation();
        }
        if self.cancel.load(Ordering::Relaxed) {
            return Err(TapeError::Cancelled);
        }
        fault_injection::begin()?;
        self.saved_tensors.check()
    }

    /// True if any of these values needs a gradient; only then does an operation save anything.
    pub(crate) fn records(&self, inputs: &[&Value]) -> bool {
        self.recording.is_some() && inputs.iter().any(|v| v.id.is_some())
    }

    /// Records an operation. `saved` lists all tensors that `backward` holds.
    pub(crate) fn push<F>(&self, output: Tensor, saved: &[&Tensor], backward: F) -> Value
    where
        F: FnOnce(Tensor, &mut Gradients) -> Result<()> + 'static,
    {
        let Some(recording) = &self.recording else {
            return Value::constant(output);
        };
        let mut recording = recording.borrow_mut();
        let saved = saved.iter().map(|t| self.saved_tensors.keep(t)).collect();
        let id = recording.next();
        recording.nodes.push(Node {
            output: id,
            backward: Box::new(backward),
            saved,
        });
        Value {
            tensor: fault_injection::computed(output),
            id: Some(id),
            recompute: None,
        }
    }

    /// Records an operation of one operand, if `x` needs a gradient. `backward` turns the gradient
    /// of the output into a new tensor, the gradient of `x`; `saved` lists the tensors it holds.
    pub(crate) fn unary<F>(
        &self,
        x: &Value,
        y: Tensor,
        saved: &[&Tensor],
        backward: F,
    ) -> Result<Value>
    where
        F: FnOnce(Tensor) -> Result<Tensor> + 'static,
    {
        if !self.records(&[x]) {
            return Ok(Value::constant(y));
        }
        let id = x.id;
        let record = move |dy, sink: &mut Gradients| sink.add_owned(id, backward(dy)?);
        Ok(self.push(y, saved, record))
    }

    /// Runs backward from the roots, each with its gradient, to the parameters and to `inputs`.
    pub(crate) fn backward_from(
        &self,
        roots: Vec<(Value, Tensor)>,
        inputs: &[Value],
    ) -> Result<BackwardOutput> {
        let seeded = roots.into_iter().map(|(root, seed)| (root, seed.into()));
        self.backward_from_seeds(seeded.collect(), inputs)
    }

    /// [`Tape::backward_from`] with gradients that may be written to.
    pub(crate) fn backward_from_seeds(
        &self,
        roots: Vec<(Value, Seed)>,
        inputs: &[Value],
    ) -> Result<BackwardOutput> {
        let Some(recording) = &self.recording else {
            return Ok(BackwardOutput::default());
        };
        let mut gradients =
            Gradients::with_capacity(recording.borrow().values, self.cancel.clone());
        for (root, seed) in roots {
            gradients.add_seed(root.id, seed)?;
        }
        loop {
            let Some(node) = recording.borrow_mut().nodes.pop() else {
                break;
            };
            self.poll()?;
            if let Some(gradient) = gradients.take_for_backward(node.output) {
                (node.backward)(gradient, &mut gradients)?;
            }
            node.saved
                .into_iter()
                .for_each(|key| self.saved_tensors.release(key));
        }
        Ok(BackwardOutput {
            parameters: (0..self.parameters.len())
                .map(|i| gradients.take_owned(i))
                .collect::<Result<_>>()?,
            inputs: inputs
                .iter()
                .map(|v| match v.id {
                    Some(id) => gradients.take_owned(id),
                    None => Ok(None),
                })
                .collect::<Result<_>>()?,
        })
    }

    /// The gradients of the sum of `roots`, by position of the parameter. Consumes the tape and
    /// frees activations on the way. Each root is a scalar with a factor; a loss with several terms
    /// has several roots.
    pub fn backward(self, roots: Vec<(Value, f64)>) -> Result<Vec<Option<Tensor>>> {
        let seeded = roots
            .into_iter()
            .map(|(root, factor)| {
                let seed = Seed::with_constant(&root.tensor, factor)?;
                Ok((root, seed))
            })
            .collect::<Result<Vec<_>>>()?;
        Ok(self.backward_from_seeds(seeded, &[])?.parameters)
    }

    /// The gradient of `root`, weighted by `seed` of the same shape, with respect to `input`, which
    /// is a [`Tape::variable`]; `None` if `root` does not depend on it. Consumes the tape.
    pub fn input_gradient(self, root: Value, seed: Tensor, input: Value) -> Result<Option<Tensor>> {
        let inputs = self.backward_from(vec![(root, seed)], &[input])?.inputs;
        Ok(inputs.into_iter().next().flatten())
    }
}

impl Recording {
    fn next(&mut self) -> usize {
        self.values += 1;
        self.values - 1
    }
}
