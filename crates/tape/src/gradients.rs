//! The gradients of a backward pass. The first gradient of a value is moved in. Later ones are
//! added, in place if nothing else holds the memory. Adding a gradient fails if the micro-batch was
//! cancelled.

use crate::cancel::Cancel;
use crate::error::{Result, TapeError};
use crate::fault_injection;
use crate::inplace::add_assign;
use crate::kernels::copies::copy;
use candle_core::{DType, Tensor};
use std::sync::atomic::Ordering;

/// Gradients by value.
#[derive(Debug, Default)]
pub struct Gradients {
    slots: Vec<Option<Slot>>,
    cancel: Cancel,
    /// True if nothing else holds the gradient that was given to the current operation.
    current_is_owned: bool,
    /// The value of each element of that gradient, if the host knows it.
    current_constant: Option<f64>,
}

#[derive(Debug)]
struct Slot {
    tensor: Tensor,
    owned: bool,
    /// The value of each element, if the host knows it.
    constant: Option<f64>,
}

/// The gradient of a root, with which a backward pass begins.
pub(crate) struct Seed {
    tensor: Tensor,
    /// The value of each element, if the host knows it.
    constant: Option<f64>,
    /// True if nothing else holds its memory.
    owned: bool,
}

impl Seed {
    /// `tensor`, which may be written to if `owned`: nothing else holds its memory.
    pub(crate) fn new(tensor: Tensor, owned: bool) -> Self {
        Seed {
            tensor,
            constant: None,
            owned,
        }
    }

    /// `value` for each element of a tensor like `root`.
    pub(crate) fn with_constant(root: &Tensor, value: f64) -> Result<Self> {
        Ok(Seed {
            tensor: (root.ones_like()? * value)?,
            // Rounded as the device rounds it.
            constant: match root.dtype() {
                DType::F64 => Some(value),
                DType::F32 => Some(f64::from(value as f32)),
                _ => None,
            },
            owned: false,
        })
    }
}

impl From<Tensor> for Seed {
    fn from(tensor: Tensor) -> Self {
        Seed::new(tensor, false)
    }
}

impl Gradients {
    pub(crate) fn with_capacity(values: usize, cancel: Cancel) -> Self {
        Gradients {
            slots: (0..values).map(|_| None).collect(),
            cancel,
            current_is_owned: false,
            current_constant: None,
        }
    }

    /// Adds the gradient of a root. It is never written to, unless nothing else holds it.
    pub(crate) fn add_seed(&mut self, id: Option<usize>, seed: Seed) -> Result<()> {
        let Some(index) = id else {
            return self.add_shared(None, seed.tensor);
        };
        let is_first = self.slots[index].is_none();
        self.add(id, seed.tensor, seed.owned)?;
        if let Some(slot) = &mut self.slots[index] {
            slot.constant = seed.constant.filter(|_| is_first);
        }
        Ok(())
    }

    /// The flag that cancels the backward pass, for operations that check it while they work.
    pub(crate) fn cancel(&self) -> &Cancel {
        &self.cancel
    }

    /// Adds a gradient whose memory nothing else holds.
    pub(crate) fn add_owned(&mut self, id: Option<usize>, gradient: Tensor) -> Result<()> {
        self.add(id, gradient, true)
    }

    /// Adds a gradient that another value may also hold. It is never written to.
    pub(crate) fn add_shared(&mut self, id: Option<usize>, gradient: Tensor) -> Result<()> {
        self.add(id, gradient, false)
    }

    /// The gradient so far, if no one else shares its memory: the caller may add to it in place.
    pub(crate) fn accumulator(&self, id: Option<usize>) -> Option<&Tensor> {
        let slot = self.slots[id?].as_ref()?;
        slot.owned.then_some(&slot.tensor)
    }

    /// Takes the gradient so far. The caller adds it to another in its own pass and gives the sum
    /// back.
    pub(crate) fn take_to_add(&mut self, id: Option<usize>) -> Option<Tensor> {
        self.take(id?)
    }

    fn add(&mut self, id: Option<usize>, gradient: Tensor, owned: bool) -> Result<()> {
        if self.cancel.load(Ordering::Relaxed) {
            return Err(TapeError::Cancelled);
        }
        let Some(id) = id else { return Ok(()) };
        let gradient = fault_injection::computed(gradient);
        let slot = &mut self.slots[id];
        match slot {
            None => {
                *slot = Some(Slot {
                    tensor: gradient,
                    owned,
                    constant: None,
                })
            }
            Some(held) if held.owned => {
                held.constant = None;
                add_assign(&mut held.tensor, &gradient)?;
            }
            Some(_) if owned => {
                let mut sum = gradient;
                if let Some(held) = slot.take() {
                    add_assign(&mut sum, &held.tensor)?;
                }
                *slot = Some(Slot {
                    tensor: sum,
                    owned: true,
                    constant: None,
                });
            }
            Some(held) => {
                let tensor = (&held.tensor + gradient.to_dtype(held.tensor.dtype())?)?;
                *held = Slot {
                    tensor,
                    owned: true,
                    constant: None,
                };
            }
        }
        Ok(())
    }

    /// The gradient of a value in memory of its own, which the caller may write to.
    pub(crate) fn take_owned(&mut self, id: usize) -> Result<Option<Tensor>> {
        Ok(match self.slots[id].take() {
            Some(slot) if !slot.owned => Some(copy(&slot.tensor)?),
            slot => slot.map(|slot| slot.tensor),
        })
    }

    /// The gradient of an operation's output, for the backward pass of that operation.
    pub(crate) fn take_for_backward(&mut self, id: usize) -> Option<Tensor> {
        let slot = self.slots[id].take()?;
        self.current_is_owned = slot.owned;
        self.current_constant = slot.constant;
        Some(slot.tensor)
    }

    /// The value of each element of the gradient of the current operation's output, if the host
    /// knows it: then no operation has to read it from the device, which would wait for it.
    pub(crate) fn current_constant(&self) -> Option<f64> {
        self.current_constant
    }

    /// True if the current operation may write to the gradient of its output.
    pub(crate) fn current_is_owned(&self) -> bool {
        self.current_is_owned
    }

    fn take(&mut self, id: usize) -> Option<Tensor> {
        self.slots[id].take().map(|slot| slot.tensor)
    }
}
