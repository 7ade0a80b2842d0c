//! Packs a shard into a batches file.

use arrow::array::AsArray;
use plmkit_cli::{Exit, Fault, Program, Stop};
use plmkit_contract::{
    DESCRIPTION, Labels, Provenance, SAMPLE, SOURCE, SPECIAL_TOKENS, WINDOWS, ordinals, path_text,
};
use plmkit_pack::{Groups, Packing, PackingReport, pack};
use plmkit_store::{BatchesWriter, FileKind, Shard, existing_batches, read_shard, write_json};
use tracing::{info, warn};

use crate::args::Args;
use crate::report::{BatchesReport, summary, warning};

/// Packs the shard, unless the output is complete.
pub(crate) fn run(args: &Args, stop: &Stop) -> Result<Exit, Fault> {
    args.check_paths()?;
    let capacity = args.batch_tokens()?;
    let shard = read_shard(&args.shard).map_err(|error| error.of_input(FileKind::Shard))?;
    let sequences = shard
        .batches
        .iter()
        .map(|batch| batch["sequence"].as_string::<i32>());
    let residues = sequences.flat_map(|sequences| sequences.offsets().lengths());
    let lengths: Vec<u32> = residues
        .map(|residues| residues as u32 + SPECIAL_TOKENS)
        .collect();
    // The windows of a protein are adjacent rows with its ordinal.
    let groups = Groups::runs(shard.batches.iter().flat_map(ordinals));
    let packing = pack(&lengths, &groups, capacity);
    let report = PackingReport::new(&packing, &lengths);
    let labels = Labels {
        sample: shard.provenance.text_option(SAMPLE).is_some(),
        description: args.description,
    };
    let provenance = provenance(&shard, labels, capacity);

    let done = !args.force && existing_batches(&args.out, &provenance, stop)?.is_some();
    if !done {
        let mut writer = BatchesWriter::create(&args.out, labels, &provenance)?;
        write(&mut writer, &shard, labels, &packing, stop)?;
        writer.finish()?;
    }
    if let Some(path) = &args.report {
        write_json(path, &BatchesReport::new(&provenance, &report))?;
    }
    let done = if done { "already complete: " } else { "" };
    let out = path_text(&args.out);
    info!("{out}: {done}{}", summary(&report));
    if let Some(what) = warning(&report) {
        warn!("{out}: {what}");
    }
    Ok(Exit::Done)
}

/// Returns the provenance of the batches of `shard`.
fn provenance(shard: &Shard, labels: Labels, capacity: u32) -> Provenance {
    let mut provenance = Provenance::new(Args::NAME, vec![shard.digest.to_string()])
        .with(SOURCE, shard.provenance.source())
        .with("max_batch_tokens", capacity);
    if let Some(sample) = shard.provenance.text_option(SAMPLE) {
        provenance = provenance.with(SAMPLE, sample);
    }
    if labels.description {
        provenance = provenance.with(DESCRIPTION, true);
    }
    // Even if this shard has no long protein, because all files of a set are embedded alike.
    if shard.provenance.text_option("long_policy") == Some("window") {
        provenance = provenance.with(WINDOWS, true);
    }
    provenance
}

/// Writes one record batch for each batch.
fn write(
    writer: &mut BatchesWriter,
    shard: &Shard,
    labels: Labels,
    packing: &Packing,
    stop: &Stop,
) -> Result<(), Fault> {
    let rows = shard.rows();
    for batch in packing.batches() {
        if stop.requested() {
            return Err(Fault::new(Exit::Transient, "stopped"));
        }
        let rows = batch.iter().map(|&row| rows.get(row as usize));
        writer.write(&shard.pack(rows, labels)?)?;
    }
    Ok(())
}
