//! Why a model could not be had.

use std::io;
use std::path::{Path, PathBuf};

use hf_hub::api::sync::ApiError;
use plmkit_contract::{Exit, Failure, io_text, one_line, path_text};

use crate::ModelId;
use crate::cache::Missing;

/// Why a name of a model leads to no files. An address comes first where there is one.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// The model is not in the Hub's cache, or not as a whole, and nothing was to be fetched.
    #[error("{0}: no such file or folder, and {1}; --download fetches it")]
    NotCached(ModelId, Missing),
    /// The model is not in the Hub's cache, or not as a whole, and nothing may be fetched.
    #[error("{0}: {1}; HF_HUB_OFFLINE is set, so nothing is fetched")]
    Offline(ModelId, Missing),
    /// Nothing says where the Hub's cache is.
    #[error("no home folder to look for the Hub's cache in; HF_HOME says where it is")]
    NoCache,
    /// A file of the cache cannot be read.
    #[error("{path}: cannot read: {text}", path = path_text(.0), text = io_text(.1))]
    Read(PathBuf, #[source] io::Error),
    /// A file of the cache has not the content that its name says.
    #[error(
        "{}: damaged: expected {hash} as in its name, found {found}; remove it, and --download fetches it again",
        path_text(.path)
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The hash that its name is.
        hash: &'static str,
        /// That of its content.
        found: String,
    },
    /// A branch or tag in the cache does not lead to a commit.
    #[error("{}: expected the hash of a commit, found something else", path_text(.0))]
    Ref(PathBuf),
    /// The server has no such model: it answers with this status.
    #[error(
        "{0}: no such model, revision or file ({1}); a private one needs a token in HF_TOKEN that may read it"
    )]
    NoSuchModel(String, u16),
    /// The server does not give the model to the user whose token was sent: it answers with this status.
    #[error(
        "{0}: the server refuses the token in HF_TOKEN ({1}); expected one that is valid and may read this model"
    )]
    TokenRefused(String, u16),
    /// What `HF_TOKEN` holds cannot be sent. A message never shows the token.
    #[error(
        "HF_TOKEN: expected a token of letters, digits and signs, found a blank, a control character or one that is not ASCII in it"
    )]
    Token,
    /// The server has the model, but none of these files, in which weights lie.
    #[error("{0}: expected {1}, found neither")]
    NoWeights(String, String),
    /// The server cannot be reached, or went away, or is too busy.
    #[error("{0}: cannot fetch: {text}", text = one_line(.1, usize::MAX))]
    Network(String, String),
    /// The server's answer is not that of a Hub.
    #[error("{0}: not an answer of a Hub: {text}", text = one_line(.1, usize::MAX))]
    Answer(String, String),
    /// `HF_ENDPOINT` is no address of a server.
    #[error(
        "HF_ENDPOINT: expected an address beginning with https:// or http://, found '{}'",
        one_line(.0, 80)
    )]
    Endpoint(String),
    /// The cache cannot be written.
    #[error("{path}: cannot write: {text}", path = path_text(.0), text = io_text(.1))]
    Write(PathBuf, #[source] io::Error),
    /// Another process fetches the same model and has this lock.
    #[error("{}: another process is fetching this model", path_text(.0))]
    Busy(PathBuf),
    /// A stop was requested.
    #[error("stopped")]
    Stopped,
}

impl HubError {
    /// What a failed request means; `folder` is where its answer was to go.
    pub(crate) fn from_request(url: String, folder: &Path, error: ApiError) -> Self {
        match error {
            ApiError::RequestError(error) => Self::from_http(url, folder, *error),
            ApiError::IoError(source) => Self::from_transfer(url, folder, source),
            ApiError::LockAcquisition(path) => Self::Busy(path),
            other => Self::Answer(url, other.to_string()),
        }
    }

    /// The same error of requests that had a token with them.
    pub(crate) fn with_token(self) -> Self {
        match self {
            Self::NoSuchModel(url, status @ (401 | 403)) => Self::TokenRefused(url, status),
            other => other,
        }
    }

    fn from_http(url: String, folder: &Path, error: ureq::Error) -> Self {
        use ureq::Error as Http;
        match error {
            Http::StatusCode(status @ (401 | 403 | 404 | 410)) => Self::NoSuchModel(url, status),
            Http::StatusCode(status @ (408 | 429 | 500..)) => {
                Self::Network(url, format!("the server answers with status {status}"))
            }
            Http::Io(source) => Self::from_transfer(url, folder, source),
            Http::HostNotFound
            | Http::ConnectionFailed
            | Http::ConnectProxyFailed(_)
            | Http::Protocol(_)
            | Http::Timeout(_) => Self::Network(url, error.to_string()),
            other => Self::Answer(url, other.to_string()),
        }
    }

    /// hf-hub reads from the network and writes to the disk in one call, so that either may have failed.
    fn from_transfer(url: String, folder: &Path, source: io::Error) -> Self {
        if is_of_disk(&source) {
            Self::Write(folder.to_owned(), source)
        } else {
            Self::Network(url, io_text(&source))
        }
    }
}

/// Whether no network could have failed like this.
fn is_of_disk(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    matches!(
        error.kind(),
        FileTooLarge | QuotaExceeded | ReadOnlyFilesystem | StorageFull
    )
}

impl Failure for HubError {
    fn exit(&self) -> Exit {
        match self {
            Self::NotCached(..)
            | Self::Offline(..)
            | Self::NoCache
            | Self::Read(..)
            | Self::NoSuchModel(..)
            | Self::TokenRefused(..)
            | Self::NoWeights(..) => Exit::NoInput,
            Self::Damaged { .. } | Self::Ref(_) | Self::Answer(..) => Exit::Data,
            Self::Endpoint(..) | Self::Token => Exit::Usage,
            Self::Write(_, source) if is_of_disk(source) => Exit::Io,
            Self::Write(..) => Exit::CannotCreate,
            Self::Network(..) | Self::Busy(..) | Self::Stopped => Exit::Transient,
        }
    }
}
