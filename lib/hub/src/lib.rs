//! Names of models: paths, and ids of the Hugging Face Hub with its local cache.
//!
//! [`resolve`] turns the name of a model into its folder or file. The layout of the cache is that of the `huggingface_hub` library
//! of Python, so each finds what the other has fetched. This is the only crate that opens network connections, and only for a
//! `download`.

mod cache;
mod client;
mod content;
mod download;
mod error;
mod fetch;
mod files;
mod id;
mod name;
mod settings;

use std::path::{Path, PathBuf};

pub use error::HubError;
pub use fetch::DownloadEvent;
pub use id::ModelId;
pub use name::model_name;
pub use settings::Settings;

use plmkit_kit::Stop;

/// Returns the folder or file of `model`.
///
/// An existing path is returned as it is. An id of the form `organisation/name` or `organisation/name@revision` is looked up in the
/// Hub's cache, and with a `download`, missing files are fetched. Any other text is a path, even if nothing is there.
///
/// Files in the cache are checked against the hashes in their names; large files only once.
///
/// # Errors
/// [`HubError::Refused`] if the cache lacks files of the model and nothing may be fetched, otherwise the error of the download.
///
/// ```
/// use plmkit_kit::Stop;
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
    download: Option<&mut dyn FnMut(DownloadEvent)>,
    stop: &Stop,
) -> Result<PathBuf, HubError> {
    let id = match model.to_str().and_then(ModelId::parse) {
        Some(id) if !model.exists() => id,
        _ => return Ok(model.to_owned()),
    };
    let snapshot = match (cache::find(&id, settings)?, download) {
        (Ok(snapshot), _) => snapshot,
        (Err(missing), None) => {
            return Err(HubError::not_found(format!(
                "{id}: no such file or folder, and {missing}; --download fetches it"
            )));
        }
        (Err(missing), Some(_)) if settings.offline => {
            return Err(HubError::not_found(format!(
                "{id}: {missing}; HF_HUB_OFFLINE is set, so nothing is fetched"
            )));
        }
        (Err(_), Some(progress)) => download::download(&id, settings, progress, stop)?,
    };
    cache::check(&id, settings, &snapshot, stop)?;
    Ok(snapshot)
}
