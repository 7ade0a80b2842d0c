//! Names of models: paths, and ids of the Hugging Face Hub with its local cache.
//!
//! [`resolve`] turns what a user calls a model into the folder or file that it is. What is in the Hub's cache is found
//! as the `huggingface_hub` library of Python finds it, and what is fetched is laid down so that it finds it too. This
//! is the only crate that opens a network connection, and only where a `download` is given.

mod cache;
mod commit;
mod content;
mod download;
mod error;
mod fetch;
mod files;
mod id;
mod name;
mod settings;

use std::path::{Path, PathBuf};

pub use download::DownloadProgress;
pub use error::HubError;
pub use id::ModelId;
pub use name::model_name;
pub use settings::Settings;

use plmkit_contract::Stop;

/// The folder or file that `model` names.
///
/// A path that exists is itself. Other text of the form `organisation/name` or `organisation/name@revision` is looked
/// up in the Hub's cache, and with a `download` what the cache lacks is fetched into it. Any other text is a path,
/// whatever is there.
///
/// The files of a model of the cache are compared with the hashes that are their names, a large one once.
///
/// # Errors
/// [`HubError::NotCached`] for a model that is not in the cache as a whole, when nothing may be fetched; otherwise
/// what went wrong with fetching.
///
/// ```
/// use plmkit_contract::Stop;
/// use plmkit_hub::{Settings, resolve};
/// let cache = tempfile::tempdir()?;
/// let settings = Settings { cache: Some(cache.path().to_owned()), ..Settings::default() };
/// let resolve = |model| resolve(model, &settings, None, &Stop::default());
/// assert_eq!(resolve(cache.path())?, cache.path());
/// let error = resolve("organisation/name".as_ref()).unwrap_err();
/// assert!(error.to_string().contains("--download fetches it"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn resolve(
    model: &Path,
    settings: &Settings,
    download: Option<&mut dyn DownloadProgress>,
    stop: &Stop,
) -> Result<PathBuf, HubError> {
    let id = match model.to_str().and_then(ModelId::parse) {
        Some(id) if !model.exists() => id,
        _ => return Ok(model.to_owned()),
    };
    let snapshot = match (cache::find(&id, settings)?, download) {
        (Ok(snapshot), _) => snapshot,
        (Err(missing), None) => return Err(HubError::NotCached(id, missing)),
        (Err(missing), Some(_)) if settings.offline => {
            return Err(HubError::Offline(id, missing));
        }
        (Err(_), Some(progress)) => download::download(&id, settings, progress, stop)?,
    };
    cache::check(&id, settings, &snapshot, stop)?;
    Ok(snapshot)
}
