//! Measuring how many tokens a device can compute at once.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::Path;

use plmkit_contract::{BatchSize, Column, Provenance};
use plmkit_esm2::{Esm2, EsmError, ModelInfo, Varlen};
use plmkit_kit::{Stop, path_text};
use plmkit_logs::Timestamp;
use plmkit_logs::event::{Event, EventWriter, Probed};
use plmkit_store::{AtomicFile, StoreError, read_sealed, write_sealed};
use serde_json::Value;

use crate::claim::claim_output;
use crate::config::RunConfig;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::scores::sources;
use crate::token_limit::USUAL_TOKENS;

/// Tokens of a sequence of the trial batches.
const SEQUENCE: usize = USUAL_TOKENS;
/// The most tokens to try, in at most 13 computations. Larger batches are not faster on any device, and their vectors take memory
/// of the host.
const MAX_TOKENS: usize = 1 << 17;
/// The recommended share of the largest batch, in percent: other programs and fragmentation need room, too.
const SHARE: usize = 80;

impl Engine {
    /// Finds the largest batch that fits in the memory of the device beside the model, for its outputs and its type. Writes the result
    /// to `out`, if given. Keeps an existing one of the same work without measuring again. On a CPU, the result is the default.
    pub fn probe(
        &mut self,
        out: Option<&Path>,
        force: bool,
        wait: bool,
        events: Option<&Path>,
        stop: &Stop,
    ) -> Result<BatchSize, EngineError> {
        self.model.check_device(&self.config, stop)?;
        // On a CPU, a batch that is too large takes minutes and then all memory of the machine.
        let measures = !self.on_cpu || self.config.injection.out_of_memory_above.is_some();
        // The claim is held until the end, so that only one of several processes measures.
        let output = out.map(|out| claim_output(wait, stop, || AtomicFile::create(out)));
        let output = output.transpose()?;
        let mut size = BatchSize::for_cpu();
        let (mut model, columns) = (None, sources(&self.model.columns, false));
        if measures {
            let (loaded, _) = self.model.load(&self.config, (0, 0), stop)?;
            size.options = work(&self.provenance, loaded.info());
            model = Some(loaded);
        }
        if let Some(out) = out
            && let Some(found) = existing(out, force, &size)?
        {
            if model.is_some() {
                tracing::info!("{}: already measured", path_text(out));
            }
            return Ok(found);
        }
        if let Some(model) = model {
            measure(&self.config, model, &columns, events, stop, &mut size)?;
        }
        match output.map_or(Ok(()), |output| write_sealed(output, &size)) {
            // On a file system without locks, another process may have measured at the same time.
            Err(StoreError::Exists { .. }) => {
                let found = out.map(|out| existing(out, force, &size)).transpose()?;
                Ok(found.flatten().unwrap_or(size))
            }
            written => Ok(written.map(|()| size)?),
        }
    }
}

/// Lists everything that a measurement depends on.
fn work(provenance: &Provenance, info: &ModelInfo) -> BTreeMap<String, Value> {
    let mut work = provenance.options.clone();
    work.retain(|name, _| ["model", "columns", "dtype", "device"].contains(&name.as_str()));
    if let Some((name, memory)) = &info.gpu {
        work.insert("device".to_owned(), name.as_str().into());
        work.insert("device_memory_mib".to_owned(), (memory >> 20).into());
    }
    work
}

/// Returns the existing output, if it is a measurement of the same work. Any other existing file is an error, except with `force`.
fn existing(
    path: &Path,
    force: bool,
    wanted: &BatchSize,
) -> Result<Option<BatchSize>, EngineError> {
    if !path.exists() {
        return Ok(None);
    }
    let found: Result<BatchSize, _> = read_sealed(path).map_err(StoreError::of_existing);
    match found.map(|found| (found.difference(wanted), found)) {
        Ok((None, found)) => Ok(Some(found)),
        Ok((Some(difference), _)) if force => {
            tracing::info!("{}: measured again: {difference}", path_text(path));
            Ok(None)
        }
        Err(_) if force => {
            tracing::info!("{}: damaged, measured again", path_text(path));
            Ok(None)
        }
        Ok((Some(difference), _)) => Err(StoreError::exists(path, difference).into()),
        Err(error) => Err(error.into()),
    }
}

/// Computes larger and larger batches until memory runs out.
fn measure(
    config: &RunConfig,
    model: &Esm2,
    columns: &[Column],
    events: Option<&Path>,
    stop: &Stop,
    size: &mut BatchSize,
) -> Result<(), EngineError> {
    let info = model.info();
    let fits = |sequences: usize| -> Result<bool, EsmError> {
        let (tokens, cu_seqlens) = trial_batch(sequences);
        let batch = Varlen::new(&tokens, &cu_seqlens).expect("well-formed sequences");
        let injected = config.injection.check_memory(tokens.len());
        let computed =
            injected.and_then(|()| model.embed(batch, columns, info.dtype, stop).map(drop));
        let fits = match computed {
            Err(error) if error.is_out_of_memory() => {
                model.release()?;
                false
            }
            computed => computed.map(|()| true)?,
        };
        size.tries += 1;
        size.out_of_memory += u64::from(!fits);
        let verb = if fits { "fit" } else { "do not fit" };
        tracing::info!("{} tokens {verb}", tokens.len());
        Ok(fits)
    };
    let largest = SEQUENCE * largest(MAX_TOKENS / SEQUENCE, fits)?;
    // Fragments must not be in the way of batches.
    model.release()?;
    if largest == 0 {
        return Err(EngineError::out_of_memory(format!(
            "{}: beside it, not even one sequence of {} residues fits into the memory of {}",
            path_text(&config.model),
            SEQUENCE - 2,
            info.device
        )));
    }
    let recommended = largest * SHARE / 100;
    size.largest_tokens = Some(largest as u32);
    size.max_batch_tokens = NonZeroU32::new(recommended as u32).unwrap_or(NonZeroU32::MIN);
    if let Some(events) = events {
        EventWriter::append(events)?.write(&Event::Probe(Probed {
            time: Some(Timestamp::now()),
            model_digest: info.checkpoint.digest.clone(),
            device: info.device.clone(),
            dtype: info.dtype.to_string(),
            largest_tokens: largest as u64,
            recommended_tokens: size.max_batch_tokens.get().into(),
            tries: size.tries,
            out_of_memory: size.out_of_memory,
        }))?;
    }
    Ok(())
}

/// Makes `count` sequences of [`SEQUENCE`] tokens: their token ids, and their offsets `(count + 1)`.
fn trial_batch(count: usize) -> (Vec<u8>, Vec<i32>) {
    /// Token ids of `<cls>`, `<eos>` and the twenty amino acids from `L` on.
    const CLS: u8 = 0;
    const EOS: u8 = 2;
    const AMINO_ACIDS: std::ops::Range<u8> = 4..24;
    let mut sequence = vec![CLS];
    sequence.extend(AMINO_ACIDS.cycle().take(SEQUENCE - 2));
    sequence.push(EOS);
    let cu_seqlens = (0..).step_by(SEQUENCE).take(count + 1).collect();
    (sequence.repeat(count), cu_seqlens)
}

/// Returns the largest number up to `most` that fits, within one part in 32, or 0 if 1 does not fit. Assumes that everything
/// smaller than a fitting number fits.
fn largest<E>(most: usize, mut fits: impl FnMut(usize) -> Result<bool, E>) -> Result<usize, E> {
    let (mut fitting, mut failing) = (0, 1);
    // Doubling never tries more than twice of what fits.
    while fits(failing)? {
        fitting = failing;
        if fitting == most {
            return Ok(fitting);
        }
        failing = (2 * failing).min(most);
    }
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
    fn a_trial_batch_is_well_formed() {
        let (tokens, cu_seqlens) = trial_batch(3);
        let batch = Varlen::new(&tokens, &cu_seqlens).expect("a batch");
        assert_eq!((batch.sequences(), batch.total_tokens()), (3, 3 * SEQUENCE));
    }
}
