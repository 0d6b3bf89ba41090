//! Activation checkpointing: a block runs forward without recording, and runs again, recorded, when
//! its gradient is needed.

use crate::cancel::Cancel;
use crate::deferred_block_output::{DeferredOutput, RowFunction};
use crate::error::Result;
use crate::gradients::{Gradients, Seed};
use crate::kernels::copies::{contiguous, joined};
use crate::kink_log::KinkCursor;
use crate::ops::shape_only;
use crate::parameters::Parameters;
use crate::sample_noise::SampleNoise;
use crate::saved_tensors::SavedTensors;
use crate::tape::{Kernels, Tape, Value};
use candle_core::Tensor;
use std::ops::Range;

/// Samples per chunk of a checkpointed block on the CPU: enough for matrix products at full speed.
const PART: usize = 8;
/// Elements of a checkpointed block's input per chunk on a GPU. Its products need more rows, but
/// one sample may have many.
const DEVICE_PART: usize = 1 << 21;
/// Rows per chunk of a function of single rows: enough for matrix products at full speed, also if
/// each chunk decodes quantized weights again.
const ROWS: usize = 2048;

/// Samples per chunk, if each sample of `x` takes `values` elements or its own size, whichever is
/// larger. It depends on the size of one sample only, so the chunks are the same for every
/// micro-batch.
fn part(x: &Tensor, values: usize) -> usize {
    let samples = x.dims().first().copied().unwrap_or(0).max(1);
    if x.device().is_cpu() {
        PART
    } else {
        (DEVICE_PART / (x.elem_count() / samples).max(values).max(1)).max(1)
    }
}

impl Tape<'_> {
    /// Runs `block` on `x` and saves only `x`. The backward pass runs the block once more.
    ///
    /// Saved: `x` (shared with the operation that made it). Time: one more forward pass of the
    /// block. `block` must be a function of its input and the parameters alone, so that the second
    /// run repeats the first. If it returns a deferred operation, the second run does not compute
    /// it.
    pub fn checkpoint<F, E>(&self, x: &Value, block: F) -> Result<Value>
    where
        F: Fn(&Tape, &Value) -> Result<E> + 'static,
        E: Into<DeferredOutput>,
    {
        self.checkpoint_parts(x, usize::MAX, move |tape, x, _| block(tape, x))
    }

    /// [`Tape::checkpoint`] for a block that treats each sample of `x` [samples, ..] separately.
    /// Both runs work on a few samples at a time, so the memory inside the block does not grow with
    /// the micro-batch. `block` receives the range of its samples.
    pub fn checkpoint_samples<F, E>(&self, x: &Value, block: F) -> Result<Value>
    where
        F: Fn(&Tape, &Value, Range<usize>) -> Result<E> + 'static,
        E: Into<DeferredOutput>,
    {
        self.checkpoint_samples_of(x, 0, block)
    }

    /// [`Tape::checkpoint_samples`] for a block whose intermediate tensors take `values` elements
    /// per sample. On a GPU this lowers the number of samples per chunk.
    pub fn checkpoint_samples_of<F, E>(&self, x: &Value, values: usize, block: F) -> Result<Value>
    where
        F: Fn(&Tape, &Value, Range<usize>) -> Result<E> + 'static,
        E: Into<DeferredOutput>,
    {
        self.checkpoint_parts(x, part(x.tensor(), values), block)
    }

    fn checkpoint_parts<F, E>(&self, x: &Value, size: usize, block: F) -> Result<Value>
    where
        F: Fn(&Tape, &Value, Range<usize>) -> Result<E> + 'static,
        E: Into<DeferredOutput>,
    {
        self.poll()?;
        // The position before the block: the second run begins there, too.
        let kinks = self.kinks().cloned();
        let y = self.forward_in_parts(x.tensor(), size, &block)?;
        if !self.recording() {
            return Ok(Value::constant(y));
        }
        let again = self.again(x, kinks);
        let input = x.tensor().clone();
        Ok(self.push(y, &[x.tensor()], move |gradient, sink| {
            match again.backward_in_parts(&input, gradient, size, &block, sink)? {
                None => Ok(()),
                Some(whole) => sink.add_owned(again.id, whole),
            }
        }))
    }

    /// A function of single rows of its input [.., width], some rows at a time. On a recording tape
    /// it is checkpointed: only its input is saved.
    pub(crate) fn by_rows(&self, function: &RowFunction) -> Result<Value> {
        self.poll()?;
        let x = function.x.tensor();
        let part = |tape: &Tape, x: &Value, _| (function.part)(tape, x);
        let y = self.forward_in_parts(&rows_of(x)?, ROWS, &part)?;
        let y = y.reshape(x.dims())?;
        self.record_by_rows(function, y)
    }

    /// [`Tape::by_rows`] that is only recorded: its result has a shape, but no meaningful values.
    pub(crate) fn by_rows_shape_only(&self, function: &RowFunction) -> Result<Value> {
        let x = function.x.tensor();
        self.record_by_rows(function, shape_only(x, x.dims())?)
    }

    fn record_by_rows(&self, function: &RowFunction, y: Tensor) -> Result<Value> {
        if !self.recording() {
            return Ok(Value::constant(y));
        }
        let again = self.again(&function.x, self.kinks().cloned());
        let (input, part) = (function.x.tensor().clone(), function.part.clone());
        Ok(self.push(y, &[function.x.tensor()], move |gradient, sink| {
            let part = |tape: &Tape, x: &Value, _| part(tape, x);
            let rows = (rows_of(&input)?, rows_of(&contiguous(&gradient)?)?);
            // Otherwise it would be in memory until the end.
            drop(gradient);
            let (x, gradient) = rows;
            match again.backward_in_parts(&x, gradient, ROWS, &part, sink)? {
                None => Ok(()),
                Some(whole) => sink.add_owned(again.id, whole.reshape(input.dims())?),
            }
        }))
    }

    /// The first run of a block, chunk by chunk.
    fn forward_in_parts<E: Into<DeferredOutput>>(
        &self,
        x: &Tensor,
        size: usize,
        block: &impl Fn(&Tape, &Value, Range<usize>) -> Result<E>,
    ) -> Result<Tensor> {
        let chunks = chunks(x, size, self.kinks())?.into_iter();
        let outputs = chunks.map(|chunk| self.chunk_forward(chunk, block));
        join(outputs.collect::<Result<_>>()?)
    }

    /// What the second run of a block on `x` needs. `kinks` is the position before the block.
    fn again(&self, x: &Value, kinks: Option<KinkCursor>) -> Again {
        Again {
            parameters: self.parameters().clone(),
            cancel: self.cancel().clone(),
            kernels: self.kernels(),
            saved_tensors: self.saved_tensors().clone(),
            id: x.id(),
            kinks,
            noise: self.sample_noise().cloned(),
            is_without_adapters: self.is_without_adapters(),
        }
    }

    /// The first run of a chunk: computes its output and records nothing.
    fn chunk_forward<E: Into<DeferredOutput>>(
        &self,
        chunk: Chunk,
        block: &impl Fn(&Tape, &Value, Range<usize>) -> Result<E>,
    ) -> Result<Tensor> {
        let tape = Tape::forward_only(self.parameters(), self.cancel().clone(), self.kernels());
        let tape = tape
            .inside_checkpoint(self.is_without_adapters())
            .with_kinks(chunk.kinks)
            .with_noise_of(self.sample_noise(), &chunk.samples);
        let x = Value::constant(chunk.input);
        let output: DeferredOutput = block(&tape, &x, chunk.samples)?.into();
        let y = output.finish(&tape)?;
        if let (Some(kinks), Some(inner)) = (self.kinks(), tape.kinks()) {
            kinks.advance_to(inner);
        }
        Ok(y.tensor().clone())
    }
}

/// The samples that a block works on at a time, and its position in a kink log.
struct Chunk {
    samples: Range<usize>,
    input: Tensor,
    kinks: Option<KinkCursor>,
}

/// The chunks of `x`, with their positions in the kink log after `kinks`.
fn chunks(x: &Tensor, size: usize, kinks: Option<&KinkCursor>) -> Result<Vec<Chunk>> {
    let all = x.dims().first().copied().unwrap_or(0);
    let chunk = |(samples, input)| Chunk {
        kinks: kinks.map(|kinks| kinks.within(&samples, all)),
        samples,
        input,
    };
    Ok(parts(x, size)?.into_iter().map(chunk).collect())
}

/// Chunks of at most `size` samples as views of `x`, each with the range of its samples.
fn parts(x: &Tensor, size: usize) -> Result<Vec<(Range<usize>, Tensor)>> {
    let samples = x.dims().first().copied().unwrap_or(0);
    if samples <= size {
        return Ok(vec![(0..samples, x.clone())]);
    }
    (0..samples)
        .step_by(size)
        .map(|from| {
            let count = size.min(samples - from);
            Ok((from..from + count, x.narrow(0, from, count)?))
        })
        .collect()
}

/// The gradient of the whole input. Each chunk's gradient is copied into it at once, so that the
/// whole never exists twice.
struct Whole {
    dims: Vec<usize>,
    /// The output's gradient, if it may be overwritten: each chunk of it has been read by the time
    /// the input's chunk is written.
    over: Option<Tensor>,
    joined: Option<Tensor>,
}

impl Whole {
    fn put(&mut self, part: Tensor, from: usize) -> Result<()> {
        if part.dims() == self.dims {
            self.joined = Some(part);
            return Ok(());
        }
        let joined = match self.joined.take() {
            Some(joined) => joined,
            None => self.place(&part)?,
        };
        joined.slice_set(&contiguous(&part)?, 0, from)?;
        self.joined = Some(joined);
        Ok(())
    }

    fn place(&mut self, part: &Tensor) -> Result<Tensor> {
        let fits = |over: &Tensor| over.dims() == self.dims && over.dtype() == part.dtype();
        match self.over.take().filter(fits) {
            Some(over) => Ok(over),
            None => Ok(Tensor::zeros(&*self.dims, part.dtype(), part.device())?),
        }
    }
}

/// `x` [.., width] as [rows, width].
fn rows_of(x: &Tensor) -> Result<Tensor> {
    let width = x.dims().last().copied().unwrap_or(1).max(1);
    Ok(x.reshape((x.elem_count() / width, width))?)
}

fn join(parts: Vec<Tensor>) -> Result<Tensor> {
    joined(&parts.iter().collect::<Vec<_>>(), 0)
}

/// The inputs of the second run.
struct Again {
    parameters: Parameters,
    cancel: Cancel,
    kernels: Kernels,
    /// The second run counts its saved tensors together with those of the outer tape.
    saved_tensors: SavedTensors,
    /// The id of the input, if it needs a gradient.
    id: Option<usize>,
    /// The position before the block.
    kinks: Option<KinkCursor>,
    /// The noise of all samples: the second run draws the same numbers.
    noise: Option<SampleNoise>,
    is_without_adapters: bool,
}

impl Again {
    /// Runs `block` again, chunk by chunk, and returns the gradient of the whole input. `output` is
    /// that of the output. A single chunk may overwrite it.
    fn backward_in_parts<E: Into<DeferredOutput>>(
        &self,
        input: &Tensor,
        output: Tensor,
        size: usize,
        block: &impl Fn(&Tape, &Value, Range<usize>) -> Result<E>,
        sink: &mut Gradients,
    ) -> Result<Option<Tensor>> {
        let own = sink.current_is_owned() || !output.is_contiguous();
        let gradient = contiguous(&output)?;
        drop(output);
        let mut chunks = chunks(input, size, self.kinks.as_ref())?;
        if let Some(chunk) = chunks.pop_if(|chunk| chunk.input.dims() == input.dims()) {
            return self.backward(chunk, Seed::new(gradient, own), block, sink);
        }
        let mut whole = Whole {
            dims: input.dims().to_vec(),
            over: own.then(|| gradient.clone()),
            joined: None,
        };
        for (chunk, (_, seed)) in chunks.into_iter().zip(parts(&gradient, size)?) {
            let begin = chunk.samples.start;
            if let Some(found) = self.backward(chunk, seed.into(), block, sink)? {
                whole.put(found, begin)?;
            }
        }
        Ok(whole.joined)
    }

    /// Runs `block` recorded and then backward. Adds the parameters' gradients to `sink` and
    /// returns the input's.
    fn backward<E: Into<DeferredOutput>>(
        &self,
        chunk: Chunk,
        gradient: Seed,
        block: &impl Fn(&Tape, &Value, Range<usize>) -> Result<E>,
        sink: &mut Gradients,
    ) -> Result<Option<Tensor>> {
        let tape = Tape::record_sharing(
            &self.parameters,
            self.cancel.clone(),
            self.kernels,
            self.saved_tensors.clone(),
        )
        .inside_checkpoint(self.is_without_adapters)
        .with_kinks(chunk.kinks.map(KinkCursor::recomputing))
        .with_noise_of(self.noise.as_ref(), &chunk.samples);
        // An input without a gradient gets none in the second run either.
        let x = match self.id {
            Some(_) => tape.variable(chunk.input),
            None => Value::constant(chunk.input),
        };
        let output: DeferredOutput = block(&tape, &x, chunk.samples)?.into();
        let y = output.record(&tape)?;
        drop(output);
        let found = tape.backward_from_seeds(vec![(y, gradient)], &[x])?;
        for (index, gradient) in found.parameters.into_iter().enumerate() {
            if let Some(gradient) = gradient {
                sink.add_owned(Some(index), gradient)?;
            }
        }
        Ok(found.inputs.into_iter().flatten().next())
    }
}
