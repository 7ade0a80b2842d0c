//! How many tokens a device computes at once: found out by computing.

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::Path;

use plmkit_contract::{BatchSize, Column, Stop, path_text};
use plmkit_esm2::{Esm2, EsmError, Varlen};
use plmkit_logs::Timestamp;
use plmkit_logs::event::{Event, EventWriter, Probed};
use plmkit_store::{AtomicFile, StoreError, read_sealed, write_sealed};
use serde_json::Value;

use crate::claim::claim_output;
use crate::config::Injection;
use crate::model_info::ModelInfo;
use crate::{EngineError, RunConfig};

/// Tokens of a sequence of the batches that are tried: as long as ESM-2 was trained on. What is tried is a multiple.
const SEQUENCE: usize = 1024;
/// The most that is tried, in 13 computations at most: more tokens at once make no device faster, and their vectors
/// take memory of the host.
const MOST: usize = 1 << 17;
/// The share of the largest batch that is recommended, in percent: other programs and fragmented memory need room, too.
const SHARE: usize = 80;

/// Finds the largest batch that fits into the memory of the device of `config` beside its model, for its outputs and its type, and
/// keeps it in the output, if there is to be one. What an output that is there says of the same work is taken, and not measured again.
/// On a CPU it is the default.
pub fn probe(config: &RunConfig, stop: &Stop) -> Result<BatchSize, EngineError> {
    // Before the output is claimed: a driver may hang.
    let on_cpu = stop.interruptible(|| config.device.is_cpu());
    // There a batch that is too large takes minutes and then the machine's memory.
    let on_cpu = on_cpu.map_err(EsmError::from)? && config.injection.out_of_memory_above.is_none();
    let kept = !config.out.as_os_str().is_empty();
    // Before the model is loaded, and until there is an answer: of several processes one measures.
    let output = kept.then(|| claim_output(config, stop, || AtomicFile::create(&config.out)));
    let output = output.transpose()?;
    let model = if on_cpu {
        None
    } else {
        Some(Esm2::load(&config.model, config.setup(), stop)?)
    };
    let mut size = BatchSize::for_cpu();
    if let Some(model) = &model {
        size.options = work(config, model)?;
    }
    if kept && let Some(found) = existing(config, &size)? {
        if model.is_some() {
            tracing::info!("{}: already measured", path_text(&config.out));
        }
        return Ok(found);
    }
    if let Some(model) = &model {
        measure(config, model, stop, &mut size)?;
    }
    match output.map_or(Ok(()), |output| write_sealed(output, &size)) {
        // Where a file system has no locks, another process may have measured at the same time.
        Err(StoreError::Exists { .. }) => Ok(existing(config, &size)?.unwrap_or(size)),
        written => Ok(written.map(|()| size)?),
    }
}

/// What a measurement depends on.
fn work(config: &RunConfig, model: &Esm2) -> Result<BTreeMap<String, Value>, EngineError> {
    let info = ModelInfo::new(model, &config.outputs)?;
    let columns = config.outputs.columns(info.layers)?;
    let columns: Vec<String> = columns.iter().map(ToString::to_string).collect();
    let mut work = BTreeMap::from([
        ("model".to_owned(), Value::from(info.digest.as_str())),
        ("columns".to_owned(), columns.into()),
        ("dtype".to_owned(), info.dtype.to_string().into()),
        ("workers".to_owned(), workers(config).into()),
        ("device".to_owned(), info.device_kind().into()),
    ]);
    if let Some((name, memory)) = model.gpu()? {
        work.insert("device".to_owned(), name.into());
        work.insert("device_memory_mib".to_owned(), (memory >> 20).into());
    }
    Ok(work)
}

/// Processes that share the memory of the device.
fn workers(config: &RunConfig) -> usize {
    config.workers.map_or(1, NonZeroUsize::get)
}

/// What is at the path of the output, if it was measured as `wanted` says. Anything else that is there is an error, and is replaced with
/// `--force`.
fn existing(config: &RunConfig, wanted: &BatchSize) -> Result<Option<BatchSize>, EngineError> {
    if !config.out.exists() {
        return Ok(None);
    }
    let found =
        read_sealed(&config.out).and_then(|found: BatchSize| match found.difference(wanted) {
            None => Ok(found),
            Some(difference) => Err(StoreError::Exists {
                path: config.out.clone(),
                difference,
            }),
        });
    match found.map_err(StoreError::of_existing) {
        Ok(found) => Ok(Some(found)),
        Err(error) if config.force => {
            tracing::info!("{error}: measured again");
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// Computes larger and larger batches until memory runs out.
fn measure(
    config: &RunConfig,
    model: &Esm2,
    stop: &Stop,
    size: &mut BatchSize,
) -> Result<(), EngineError> {
    let trial = Trial {
        model,
        columns: config.outputs.columns(model.config().layers)?,
        injection: &config.injection,
        stop,
    };
    let largest = largest(MOST / SEQUENCE, |sequences| {
        let fits = trial.fits(sequences)?;
        size.tries += 1;
        size.out_of_memory += u64::from(!fits);
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
    size.largest_tokens = Some(largest as u32);
    let recommended = largest * SHARE / 100 / workers(config);
    size.max_batch_tokens = NonZeroU32::new(recommended as u32).unwrap_or(NonZeroU32::MIN);
    if let Some(events) = &config.events {
        write(size, model, events)?;
    }
    Ok(())
}

fn write(size: &BatchSize, model: &Esm2, events: &Path) -> Result<(), EngineError> {
    let event = Event::Probe(Probed {
        time: Some(Timestamp::now()),
        model_digest: model.digest().to_owned(),
        device: model.device(),
        dtype: model.dtype().to_string(),
        largest_tokens: size.largest_tokens.unwrap_or_default().into(),
        recommended_tokens: size.max_batch_tokens.get().into(),
        tries: size.tries,
        out_of_memory: size.out_of_memory,
    });
    Ok(EventWriter::append(events)?.write(&event)?)
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
        let computed = self.injection.check_memory(tokens.len()).and_then(|()| {
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
