//! Makes a set of shards from FASTA inputs.

use std::collections::HashSet;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use plmkit_contract::Manifest;
use plmkit_kit::{Stop, path_text};
use plmkit_store::{AtomicFile, StoreError, UnfinishedFolder};
use rayon::{ScopeFifo, ThreadPoolBuilder};

use crate::config::ShardConfig;
use crate::duplicate::DuplicatePolicy;
use crate::error::ShardError;
use crate::existing::{compare, compare_options, is_set};
use crate::folder::{list_set, publish_set, remove_temporaries};
use crate::input::{can_be_read_again, check, shown};
use crate::known::KnownDatasets;
use crate::sharding_run::ShardingRun;
use crate::source::Source;

/// Makes a set of shards: reads the inputs once, writes the shards, `rejects.csv` and, last, `manifest.json`. Returns `None` if the
/// same set already exists, complete and undamaged. After an error, [`StoreError::Stopped`] among them, nothing is left behind.
///
/// Only the fingerprints of ids, and of sequences if duplicates are to be found, grow with the inputs.
pub fn make_shards(config: &ShardConfig, stop: &Stop) -> Result<Option<Manifest>, ShardError> {
    for input in &config.inputs {
        check(input).map_err(StoreError::cannot_open(input))?;
    }
    let mut folder = UnfinishedFolder::at(&config.folder);
    folder.make()?;
    // A complete set can be verified in a read-only folder.
    let claimed = match folder.lock() {
        Err(busy @ StoreError::Busy { .. }) => return Err(busy.into()),
        claimed => claimed,
    };
    let found = list_set(&folder)?;
    check_inputs(&config.inputs, &folder, &found)?;
    let options = config.provenance(Vec::new(), None).options;
    let known = KnownDatasets::open(&config.known, &options)?;
    let known = known.as_ref();
    if let Some(known) = known {
        check_inputs(&known.files(), &folder, &found)?;
    }
    if !found.is_empty() && !is_set(&folder, &found) {
        let first = folder.file(&found[0]);
        let what = io::Error::other("exists, and is of no set of shards; expected another folder");
        return Err(StoreError::cannot_create(&first)(what).into());
    }
    if !config.force && !found.is_empty() && is_complete(config, known, &folder, &found, stop)? {
        if claimed.is_ok() {
            // The set is complete even if temporary files of a killed run cannot be removed.
            let _ = remove_temporaries(&folder);
        }
        return Ok(None);
    }
    claimed?;
    remove_temporaries(&folder)?;
    let threads = ThreadPoolBuilder::new().num_threads(config.threads.get());
    let pool = threads.build().map_err(io::Error::other)?;
    let made = pool.scope_fifo(|scope| make(config, known, &folder, scope, stop));
    // An error may be that another run has taken the folder over.
    let (files, manifest) = folder.check().map_err(ShardError::from).and(made)?;
    publish_set(&folder, files, &manifest)?;
    Ok(Some(manifest))
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

/// Makes the files of the set, with their names, and its manifest.
fn make<'scope>(
    config: &ShardConfig,
    known: Option<&KnownDatasets>,
    folder: &'scope UnfinishedFolder,
    tasks: &ScopeFifo<'scope>,
    stop: &Stop,
) -> Result<(Vec<(String, AtomicFile)>, Manifest), ShardError> {
    let sequences = known.map(|known| known.read(stop)).transpose()?;
    let mut run = ShardingRun::new(config, folder, tasks, sequences)?;
    if config.options.duplicate_ids == DuplicatePolicy::Suffix {
        let inputs = config.inputs.iter();
        for input in inputs.filter(|input| can_be_read_again(input)) {
            run.announce(input, stop)?;
        }
    }
    for input in &config.inputs {
        run.read(input, stop)?;
    }
    run.finish(known)
}

/// Checks that no input is a file that the new set replaces.
fn check_inputs(
    inputs: &[PathBuf],
    folder: &UnfinishedFolder,
    found: &[String],
) -> Result<(), ShardError> {
    let inode = |path: &Path| path.metadata().ok().map(|found| (found.dev(), found.ino()));
    let outputs = found.iter().map(|name| inode(&folder.file(name)));
    let outputs: HashSet<_> = outputs.flatten().collect();
    let mut inputs = inputs.iter().filter(|input| *input != Path::new("-"));
    let taken = inputs.find(|input| inode(input).is_some_and(|inode| outputs.contains(&inode)));
    taken.map_or(Ok(()), |input| {
        Err(ShardError::InputInFolder(input.clone()))
    })
}

/// Compares the content of the folder with the requested work. Returns whether the set is complete.
fn is_complete(
    config: &ShardConfig,
    known: Option<&KnownDatasets>,
    folder: &UnfinishedFolder,
    found: &[String],
    stop: &Stop,
) -> Result<bool, ShardError> {
    let digests = config.inputs.iter();
    let digests = digests.map(|input| Ok(Source::open(input, stop)?.finish()?.0));
    let work = config.provenance(digests.collect::<Result<_, ShardError>>()?, known);
    let is_complete = compare(folder, found, &work, stop)?;
    let mut inputs = config.inputs.iter();
    match inputs.find(|input| !can_be_read_again(input)) {
        Some(input) if !is_complete => {
            let input = path_text(shown(input));
            let difference = format!("an unfinished set, and {input} cannot be read again");
            Err(StoreError::exists(folder.path(), difference).into())
        }
        _ => Ok(is_complete),
    }
}
