//! Optimizer state in a memory-mapped file. It is read, changed and written back one parameter at a
//! time, so that the footprint holds the state of one parameter at most and the system may reclaim
//! the pages of all others. The scratch file has no name and disappears with the process;
//! checkpoints do not depend on it.

use super::tensor_to_save::{MappedTensor, SavedTensor};
use super::{StateSpec, StateTensor};
use crate::error::{Result, at};
use candle_core::{DType, Device, Tensor};
use memmap2::{MmapMut, MmapOptions};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tape::device::read;

/// The state of all parameters.
pub(super) struct MappedState {
    file: File,
    /// The folder of the file.
    folder: PathBuf,
    device: Device,
    /// The tensors of each parameter.
    parameters: Vec<Vec<Place>>,
}

/// A tensor in the file.
struct Place {
    name: &'static str,
    start: usize,
    bytes: usize,
    dtype: DType,
    dims: Vec<usize>,
}

impl MappedState {
    /// Writes the state to a file in `folder`. The state in memory may be freed once this has
    /// succeeded.
    ///
    /// # Errors
    /// The disk is full, or the folder is not writable.
    pub(super) fn write(
        state: &[Vec<StateTensor>],
        folder: &Path,
        device: &Device,
    ) -> Result<Self> {
        let spec = |StateTensor { name, tensor }: &StateTensor| StateSpec {
            name,
            dtype: tensor.dtype(),
            dims: tensor.dims().to_vec(),
        };
        let specs: Vec<Vec<StateSpec>> = state
            .iter()
            .map(|state| state.iter().map(spec).collect())
            .collect();
        let mapped = MappedState::reserve(&specs, folder, device)?;
        for (index, state) in state.iter().enumerate() {
            mapped.put(index, state)?;
        }
        Ok(mapped)
    }

    /// Allocates a file in `folder` for a state of these tensors, which begins with zeros.
    ///
    /// # Errors
    /// The disk is full, or the folder is not writable.
    pub(super) fn reserve(
        specs: &[Vec<StateSpec>],
        folder: &Path,
        device: &Device,
    ) -> Result<Self> {
        let mut end = 0;
        let parameters = specs.iter().map(|specs| places(specs, &mut end)).collect();
        Ok(MappedState {
            file: unnamed_file(folder, end.max(1) as u64).map_err(at(folder))?,
            folder: folder.to_owned(),
            device: device.clone(),
            parameters,
        })
    }

    /// The state of one parameter.
    pub(super) fn get(&self, index: usize) -> Result<Vec<StateTensor>> {
        let places = &self.parameters[index];
        let (map, begin) = self.map(places)?;
        let read = |place: &Place| {
            let start = place.start - begin;
            let bytes = &map[start..start + place.bytes];
            let tensor = Tensor::from_raw_buffer(bytes, place.dtype, &place.dims, &self.device)?;
            let name = place.name;
            Ok(StateTensor { name, tensor })
        };
        places.iter().map(read).collect()
    }

    /// Writes the state of one parameter back.
    pub(super) fn put(&self, index: usize, state: &[StateTensor]) -> Result<()> {
        let places = &self.parameters[index];
        let (mut map, begin) = self.map(places)?;
        for (place, state) in places.iter().zip(state) {
            let start = place.start - begin;
            store(&state.tensor, &mut map[start..start + place.bytes])?;
        }
        Ok(())
    }

    /// The state of all parameters.
    pub(super) fn read(&self) -> Result<Vec<Vec<StateTensor>>> {
        (0..self.parameters.len())
            .map(|index| self.get(index))
            .collect()
    }

    /// Bytes of the whole state.
    pub(super) fn bytes(&self) -> u64 {
        let places = self.parameters.iter().flatten();
        places.map(|place| place.bytes as u64).sum()
    }

    /// The tensors of one parameter for a checkpoint: pages of the file, without a copy.
    pub(super) fn saved(&self, index: usize) -> Result<Vec<(&'static str, SavedTensor)>> {
        let places = &self.parameters[index];
        let (map, begin) = self.map(places)?;
        let map = map.make_read_only().map_err(at(&self.folder))?;
        let map = Arc::new(map);
        let saved = |place: &Place| {
            let start = place.start - begin;
            let mapped = MappedTensor {
                map: map.clone(),
                range: start..start + place.bytes,
                dtype: place.dtype,
                dims: place.dims.clone(),
            };
            (place.name, SavedTensor::Mapped(mapped))
        };
        Ok(places.iter().map(saved).collect())
    }

    /// The pages of one parameter, and where in the file they begin. A parameter without state has
    /// one byte, which no tensor uses.
    fn map(&self, places: &[Place]) -> Result<(MmapMut, usize)> {
        let begin = places.first().map_or(0, |place| place.start);
        let end = places.last().map_or(0, |place| place.start + place.bytes);
        let mut options = MmapOptions::new();
        options.offset(begin as u64).len((end - begin).max(1));
        // SAFETY: the file has no name, so nothing else can open, change or shorten it, and its
        // blocks are allocated.
        let map = unsafe { options.map_mut(&self.file) };
        Ok((map.map_err(at(&self.folder))?, begin))
    }
}

/// Assigns the tensors of one parameter a place in the file, from `end` on.
fn places(specs: &[StateSpec], end: &mut usize) -> Vec<Place> {
    let place = |spec: &StateSpec| {
        let bytes = spec.bytes() as usize;
        // Aligned for the widest element, so that tensors can be read in place.
        let start = end.next_multiple_of(8);
        *end = start + bytes;
        Place {
            name: spec.name,
            start,
            bytes,
            dtype: spec.dtype,
            dims: spec.dims.clone(),
        }
    };
    specs.iter().map(place).collect()
}

/// An allocated file of this length without a name.
fn unnamed_file(folder: &Path, bytes: u64) -> std::io::Result<File> {
    // A crash before its name is removed leaves a draft.
    let path = disk::draft_path(&folder.join("moments"));
    // tidy: not durable: the file ends with the process
    let mut options = File::options();
    let file = options.read(true).write(true).create(true).open(&path)?;
    // tidy: not durable: as above
    fs::remove_file(&path)?;
    // Allocate the blocks: writing to a mapped page without disk space would end the process.
    fs4::fs_std::FileExt::allocate(&file, bytes)?;
    file.set_len(bytes)?;
    Ok(file)
}

/// Copies the values of a tensor to `bytes`, which have its size. On a GPU this waits for the
/// device.
fn store(tensor: &Tensor, bytes: &mut [u8]) -> Result<()> {
    fn copy<const N: usize>(bytes: &mut [u8], values: impl Iterator<Item = [u8; N]>) {
        let chunks = bytes.chunks_exact_mut(N);
        chunks
            .zip(values)
            .for_each(|(to, from)| to.copy_from_slice(&from));
    }
    match tensor.dtype() {
        DType::F32 => copy(bytes, read::<f32>(tensor)?.iter().map(|v| v.to_le_bytes())),
        DType::F64 => copy(bytes, read::<f64>(tensor)?.iter().map(|v| v.to_le_bytes())),
        DType::U8 => bytes.copy_from_slice(&read::<u8>(tensor)?),
        other => {
            let message =
                format!("optimizer state of data type {other:?} cannot be stored in a file");
            return Err(candle_core::Error::Msg(message).into());
        }
    }
    Ok(())
}
