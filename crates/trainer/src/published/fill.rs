//! Fills parameters with published numbers by a table. Whatever does not fit is gathered first: nothing is filled, and the
//! error names all of it. Refuses to know architectures.

use super::names::{Named, Table, Take};
use super::tensors::Tensors;
use super::tuning::{Depth, Tuning};
use crate::error::{Result, TrainError};
use candle_core::Tensor;
use std::collections::{BTreeMap, BTreeSet};
use tape::{ParameterId, Parameters};

/// The four tensors of a published BatchNorm.
const NORM: [&str; 4] = ["weight", "bias", "running_mean", "running_var"];

/// Where the classes' map comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Head {
    /// It was published with the body.
    Published,
    /// It is new; one that was published is not looked at.
    New,
}

/// What is filled in, and how it is held.
pub(super) struct Fill<'a> {
    /// The published numbers.
    pub tensors: &'a Tensors,
    /// Where they belong.
    pub table: &'a Table,
    /// Where the classes' map comes from.
    pub head: Head,
    /// What BatchNorm adds to a variance, where there is one.
    pub epsilon: f64,
    /// How frozen matrices are held.
    pub hold: (Tuning, Depth),
}

impl Fill<'_> {
    /// Which published tensors fill which of `parameters`.
    ///
    /// # Errors
    /// Tensors are missing, misshaped or not known; all of them are named, and none was read.
    pub fn check(&self, parameters: &Parameters) -> Result<Rows> {
        let (rows, complaints) = matched(parameters, self.tensors, self.table, self.head)?;
        match complaints.is_empty() {
            true => Ok(rows),
            false => Err(TrainError::WeightsMisfit {
                folder: self.tensors.folder().to_owned(),
                complaints,
            }),
        }
    }

    /// Fills `parameters`, trained and frozen ones; of those that are held in bits never more than one is there in full.
    pub fn run(self, parameters: &mut Parameters) -> Result<()> {
        let rows = self.check(parameters)?;
        let Fill {
            tensors,
            epsilon,
            hold: (tuning, depth),
            ..
        } = self;
        for (id, rows) in rows {
            let like = parameters.whole(id)?;
            let mut values = vec![0.0; like.elem_count()];
            for (name, take) in rows {
                match take {
                    Take::FrozenScale | Take::FrozenShift => {
                        frozen(tensors, &name, take, epsilon, &mut values)?
                    }
                    take => take.read(&tensors.read(&name)?, like.dims(), &mut values),
                }
            }
            let tensor = Tensor::from_vec(values, like.dims(), like.device())?;
            parameters.put(id, tensor.to_dtype(like.dtype())?)?;
            if let Some(bits) = tuning.bits_of(parameters, id, like.dims().len(), depth) {
                parameters.quantize(id, bits)?;
            }
        }
        Ok(())
    }
}

/// The published names and what is taken of them by the parameter that they fill.
type Rows = BTreeMap<ParameterId, Vec<(String, Take)>>;

fn matched(
    parameters: &Parameters,
    tensors: &Tensors,
    table: &Table,
    head: Head,
) -> Result<(Rows, Vec<String>)> {
    let prefixed = tensors.names().any(|name| name.starts_with(table.prefix));
    let prefix = if prefixed { table.prefix } else { "" };
    let body = table.body.iter().map(|row| (row, prefix, true));
    let head = table
        .head
        .iter()
        .map(|row| (row, "", head == Head::Published));
    let (mut rows, mut complaints) = (Rows::new(), BTreeSet::new());
    let mut known = BTreeSet::new();
    let by_name: BTreeMap<&str, ParameterId> = parameters
        .ids()
        .map(|id| (parameters.name(id), id))
        .collect();
    for (row, prefix, wanted) in body.chain(head) {
        let name = format!("{prefix}{}", row.published);
        let parts = parts(&name, row);
        known.extend(parts.iter().cloned());
        if !wanted {
            continue;
        }
        let Some(&id) = by_name.get(&*row.ours) else {
            complaints.insert(format!("{name} has no place in Ebb's network"));
            continue;
        };
        let expected = row.take.published_shape(parameters.whole(id)?.dims());
        for part in &parts {
            match tensors.shape(part) {
                None => complaints.insert(format!("{part} {expected:?} is missing")),
                Some(found) if found != expected => {
                    complaints.insert(format!("{part} is {found:?} and must be {expected:?}"))
                }
                Some(_) => false,
            };
        }
        if row.take != Take::Unseen {
            rows.entry(id).or_default().push((name, row.take));
        }
    }
    for name in tensors.names().filter(|name| !known.contains(*name)) {
        let bare = name.strip_prefix(prefix).unwrap_or(name);
        if !table.is_unneeded(bare) && !table.is_unneeded(name) {
            complaints.insert(format!("{name} is not known"));
        }
    }
    Ok((rows, complaints.into_iter().collect()))
}

/// The tensors that a row reads.
fn parts(name: &str, row: &Named) -> Vec<String> {
    match row.take {
        Take::FrozenScale | Take::FrozenShift => {
            NORM.iter().map(|part| format!("{name}.{part}")).collect()
        }
        _ => vec![name.to_owned()],
    }
}

/// A published BatchNorm as one factor or one term a channel.
fn frozen(
    tensors: &Tensors,
    name: &str,
    take: Take,
    epsilon: f64,
    values: &mut [f32],
) -> Result<()> {
    let mut read = Vec::with_capacity(NORM.len());
    for part in NORM {
        read.push(tensors.read(&format!("{name}.{part}"))?);
    }
    for (channel, value) in values.iter_mut().enumerate() {
        let [weight, bias, mean, variance] =
            [0, 1, 2, 3].map(|part: usize| f64::from(read[part][channel]));
        let scale = weight / (variance + epsilon).sqrt();
        *value = match take {
            Take::FrozenScale => scale as f32,
            _ => (bias - mean * scale) as f32,
        };
    }
    Ok(())
}
