//! Why a model could not be had.

use std::io;
use std::path::{Path, PathBuf};

use hf_hub::api::sync::ApiError;
use plmkit_contract::{Exit, Failure, io_text, one_line, path_text};

use crate::ModelId;
use crate::cache::Missing;

/// Why a name of a model led to no files.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// The model is not in the Hub's cache, or not as a whole, and nothing was to be fetched.
    #[error("{id}: no such file or folder, and {missing}; --download fetches it")]
    NotCached {
        /// The model.
        id: ModelId,
        /// What was looked for.
        missing: Missing,
    },
    /// The model is not in the Hub's cache, or not as a whole, and nothing may be fetched.
    #[error("{id}: {missing}; HF_HUB_OFFLINE is set, so nothing is fetched")]
    Offline {
        /// The model.
        id: ModelId,
        /// What was looked for.
        missing: Missing,
    },
    /// Nothing says where the Hub's cache is.
    #[error("no home folder to look for the Hub's cache in; HF_HOME says where it is")]
    NoCache,
    /// A file of the cache cannot be read.
    #[error("{}: cannot read: {}", path_text(.path), io_text(.source))]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
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
    #[error("{}: expected the hash of a commit, found something else", path_text(.path))]
    Ref {
        /// The file.
        path: PathBuf,
    },
    /// The server has no such model.
    #[error(
        "{url}: no such model, revision or file ({status}); a private one needs a token in HF_TOKEN that may read it"
    )]
    NoSuchModel {
        /// What was asked for.
        url: String,
        /// The status of the answer.
        status: u16,
    },
    /// The server does not give the model to the user whose token was sent.
    #[error(
        "{url}: the server refuses the token in HF_TOKEN ({status}); expected one that is valid and may read this model"
    )]
    TokenRefused {
        /// What was asked for.
        url: String,
        /// The status of the answer.
        status: u16,
    },
    /// What `HF_TOKEN` holds cannot be sent. A message never shows the token.
    #[error(
        "HF_TOKEN: expected a token of letters, digits and signs, found a blank, a control character or one that is not ASCII in it"
    )]
    Token,
    /// The server has the model, but no weights that are read.
    #[error("{url}: expected {expected}, found neither")]
    NoWeights {
        /// The model.
        url: String,
        /// The files that weights lie in.
        expected: String,
    },
    /// The server cannot be reached, or went away, or is too busy.
    #[error("{url}: cannot fetch: {what}", what = one_line(what, usize::MAX))]
    Network {
        /// What was asked for.
        url: String,
        /// The reason.
        what: String,
    },
    /// The server's answer is not that of a Hub.
    #[error("{url}: not an answer of a Hub: {what}", what = one_line(what, usize::MAX))]
    Answer {
        /// What was asked for.
        url: String,
        /// What is wrong.
        what: String,
    },
    /// `HF_ENDPOINT` is no address of a server.
    #[error(
        "HF_ENDPOINT: expected an address beginning with https:// or http://, found '{}'",
        one_line(found, 80)
    )]
    Endpoint {
        /// What it is.
        found: String,
    },
    /// The cache cannot be written.
    #[error("{}: cannot write: {}", path_text(.path), io_text(.source))]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// Another process fetches the same model.
    #[error("{}: another process is fetching this model", path_text(.path))]
    Busy {
        /// The lock that it holds.
        path: PathBuf,
    },
    /// A stop was requested.
    #[error("stopped")]
    Stopped,
}

impl HubError {
    /// What a failed request means; `folder` is where its answer was to go.
    pub(crate) fn of_request(url: String, folder: &Path, error: ApiError) -> Self {
        match error {
            ApiError::RequestError(error) => Self::of_http(url, folder, *error),
            ApiError::IoError(source) => Self::of_transfer(url, folder, source),
            ApiError::LockAcquisition(path) => Self::Busy { path },
            other => {
                let what = other.to_string();
                Self::Answer { url, what }
            }
        }
    }

    /// The same error of requests that had a token with them.
    pub(crate) fn with_token(self) -> Self {
        match self {
            Self::NoSuchModel {
                url,
                status: status @ (401 | 403),
            } => Self::TokenRefused { url, status },
            other => other,
        }
    }

    fn of_http(url: String, folder: &Path, error: ureq::Error) -> Self {
        use ureq::Error as Http;
        match error {
            Http::StatusCode(status @ (401 | 403 | 404 | 410)) => Self::NoSuchModel { url, status },
            Http::StatusCode(status @ (408 | 429 | 500..)) => {
                let what = format!("the server answers with status {status}");
                Self::Network { url, what }
            }
            Http::Io(source) => Self::of_transfer(url, folder, source),
            Http::HostNotFound
            | Http::ConnectionFailed
            | Http::ConnectProxyFailed(_)
            | Http::Protocol(_)
            | Http::Timeout(_) => {
                let what = error.to_string();
                Self::Network { url, what }
            }
            other => {
                let what = other.to_string();
                Self::Answer { url, what }
            }
        }
    }

    /// hf-hub reads from the network and writes to the disk in one call, so that either may have failed.
    fn of_transfer(url: String, folder: &Path, source: io::Error) -> Self {
        if of_disk(&source) {
            let path = folder.to_owned();
            Self::Write { path, source }
        } else {
            let what = io_text(&source);
            Self::Network { url, what }
        }
    }
}

/// Whether no network could have failed like this.
fn of_disk(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    matches!(
        error.kind(),
        FileTooLarge | QuotaExceeded | ReadOnlyFilesystem | StorageFull
    )
}

impl Failure for HubError {
    fn exit(&self) -> Exit {
        match self {
            Self::NotCached { .. }
            | Self::Offline { .. }
            | Self::NoCache
            | Self::Read { .. }
            | Self::NoSuchModel { .. }
            | Self::TokenRefused { .. }
            | Self::NoWeights { .. } => Exit::NoInput,
            Self::Damaged { .. } | Self::Ref { .. } | Self::Answer { .. } => Exit::Data,
            Self::Endpoint { .. } | Self::Token => Exit::Usage,
            Self::Write { source, .. } if of_disk(source) => Exit::Io,
            Self::Write { .. } => Exit::CannotCreate,
            Self::Network { .. } | Self::Busy { .. } | Self::Stopped => Exit::Transient,
        }
    }
}
