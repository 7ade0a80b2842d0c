//! Makes a set of shards from FASTA inputs.

use std::collections::HashSet;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use plmkit_contract::{Manifest, Stop};
use plmkit_store::StoreError;
use rayon::ThreadPoolBuilder;

use crate::config::ShardConfig;
use crate::duplicate::DuplicatePolicy;
use crate::error::ShardError;
use crate::existing::{ExistingSet, compare, compare_options};
use crate::folder::{FinishedSet, FolderContents, OutputFolder};
use crate::input::Input;
use crate::known::KnownDatasets;
use crate::sharding_run::ShardingRun;
use crate::source::Source;
use crate::tasks::Tasks;

/// The result of a run.
#[derive(Clone, Debug, PartialEq)]
pub enum ShardOutcome {
    /// The set was made.
    Made(Box<Manifest>),
    /// The same set already existed, complete and undamaged.
    AlreadyComplete,
    /// A stop was requested. Nothing was left behind.
    Stopped,
}

/// Makes a set of shards: reads the inputs once, writes the shards, `rejects.csv` and, last, `manifest.json`.
///
/// Only the fingerprints of ids, and of sequences if duplicates are to be found, grow with the inputs.
pub fn make_shards(config: &ShardConfig, stop: &Stop) -> Result<ShardOutcome, ShardError> {
    for input in &config.inputs {
        let failed = |source| ShardError::Open(input.clone(), source);
        input.check().map_err(failed)?;
    }
    let mut folder = OutputFolder::open(&config.folder)?;
    // A complete set can be verified in a read-only folder.
    let claimed = match folder.claim() {
        Err(busy @ StoreError::Busy { .. }) => return Err(busy.into()),
        claimed => claimed,
    };
    let found = folder.list()?;
    check_inputs(&config.inputs, &folder, &found)?;
    let options = config.provenance(Vec::new(), None).options;
    let known = KnownDatasets::open(&config.known, &options)?;
    let known = known.as_ref();
    if let Some(known) = known {
        check_inputs(&known.files(), &folder, &found)?;
    }
    if !config.force && !found.names.is_empty() {
        match earlier(config, known, &folder, &found, stop)? {
            Some(ExistingSet::Complete) => {
                if claimed.is_ok() {
                    // The set is complete even if temporary files of a killed run cannot be removed.
                    let _ = folder.remove_temporaries(&found);
                }
                return Ok(ShardOutcome::AlreadyComplete);
            }
            Some(ExistingSet::Unfinished) => {}
            None => return Ok(ShardOutcome::Stopped),
        }
    }
    claimed?;
    folder.remove_temporaries(&found)?;
    let threads = ThreadPoolBuilder::new().num_threads(config.threads.get());
    let pool = threads.build().map_err(io::Error::other)?;
    let set = pool.scope_fifo(|scope| make(config, known, &folder, Tasks(scope), stop))?;
    match set {
        Some(set) => Ok(ShardOutcome::Made(Box::new(folder.publish(set)?))),
        None => Ok(ShardOutcome::Stopped),
    }
}

/// Checks what [`make_shards`] would refuse before it reads an input: known datasets, and a set of other options in the folder.
pub fn check_work(config: &ShardConfig) -> Result<(), ShardError> {
    let options = config.provenance(Vec::new(), None).options;
    let known = KnownDatasets::open(&config.known, &options)?;
    if !config.force {
        let work = config.provenance(Vec::new(), known.as_ref());
        compare_options(&config.folder, &work)?;
    }
    Ok(())
}

/// Makes the files of the set. Returns `None` after a stop.
fn make<'a>(
    config: &'a ShardConfig,
    known: Option<&KnownDatasets>,
    folder: &'a OutputFolder,
    tasks: Tasks<'a, '_>,
    stop: &Stop,
) -> Result<Option<FinishedSet>, ShardError> {
    let sequences = match known.map(|known| known.read(stop)).transpose()? {
        Some(None) => return Ok(None),
        read => read.flatten(),
    };
    let mut run = ShardingRun::new(config, folder, tasks, sequences)?;
    if config.options.duplicate_ids == DuplicatePolicy::Suffix {
        let inputs = config.inputs.iter();
        for input in inputs.filter(|input| input.can_be_read_again()) {
            if !run.announce(input, stop)? {
                return Ok(None);
            }
        }
    }
    for input in &config.inputs {
        if !run.read(input, stop)? {
            return Ok(None);
        }
    }
    run.finish(known).map(Some)
}

/// Checks that no input is a file that the new set replaces.
fn check_inputs(
    inputs: &[Input],
    folder: &OutputFolder,
    found: &FolderContents,
) -> Result<(), ShardError> {
    let inode = |path: &Path| path.metadata().ok().map(|found| (found.dev(), found.ino()));
    let outputs: HashSet<_> = found
        .names
        .iter()
        .filter_map(|name| inode(&folder.file(name)))
        .collect();
    for input in inputs {
        if let Input::File(path) = input
            && inode(path).is_some_and(|inode| outputs.contains(&inode))
        {
            return Err(ShardError::InputInFolder(input.clone()));
        }
    }
    Ok(())
}

/// Compares the content of the folder with the requested work. Returns `None` after a stop.
fn earlier(
    config: &ShardConfig,
    known: Option<&KnownDatasets>,
    folder: &OutputFolder,
    found: &FolderContents,
    stop: &Stop,
) -> Result<Option<ExistingSet>, ShardError> {
    let mut digests = Vec::new();
    for input in &config.inputs {
        let source = Source::open(input, stop)?;
        match source.digest(stop)? {
            Some(digest) => digests.push(digest),
            None => return Ok(None),
        }
    }
    let work = config.provenance(digests, known);
    let earlier = match compare(folder, found, &work, stop) {
        Err(StoreError::Stopped) => return Ok(None),
        compared => compared?,
    };
    let mut inputs = config.inputs.iter();
    match inputs.find(|input| !input.can_be_read_again()) {
        Some(input) if earlier == ExistingSet::Unfinished => {
            let difference = format!("an unfinished set, and {input} cannot be read again");
            Err(StoreError::exists(folder.path(), difference).into())
        }
        _ => Ok(Some(earlier)),
    }
}
