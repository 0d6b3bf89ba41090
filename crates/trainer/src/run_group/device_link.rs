//! The connection between the GPUs of a group, by which gradients and weights are exchanged without
//! a copy in the memory of the host. If there is none, the group exchanges them as it does between
//! machines.
//!
//! All ranks have a connection or none has: they agree on it when they connect, and before each
//! exchange. A rank that has freed its weights has none.

use super::{Owners, RunGroup, unreadable_message};
use crate::error::{Result, TrainError};
use candle_core::{DType, Device, Tensor};
use distributed::GroupError;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};
use tape::Parameters;
use tape::device::{DeviceExchange, NCCL_VARIABLE, contiguous, read};

/// For this long, an exchange is awaited without a pause: most are complete by then.
const LOOKS: Duration = Duration::from_millis(2);
/// Pause between two looks afterwards.
const NAP: Duration = Duration::from_micros(50);
/// Interval between two looks for the failure of another rank.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);
/// After a failed exchange, the reason may be another rank that has ended. The group notices this
/// within this time.
const NOTICED_WITHIN: Duration = Duration::from_secs(3);
/// Number of values of the self-test.
const TESTED_VALUES: usize = 5;

/// What a rank has for a connection. `None` for a device that cannot be connected.
#[derive(Debug, Serialize, Deserialize)]
struct Offer {
    host: String,
    device: String,
    /// The library, or why there is none.
    library: std::result::Result<String, String>,
    has_weights: bool,
}

/// What all ranks together decide.
#[derive(Debug, PartialEq, Eq)]
enum Choice {
    /// They connect by this library.
    Connect(String),
    /// They do not, and why.
    Refuse(String),
    /// They cannot, and no one expects it.
    Nothing,
}

/// The connection of this rank's device with those of the others, if there is one.
#[derive(Default)]
pub(super) struct DeviceLink {
    exchange: Option<Box<dyn DeviceExchange>>,
    /// How gradients are exchanged, as the end of a sentence.
    description: String,
    has_changed: bool,
    /// Longest time of an exchange.
    patience: Duration,
}

impl std::fmt::Debug for DeviceLink {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "DeviceLink({})", self.description)
    }
}

impl DeviceLink {
    /// Whether this rank has a connection.
    pub(super) fn is_connected(&self) -> bool {
        self.exchange.is_some()
    }

    /// How gradients are exchanged, as the end of a sentence. Empty without GPUs that could be
    /// connected.
    pub(super) fn describe(&self) -> &str {
        &self.description
    }

    /// Whether the connection was lost or made since the last call.
    pub(super) fn take_change(&mut self) -> bool {
        std::mem::take(&mut self.has_changed)
    }

    /// Connects the devices of all ranks, if they can be connected. All ranks call it at the same
    /// time; one that has freed its weights passes `has_weights` as false.
    ///
    /// # Errors
    /// The group is broken. If the connection fails, the group exchanges through the host.
    pub(super) fn connect(
        &mut self,
        group: &RunGroup,
        device: &Device,
        has_weights: bool,
    ) -> Result<()> {
        self.exchange = None;
        self.patience = group.exchange_patience();
        let choice = choose(group, device, has_weights)?;
        let description = match choice {
            Choice::Nothing => String::new(),
            Choice::Refuse(reason) => through_host(&reason),
            Choice::Connect(library) => match self.open(group, device)? {
                Ok(()) => {
                    format!("; gradients are exchanged directly between the GPUs ({library})")
                }
                Err(reason) => through_host(&reason),
            },
        };
        self.has_changed |= self.description != description;
        self.description = description;
        Ok(())
    }

    /// Drops the connection, because not all ranks have one.
    pub(super) fn disconnect(&mut self, reason: &str) {
        if self.exchange.take().is_some() {
            self.description = through_host(reason);
            self.has_changed = true;
        }
    }

    /// Drops the connection at the end of a run, once no rank needs it. All ranks call it.
    pub(super) fn close(&mut self, group: &RunGroup) {
        if self.exchange.is_some() {
            // If a rank is lost, none needs the connection.
            let _ = group.gather(Vec::new());
            self.exchange = None;
        }
    }

    /// Opens the connection, and tests it. The reason if it does not work at one of the ranks; then
    /// none has it.
    fn open(
        &mut self,
        group: &RunGroup,
        device: &Device,
    ) -> Result<std::result::Result<(), String>> {
        let library = group.exchange_library();
        let id = if group.keeps_run() {
            library.new_id().map_err(|error| error.to_string())
        } else {
            Ok(Vec::new())
        };
        let id = serde_json::to_vec(&id).map_err(unreadable_message)?;
        let id: std::result::Result<Vec<u8>, String> =
            serde_json::from_slice(&group.broadcast(id)?).map_err(unreadable_message)?;
        let id = match id {
            Ok(id) => id,
            Err(reason) => return Ok(Err(reason)),
        };
        let opened = match library.connect(device, &id, group.rank(), group.size()) {
            Ok(exchange) => {
                self.exchange = Some(exchange);
                self.wait(group).and_then(|()| self.test_sum(group, device))
            }
            Err(error) => Err(error.into()),
        };
        // A rank that is lost cannot answer here either.
        let failure = opened.err().map(|error| error.to_string());
        let failure = serde_json::to_vec(&failure).map_err(unreadable_message)?;
        for (rank, bytes) in group.gather(failure)?.into_iter().enumerate() {
            let failure: Option<String> =
                serde_json::from_slice(&bytes).map_err(unreadable_message)?;
            if let Some(failure) = failure {
                self.exchange = None;
                return Ok(Err(format!("{}: {failure}", group.member(rank))));
            }
        }
        Ok(Ok(()))
    }

    /// Adds up known values.
    fn test_sum(&mut self, group: &RunGroup, device: &Device) -> Result<()> {
        let value = |index: usize, rank: usize| (index * 100 + rank + 1) as f32;
        let of_rank = |rank| (0..TESTED_VALUES).map(move |index| value(index, rank));
        let mine: Vec<f32> = of_rank(group.rank()).collect();
        let sum = [Tensor::from_slice(&mine, TESTED_VALUES, device)?];
        self.run(group, |exchange| exchange.begin_sum(&sum))?;
        let sum: Vec<f32> = read(&sum[0])?;
        let expected = |index| (0..group.size()).map(|rank| value(index, rank)).sum();
        let expected: Vec<f32> = (0..TESTED_VALUES).map(expected).collect();
        if sum != expected {
            return Err(failed(format!(
                "the GPUs get a wrong sum ({sum:?} instead of {expected:?})"
            )));
        }
        Ok(())
    }

    /// The sums of the gradients over all ranks, on the device. A rank without any, because it
    /// processed nothing, adds zeros. All ranks are connected.
    ///
    /// # Errors
    /// A rank was lost, or the exchange failed. The connection is then dropped, and the gradients
    /// are lost.
    pub(super) fn sum(
        &mut self,
        group: &RunGroup,
        parameters: &Parameters,
        gradients: Option<Vec<Tensor>>,
    ) -> Result<Vec<Tensor>> {
        let sums = match gradients {
            Some(gradients) => {
                let gradients = gradients.iter().map(contiguous);
                gradients.collect::<tape::Result<Vec<_>>>()?
            }
            None => {
                let parameters = parameters.iter().map(|parameter| &parameter.tensor);
                parameters.map(zeros).collect::<Result<Vec<_>>>()?
            }
        };
        self.run(group, |exchange| exchange.begin_sum(&sums))?;
        Ok(sums)
    }

    /// Replaces the parameters that other ranks own by theirs, on the device. All ranks are
    /// connected.
    ///
    /// # Errors
    /// As [`DeviceLink::sum`]. Some of the parameters may be replaced.
    pub(super) fn spread(
        &mut self,
        group: &RunGroup,
        owners: &Owners,
        parameters: &mut Parameters,
    ) -> Result<()> {
        let tensors = parameters.iter().map(|parameter| &parameter.tensor);
        let tensors = tensors.map(contiguous).collect::<tape::Result<Vec<_>>>()?;
        self.run(group, |exchange| {
            exchange.begin_spread(&tensors, owners.all())
        })?;
        for (index, tensor) in tensors.into_iter().enumerate() {
            if !owners.is_mine(index) {
                parameters.set(index, tensor)?;
            }
        }
        Ok(())
    }

    fn run(
        &mut self,
        group: &RunGroup,
        begin: impl FnOnce(&mut dyn DeviceExchange) -> tape::Result<()>,
    ) -> Result<()> {
        let begun = match &mut self.exchange {
            Some(exchange) => begin(&mut **exchange),
            None => return Err(failed("the GPUs are not connected")),
        };
        match begun {
            Ok(()) => self.wait(group),
            Err(error) => {
                self.exchange = None;
                Err(after_failure(group, &error.to_string()))
            }
        }
    }

    /// Waits until the exchange is complete. It never waits for a rank that is lost: dropping the
    /// connection aborts the exchange.
    fn wait(&mut self, group: &RunGroup) -> Result<()> {
        let waited = self.complete(group);
        if waited.is_err() {
            self.exchange = None;
        }
        waited
    }

    fn complete(&mut self, group: &RunGroup) -> Result<()> {
        let began = Instant::now();
        let mut checked_at: Option<Instant> = None;
        while let Some(exchange) = &mut self.exchange {
            if checked_at.is_none_or(|at| at.elapsed() >= CHECK_INTERVAL) {
                group.check_failure()?;
                checked_at = Some(Instant::now());
            }
            match exchange.poll() {
                Ok(true) => break,
                Ok(false) if began.elapsed() >= self.patience => {
                    let seconds = self.patience.as_secs();
                    return Err(failed(format!(
                        "an exchange between the GPUs takes longer than {seconds} s"
                    )));
                }
                Ok(false) if began.elapsed() < LOOKS => std::thread::yield_now(),
                Ok(false) => std::thread::sleep(NAP),
                Err(error) => return Err(after_failure(group, &error.to_string())),
            }
        }
        Ok(())
    }
}

/// Decides from what all ranks have, so that all ranks decide the same.
fn choose(group: &RunGroup, device: &Device, has_weights: bool) -> Result<Choice> {
    if group.size() < 2 {
        return Ok(Choice::Nothing);
    }
    let host = group.member(group.rank()).host;
    let offer = group.exchange_library().offer(device);
    let mine = offer.map(|offer| Offer {
        host,
        device: offer.device,
        library: offer.library,
        has_weights,
    });
    let mine = serde_json::to_vec(&mine).map_err(unreadable_message)?;
    let all = group.gather(mine)?.into_iter();
    let parse = |bytes: Vec<u8>| serde_json::from_slice(&bytes).map_err(unreadable_message);
    let offers: Option<Vec<Offer>> = all.map(parse).collect::<Result<_>>()?;
    let name = |rank: usize| group.member(rank).to_string();
    Ok(offers.map_or(Choice::Nothing, |offers| agree(&offers, &name)))
}

/// The choice for ranks with these offers.
fn agree(offers: &[Offer], name: &dyn Fn(usize) -> String) -> Choice {
    let Some(first) = offers.first() else {
        return Choice::Nothing;
    };
    for (rank, offer) in offers.iter().enumerate() {
        if offer.host != first.host {
            let (first, other) = (name(0), name(rank));
            return Choice::Refuse(format!("{first} and {other} are different machines"));
        }
        let mut earlier = offers[..rank].iter();
        if let Some(other) = earlier.position(|other| other.device == offer.device) {
            let (other, rank) = (name(other), name(rank));
            return Choice::Refuse(format!("{other} and {rank} use the same GPU"));
        }
        if !offer.has_weights {
            return Choice::Refuse(format!("{} has freed its weights", name(rank)));
        }
        match (&first.library, &offer.library) {
            (Ok(of_first), Ok(library)) if of_first != library => {
                let (first, rank) = (name(0), name(rank));
                return Choice::Refuse(format!("{first} has {of_first}, but {rank} has {library}"));
            }
            (_, Err(reason)) => {
                return Choice::Refuse(format!("{} reports: {reason}", name(rank)));
            }
            _ => {}
        }
    }
    match &first.library {
        Ok(library) => Choice::Connect(library.clone()),
        Err(reason) => Choice::Refuse(reason.clone()),
    }
}

fn through_host(reason: &str) -> String {
    format!("; gradients are exchanged through the memory of the host, because {reason}")
}

/// Zeros that change no bit of a sum, for the gradient of a parameter.
fn zeros(parameter: &Tensor) -> Result<Tensor> {
    let (count, dims) = (parameter.elem_count(), parameter.dims());
    let device = parameter.device();
    Ok(match parameter.dtype() {
        DType::F64 => Tensor::from_vec(vec![-0.0f64; count], dims, device)?,
        _ => Tensor::from_vec(vec![-0.0f32; count], dims, device)?,
    })
}

/// The error after a failed exchange: that of a rank which has ended, if there is one.
fn after_failure(group: &RunGroup, reason: &str) -> TrainError {
    let began = Instant::now();
    while began.elapsed() < NOTICED_WITHIN {
        if let Err(error) = group.check_failure() {
            return error;
        }
        std::thread::sleep(CHECK_INTERVAL);
    }
    failed(reason)
}

fn failed(reason: impl std::fmt::Display) -> TrainError {
    GroupError::Connection(format!(
        "{reason}; with {NCCL_VARIABLE}=none, the GPUs exchange through the memory of the host"
    ))
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(device: &str, library: std::result::Result<&str, &str>) -> Offer {
        Offer {
            host: "box".to_owned(),
            device: device.to_owned(),
            library: library.map(str::to_owned).map_err(str::to_owned),
            has_weights: true,
        }
    }

    fn chosen(offers: &[Offer]) -> Choice {
        agree(offers, &|rank| format!("rank {rank}"))
    }

    fn refused(offers: &[Offer]) -> String {
        match chosen(offers) {
            Choice::Refuse(reason) => reason,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn ranks_connect_if_each_has_a_device_of_its_own_and_the_same_library() {
        let nccl = Ok("NCCL 2.28.3");
        let all = [offer("a", nccl), offer("b", nccl), offer("c", nccl)];
        assert_eq!(chosen(&all), Choice::Connect("NCCL 2.28.3".to_owned()));
        assert_eq!(chosen(&[]), Choice::Nothing);
    }

    #[test]
    fn the_reason_for_another_way_is_a_sentence() {
        let nccl = Ok("NCCL 2.28.3");
        let first = || offer("a", nccl);
        let shared = [first(), offer("b", nccl), first()];
        assert_eq!(refused(&shared), "rank 0 and rank 2 use the same GPU");
        let older = [first(), offer("b", Ok("NCCL 2.14.3"))];
        assert_eq!(
            refused(&older),
            "rank 0 has NCCL 2.28.3, but rank 1 has NCCL 2.14.3"
        );
        let missing = [offer("a", Err("EBB_NCCL is none")), offer("b", nccl)];
        assert_eq!(refused(&missing), "rank 0 reports: EBB_NCCL is none");
        let missing = [first(), offer("b", Err("EBB_NCCL is none"))];
        assert_eq!(refused(&missing), "rank 1 reports: EBB_NCCL is none");
        let elsewhere = Offer {
            host: "other".to_owned(),
            ..offer("b", nccl)
        };
        assert_eq!(
            refused(&[first(), elsewhere]),
            "rank 0 and rank 1 are different machines"
        );
        let suspended = Offer {
            has_weights: false,
            ..offer("b", nccl)
        };
        assert_eq!(
            refused(&[first(), suspended]),
            "rank 1 has freed its weights"
        );
    }
}
