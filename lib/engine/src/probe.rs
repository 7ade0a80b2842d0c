//! How many tokens a device computes at once: found out by computing.

use std::path::Path;

use plmkit_contract::{Column, Stop, path_text};
use plmkit_esm2::{Dtype, Esm2, EsmError, Varlen};
use plmkit_telemetry::Timestamp;
use plmkit_telemetry::event::{Event, EventWriter, Probed};

use crate::config::Injection;
use crate::{Config, EngineError};

/// Tokens of a sequence of the batches that are tried: as long as ESM-2 was trained on. What is tried is a multiple.
const SEQUENCE: usize = 1024;
/// The most that is tried: more tokens at once make no device faster.
const MOST: usize = 1 << 20;
/// The share of the largest batch that is recommended, in percent: other programs and fragmented memory need room, too.
const SHARE: usize = 80;

/// What was found out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The most tokens that were computed at once.
    pub largest: usize,
    /// What batches should hold at most.
    pub recommended: usize,
    /// Computations that were tried.
    pub tries: u64,
    /// Those of them for which memory ran out.
    pub out_of_memory: u64,
    /// Where.
    pub device: String,
    /// In what.
    pub dtype: Dtype,
}

/// Finds the largest batch that fits into the memory of the device of `config` beside its model, for its outputs and its type.
pub fn probe(config: &Config, stop: &Stop) -> Result<Probe, EngineError> {
    let model = Esm2::load(&config.model, config.setup(), stop)?;
    // On a CPU a batch that is too large takes minutes and then the machine's memory.
    if model.device() == "cpu" && config.injection.out_of_memory_above.is_none() {
        return Err(EngineError::ProbeOfCpu);
    }
    let trial = Trial {
        model: &model,
        columns: config.outputs.columns(model.config().layers)?,
        injection: &config.injection,
        stop,
    };
    let (mut tries, mut out_of_memory) = (0, 0);
    let largest = largest(MOST / SEQUENCE, |sequences| {
        let fits = trial.fits(sequences)?;
        tries += 1;
        out_of_memory += u64::from(!fits);
        let not = if fits { "fit" } else { "do not fit" };
        tracing::info!("{} tokens {not}", sequences * SEQUENCE);
        Ok::<bool, EngineError>(fits)
    })?;
    if largest == 0 {
        return Err(EsmError::OutOfMemory(format!(
            "{}: beside it, not even one sequence of {} residues fits into the memory of {}",
            path_text(&config.model),
            SEQUENCE - 2,
            model.device()
        ))
        .into());
    }
    let largest = largest * SEQUENCE;
    let probe = Probe {
        largest,
        recommended: largest * SHARE / 100,
        tries,
        out_of_memory,
        device: model.device(),
        dtype: model.dtype(),
    };
    if let Some(events) = &config.events {
        probe.write(events, model.digest())?;
    }
    Ok(probe)
}

impl Probe {
    fn write(&self, events: &Path, model: &str) -> Result<(), EngineError> {
        let event = Event::Probe(Probed {
            time: Some(Timestamp::now()),
            model_digest: model.to_owned(),
            device: self.device.clone(),
            dtype: self.dtype.to_string(),
            largest_tokens: self.largest as u64,
            recommended_tokens: self.recommended as u64,
            tries: self.tries,
            out_of_memory: self.out_of_memory,
        });
        Ok(EventWriter::append(events)?.write(&event)?)
    }
}

/// What is tried, but for how much of it.
struct Trial<'a> {
    model: &'a Esm2,
    columns: Vec<Column>,
    injection: &'a Injection,
    stop: &'a Stop,
}

impl Trial<'_> {
    /// Whether so many sequences fit.
    fn fits(&self, sequences: usize) -> Result<bool, EsmError> {
        let (tokens, cu_seqlens) = sequences_of(sequences);
        let batch = Varlen::new(&tokens, &cu_seqlens).expect("well-formed sequences");
        let computed = self.injection.memory_for(tokens.len()).and_then(|()| {
            self.model
                .embed(batch, &self.columns, self.model.dtype(), self.stop)
        });
        match computed {
            Ok(_) => Ok(true),
            Err(error) if error.is_out_of_memory() => {
                self.model.release()?;
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}

/// Token ids of so many sequences of [`SEQUENCE`] tokens, and where each begins and the last one ends.
fn sequences_of(count: usize) -> (Vec<u8>, Vec<i32>) {
    /// `<cls>`, `<eos>` and the twenty amino acids from `L` on.
    const CLS: u8 = 0;
    const EOS: u8 = 2;
    const AMINO_ACIDS: std::ops::Range<u8> = 4..24;
    let mut tokens = Vec::with_capacity(count * SEQUENCE);
    for _ in 0..count {
        tokens.push(CLS);
        tokens.extend(AMINO_ACIDS.cycle().take(SEQUENCE - 2));
        tokens.push(EOS);
    }
    (tokens, (0..).step_by(SEQUENCE).take(count + 1).collect())
}

/// The largest number up to `most` that fits, to one part in 32; 0 if 1 does not. What is smaller than something that fits
/// fits, too.
fn largest<E>(most: usize, mut fits: impl FnMut(usize) -> Result<bool, E>) -> Result<usize, E> {
    let (mut fitting, mut tried) = (0, 1);
    // Doubled, so that no more than twice what fits is ever tried.
    while fits(tried)? {
        fitting = tried;
        if tried == most {
            return Ok(fitting);
        }
        tried = (2 * tried).min(most);
    }
    let mut failing = tried;
    while failing - fitting > 1.max(fitting / 32) {
        let middle = fitting + (failing - fitting) / 2;
        if fits(middle)? {
            fitting = middle;
        } else {
            failing = middle;
        }
    }
    Ok(fitting)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_that_fits_is_found_in_few_tries() {
        for room in [0, 1, 2, 3, 17, 64, 100, 345, 1000, 1024, 5000] {
            let mut tries = 0;
            let found = largest(1024, |size| {
                tries += 1;
                assert!(size <= 1024 && size <= (2 * room).max(1), "{size}");
                Ok::<bool, ()>(size <= room)
            });
            let (found, room) = (found.expect("nothing fails"), room.min(1024));
            assert!(
                found <= room && room - found <= found / 32,
                "{found} of {room}"
            );
            assert!(tries <= 16, "{tries}");
        }
    }

    #[test]
    fn what_is_tried_is_a_batch() {
        let (tokens, cu_seqlens) = sequences_of(3);
        let batch = Varlen::new(&tokens, &cu_seqlens).expect("a batch");
        assert_eq!((batch.sequences(), batch.total_tokens()), (3, 3 * SEQUENCE));
    }
}
