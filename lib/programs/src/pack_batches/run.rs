//! Packs a shard into a batches file.

use std::path::Path;

use plmkit_cli::{Exit, Fault, Program, Stop};
use plmkit_contract::{
    DESCRIPTION, KNOWN, Kind, Labels, Provenance, SAMPLE, SOURCE, SPECIAL_TOKENS, WINDOWS,
};
use plmkit_kit::path_text;
use plmkit_logs::Tier;
use plmkit_pack::{PackingReport, pack};
use plmkit_store::{BatchesWriter, ShardReader, StoreError, identify, verify, write_json};
use tracing::{error, info, warn};

use super::args::Args;
use super::report::{BatchesReport, summary, warning};

/// Packs the shard, unless the output is complete.
///
/// # Errors
/// The shard is damaged, or the output is of other work.
pub fn run(args: &Args, stop: &Stop) -> Result<Exit, Fault> {
    args.check_paths()?;
    let (capacity, out) = (args.batch_tokens()?, &args.out);
    let (provenance, report, done) = pack_shard(
        &args.shard,
        out,
        capacity,
        args.options.description,
        args.force,
        stop,
    )?;
    if let Some(path) = &args.report {
        write_json(path, &BatchesReport::new(&provenance, &report))?;
    }
    let done = if done { "already complete: " } else { "" };
    let out = path_text(out);
    info!("{out}: {done}{}", summary(&report));
    match warning(&report) {
        Some((tier @ Tier::Critical, what)) => error!("{out}: {tier}: {what}"),
        Some((_, what)) => warn!("{out}: {what}"),
        None => {}
    }
    Ok(Exit::Done)
}

/// Packs a shard into batches of at most `capacity` tokens. Returns what they are made of, how full they are, and whether they were
/// there already.
pub(crate) fn pack_shard(
    shard: &Path,
    out: &Path,
    capacity: u32,
    description: bool,
    force: bool,
    stop: &Stop,
) -> Result<(Provenance, PackingReport, bool), Fault> {
    let mut shard = ShardReader::open(shard)?;
    let rows = shard.digest().rows() as usize;
    let (mut lengths, mut proteins) = (Vec::with_capacity(rows), Vec::with_capacity(rows));
    shard.lengths(|ordinal, _, residues| {
        lengths.push(residues + SPECIAL_TOKENS);
        proteins.push(ordinal);
    })?;
    // The windows of a protein are adjacent rows with its ordinal.
    let batches = pack(&lengths, &proteins, capacity);
    let report = PackingReport::new(&batches, &lengths, capacity);
    let labels = Labels {
        sample: shard.provenance().text_option(SAMPLE).is_some(),
        description,
    };
    let provenance = provenance(&shard, labels, capacity);
    let difference = |found: &Provenance| found.difference(&provenance);
    let done = !force && identify(out, Kind::Batches, difference)?.is_some();
    if done {
        verify(out, Kind::Batches, stop)?;
    } else {
        let mut writer = BatchesWriter::create(out, labels, &provenance)?;
        for batch in &batches {
            StoreError::check(stop)?;
            writer.write(&shard.pack(batch, labels)?)?;
        }
        writer.finish()?;
    }
    Ok((provenance, report, done))
}

/// Returns the provenance of the batches of `shard`.
fn provenance(shard: &ShardReader, labels: Labels, capacity: u32) -> Provenance {
    let mut provenance = Provenance::new(Args::NAME, vec![shard.digest().to_string()])
        .with(SOURCE, shard.provenance().source())
        .with("max_batch_tokens", capacity);
    if let Some(sample) = shard.provenance().text_option(SAMPLE) {
        provenance = provenance.with(SAMPLE, sample);
    }
    if labels.description {
        provenance = provenance.with(DESCRIPTION, true);
    }
    // Even if this shard has no long protein, because all files of a set are embedded alike.
    if shard.provenance().text_option("long_policy") == Some("window") {
        provenance = provenance.with(WINDOWS, true);
    }
    // gpu-embed reads from it what must make the embeddings.
    if let Some(known) = shard.provenance().options.get(KNOWN) {
        provenance = provenance.with(KNOWN, known);
    }
    provenance
}
