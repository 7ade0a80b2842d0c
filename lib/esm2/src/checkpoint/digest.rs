//! The digests of a model: BLAKE3 of everything that its vectors depend on.

use blake3::Hasher;
use plmkit_contract::is_sealed;
use plmkit_kit::Stop;
use serde::{Deserialize, Serialize};

use super::format::check_sums;
use super::parameters::parameters;
use super::tensors::CheckpointTensors;
use super::weight_file::Stamp;
use crate::config::Architecture;
use crate::error::EsmError;
use crate::heads::Head;
use crate::model_info::CheckpointInfo;

/// The bytes that are hashed and checked while they are in a cache.
const PIECE: usize = 1 << 21;

/// The digests of a checkpoint by its files.
#[derive(Serialize, Deserialize)]
pub(super) struct Digests {
    /// Of the program that has hashed the files.
    version: String,
    /// Of the weight files and `config.json`.
    stamps: Vec<Stamp>,
    pub(super) checkpoint: CheckpointInfo,
}

/// Verifies the files, checks that weights are finite, and digests them, unless `known` is sealed JSON of digests of these files. Any
/// other text tells nothing: a changed digest would be that of another model.
pub(super) fn digest(
    tensors: &CheckpointTensors,
    known: &str,
    stop: &Stop,
) -> Result<Digests, EsmError> {
    let (version, stamps) = (env!("CARGO_PKG_VERSION").to_owned(), tensors.stamps.clone());
    let known = Some(known).filter(|text| is_sealed(text.as_bytes()));
    let known: Option<Digests> = known.and_then(|text| serde_json::from_str(text).ok());
    if let Some(known) =
        known.filter(|known| (&known.version, &known.stamps) == (&version, &stamps))
    {
        return Ok(known);
    }
    // Before the check of values: damage explains a bad value.
    tensors
        .files
        .iter()
        .try_for_each(|file| check_sums(file, stop))?;
    let digest = digest_of_model(tensors, stop)?;
    let head = |head| {
        let digest = match tensors.refusal_of_head(head) {
            Some(reason) => Err(reason),
            None => Ok(digest_of_head(tensors, head, stop)?),
        };
        Ok::<_, EsmError>((head, digest))
    };
    let heads = [Head::LanguageModel, Head::Contact].map(head);
    let checkpoint = CheckpointInfo {
        config: tensors.config().clone(),
        digest,
        heads: heads.into_iter().collect::<Result<_, _>>()?,
    };
    Ok(Digests {
        version,
        stamps,
        checkpoint,
    })
}

/// Returns the digest of a model: of the configuration, the name, type, shape and stored bytes of every encoder tensor in the order of
/// computation, and the rotary frequencies. Fails if a weight is not finite.
fn digest_of_model(tensors: &CheckpointTensors, stop: &Stop) -> Result<String, EsmError> {
    let config = tensors.config();
    let mut hasher = Hasher::new();
    if config.architecture == Architecture::ESM2 {
        hasher.update(b"plmkit esm2 encoder\0");
    } else {
        let architecture = serde_json::to_string(&config.architecture).unwrap_or_default();
        hasher.update(format!("plmkit encoder\0{architecture}\0").as_bytes());
    }
    for size in [
        config.layers,
        config.hidden,
        config.heads,
        config.intermediate,
    ] {
        update_number(&mut hasher, size);
    }
    hasher.update(&config.layer_norm_eps.to_le_bytes());
    hasher.update(&[u8::from(config.token_dropout)]);
    update(&mut hasher, tensors, parameters(config), stop)?;
    for layer in 0..config.layers {
        if let Some((name, stored)) = tensors.stored_frequencies(layer) {
            stored.check_finite(&name, 0, &stored.bytes())?;
        }
        for frequency in tensors.frequencies(layer) {
            hasher.update(&frequency.to_le_bytes());
        }
    }
    Ok(text(&hasher))
}

/// Returns the digest of the stored tensors of a head. Fails if a weight is not finite.
fn digest_of_head(
    tensors: &CheckpointTensors,
    head: Head,
    stop: &Stop,
) -> Result<String, EsmError> {
    let mut hasher = Hasher::new();
    update(&mut hasher, tensors, tensors.head_parameters(head), stop)?;
    Ok(text(&hasher))
}

/// Adds tensors, on the threads of the current pool.
fn update(
    hasher: &mut Hasher,
    tensors: &CheckpointTensors,
    parameters: Vec<(String, Vec<usize>)>,
    stop: &Stop,
) -> Result<(), EsmError> {
    for (name, shape) in parameters {
        if stop.requested() {
            return Err(EsmError::Stopped);
        }
        let tensor = tensors.get(&name);
        for word in [&name, &tensor.dtype.to_string()] {
            update_number(hasher, word.len());
            hasher.update(word.as_bytes());
        }
        update_number(hasher, shape.len());
        for size in shape {
            update_number(hasher, size);
        }
        for (number, piece) in tensor.bytes().chunks(PIECE).enumerate() {
            let (_, finite) = rayon::join(
                || hasher.update_rayon(piece),
                || tensor.check_finite(&name, number * PIECE, piece),
            );
            finite?;
        }
        tensor.release();
    }
    Ok(())
}

fn update_number(hasher: &mut Hasher, value: usize) {
    hasher.update(&(value as u64).to_le_bytes());
}

/// Returns 128 bits in hexadecimal.
fn text(hasher: &Hasher) -> String {
    hasher.finalize().to_hex()[..32].to_owned()
}
