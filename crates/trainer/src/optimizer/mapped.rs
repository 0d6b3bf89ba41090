//! Moments in a memory-mapped file: read, changed and written back one parameter at a time, so that the footprint holds one
//! parameter's moments at most and the system may take the pages of all others. The file has no name: it is scratch, and
//! whatever ends the process ends it too. Checkpoints are the truth. Refuses to know a rule of updating.

use super::Moments;
use super::saved_tensor::{MappedTensor, SavedTensor};
use crate::error::{Result, at};
use candle_core::{DType, Device, Tensor};
use memmap2::{MmapMut, MmapOptions};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tape::optim::ByteMoment;

/// The moments of all parameters.
pub(super) struct MappedMoments {
    file: File,
    /// The folder that the file lies in.
    folder: PathBuf,
    device: Device,
    kept: Vec<Kept>,
}

/// The moments of one parameter: which they are, and where.
struct Kept {
    form: Form,
    places: Vec<Place>,
}

#[derive(Clone, Copy)]
enum Form {
    Momentum,
    Full,
    Bytes,
}

/// One tensor in the file.
struct Place {
    part: &'static str,
    from: usize,
    bytes: usize,
    dtype: DType,
    dims: Vec<usize>,
}

impl MappedMoments {
    /// Writes all moments to a file in `folder`. `moments` may go once this has succeeded.
    ///
    /// # Errors
    /// The disk has no room, or the folder cannot be written to.
    pub(super) fn write(moments: &[Moments], folder: &Path, device: &Device) -> Result<Self> {
        let mut from = 0;
        let kept = moments.iter().map(|m| Kept::after(m, &mut from)).collect();
        let mapped = MappedMoments {
            file: nameless(folder, from as u64).map_err(at(folder))?,
            folder: folder.to_owned(),
            device: device.clone(),
            kept,
        };
        for (index, one) in moments.iter().enumerate() {
            mapped.put(index, one)?;
        }
        Ok(mapped)
    }

    /// The moments of one parameter, as tensors.
    pub(super) fn get(&self, index: usize) -> Result<Moments> {
        let kept = &self.kept[index];
        let (map, begin) = self.map(kept)?;
        let tensors = kept.places.iter().map(|place| {
            let from = place.from - begin;
            let bytes = &map[from..from + place.bytes];
            Tensor::from_raw_buffer(bytes, place.dtype, &place.dims, &self.device)
        });
        let tensors = tensors.collect::<candle_core::Result<Vec<Tensor>>>()?;
        Ok(kept.form.of(tensors))
    }

    /// Writes the moments of one parameter back.
    pub(super) fn put(&self, index: usize, moments: &Moments) -> Result<()> {
        let kept = &self.kept[index];
        let (mut map, begin) = self.map(kept)?;
        for (place, (_, tensor)) in kept.places.iter().zip(moments.named()) {
            let from = place.from - begin;
            store(tensor, &mut map[from..from + place.bytes])?;
        }
        Ok(())
    }

    /// All of them, back in memory.
    pub(super) fn read(&self) -> Result<Vec<Moments>> {
        (0..self.kept.len()).map(|index| self.get(index)).collect()
    }

    /// Bytes of all moments.
    pub(super) fn bytes(&self) -> u64 {
        let places = self.kept.iter().flat_map(|kept| &kept.places);
        places.map(|place| place.bytes as u64).sum()
    }

    /// The tensors of one parameter for a checkpoint: pages of the file, copied nowhere.
    pub(super) fn saved(&self, index: usize) -> Result<Vec<(&'static str, SavedTensor)>> {
        let kept = &self.kept[index];
        let (map, begin) = self.map(kept)?;
        let map = map.make_read_only().map_err(at(&self.folder))?;
        let map = Arc::new(map);
        let saved = |place: &Place| {
            let from = place.from - begin;
            let mapped = MappedTensor {
                map: map.clone(),
                range: from..from + place.bytes,
                dtype: place.dtype,
                dims: place.dims.clone(),
            };
            (place.part, SavedTensor::Mapped(mapped))
        };
        Ok(kept.places.iter().map(saved).collect())
    }

    /// The pages of one parameter, and where in the file they begin.
    fn map(&self, kept: &Kept) -> Result<(MmapMut, usize)> {
        let begin = kept.places.first().map_or(0, |place| place.from);
        let end = kept
            .places
            .last()
            .map_or(0, |place| place.from + place.bytes);
        let mut options = MmapOptions::new();
        options.offset(begin as u64).len(end - begin);
        // SAFETY: the file has no name, so that nobody else can open, change or shorten it, and its blocks are allocated.
        let map = unsafe { options.map_mut(&self.file) };
        Ok((map.map_err(at(&self.folder))?, begin))
    }
}

impl Kept {
    /// Places for these moments behind all earlier ones.
    fn after(moments: &Moments, from: &mut usize) -> Self {
        let form = match moments {
            Moments::Momentum(_) => Form::Momentum,
            Moments::Full(..) => Form::Full,
            Moments::Bytes(..) => Form::Bytes,
        };
        let place = |(part, tensor): (&'static str, &Tensor)| {
            let bytes = tensor.elem_count() * tensor.dtype().size_in_bytes();
            // The widest element's multiple, so that tensors are read without a detour.
            let begin = from.next_multiple_of(8);
            *from = begin + bytes;
            Place {
                part,
                from: begin,
                bytes,
                dtype: tensor.dtype(),
                dims: tensor.dims().to_vec(),
            }
        };
        Kept {
            form,
            places: moments.named().into_iter().map(place).collect(),
        }
    }
}

impl Form {
    fn of(self, tensors: Vec<Tensor>) -> Moments {
        let mut tensors = tensors.into_iter();
        let mut next = || tensors.next().expect("as many as were written");
        match self {
            Form::Momentum => Moments::Momentum(next()),
            Form::Full => Moments::Full(next(), next()),
            Form::Bytes => {
                let mut next = || ByteMoment {
                    codes: next(),
                    scales: next(),
                };
                Moments::Bytes(next(), next())
            }
        }
    }
}

/// A file of this length that no name leads to.
fn nameless(folder: &Path, bytes: u64) -> std::io::Result<File> {
    let path = folder.join(format!(".moments-{}", std::process::id()));
    let mut options = File::options();
    let file = options.read(true).write(true).create(true).open(&path)?;
    fs::remove_file(&path)?;
    // Blocks and all: a mapped page that the disk has no room for would end the process.
    fs4::fs_std::FileExt::allocate(&file, bytes)?;
    file.set_len(bytes)?;
    Ok(file)
}

/// Copies a tensor's values to `bytes`, which have its size. On a GPU this waits for the device.
fn store(tensor: &Tensor, bytes: &mut [u8]) -> Result<()> {
    fn copy<const N: usize>(bytes: &mut [u8], values: impl Iterator<Item = [u8; N]>) {
        let chunks = bytes.chunks_exact_mut(N);
        chunks
            .zip(values)
            .for_each(|(to, from)| to.copy_from_slice(&from));
    }
    let flat = tensor.flatten_all()?;
    match tensor.dtype() {
        DType::F32 => copy(
            bytes,
            flat.to_vec1::<f32>()?.iter().map(|v| v.to_le_bytes()),
        ),
        DType::F64 => copy(
            bytes,
            flat.to_vec1::<f64>()?.iter().map(|v| v.to_le_bytes()),
        ),
        DType::U8 => bytes.copy_from_slice(&flat.to_vec1::<u8>()?),
        other => {
            let message = format!("moments in {other:?} cannot be kept in a file");
            return Err(candle_core::Error::Msg(message).into());
        }
    }
    Ok(())
}
