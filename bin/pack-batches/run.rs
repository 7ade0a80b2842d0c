//! From a shard to a batches file.

use plmkit_cli::{Exit, Fault, Program, Stop};
use plmkit_contract::{
    DESCRIPTION, Labels, Provenance, SAMPLE, SOURCE, ShardRow, WINDOWS, batches_schema, path_text,
};
use plmkit_pack::{Groups, PackingReport, Plan, plan};
use plmkit_store::{BatchesWriter, Existing, FileKind, existing_batches, read_shard, write_json};
use tracing::info;

use crate::args::{Args, Config};
use crate::pack::record_batch;
use crate::report::{Report, summary};
use crate::shard::Shard;

/// Packs the shard, unless that is already done.
pub(crate) fn run(args: Args, stop: &Stop) -> Result<Exit, Fault> {
    let config = Config::try_from(args)?;
    let table = read_shard(&config.shard).map_err(|error| error.of_input(FileKind::Shard))?;
    let shard = Shard::new(&table);
    let lengths = shard.token_lengths();
    // The windows of a protein are adjacent rows with its ordinal.
    let groups = Groups::runs(shard.ordinals());
    let plan = plan(&lengths, &groups, config.max_batch_tokens);
    let packing = PackingReport::new(&plan, &lengths);
    let mut provenance = Provenance::new(Args::NAME, vec![table.digest.to_string()])
        .with(SOURCE, table.provenance.source())
        .with("max_batch_tokens", config.max_batch_tokens);
    let sample = table.provenance.text_option(SAMPLE);
    if let Some(sample) = sample {
        provenance = provenance.with(SAMPLE, sample);
    }
    if config.description {
        provenance = provenance.with(DESCRIPTION, true);
    }
    // Also of a shard in which no protein is long: files of one set are embedded alike.
    if table.provenance.text_option("long_policy") == Some("window") {
        provenance = provenance.with(WINDOWS, true);
    }

    let done =
        !config.force && existing_batches(&config.out, &provenance, stop)? != Existing::Absent;
    let done = if done { "already complete: " } else { "" };
    if done.is_empty() {
        write(&config, &shard, &plan, (sample, &provenance), stop)?;
    }
    if let Some(report) = &config.report {
        write_json(report, &Report::new(&provenance, &packing))?;
    }
    info!("{}: {done}{}", path_text(&config.out), summary(&packing));
    Ok(Exit::Done)
}

/// Writes one record batch for each pack.
fn write(
    config: &Config,
    shard: &Shard,
    plan: &Plan,
    (sample, provenance): (Option<&str>, &Provenance),
    stop: &Stop,
) -> Result<(), Fault> {
    let labels = Labels {
        sample: sample.is_some(),
        description: config.description,
    };
    let schema = batches_schema(labels);
    let mut writer = BatchesWriter::create(&config.out, labels, provenance)?;
    for pack in plan.packs() {
        if stop.requested() {
            return Err(Fault::new(Exit::Transient, "stopped"));
        }
        let rows: Vec<ShardRow> = pack.iter().map(|&row| shard.row(row)).collect();
        let batch = record_batch(&rows, sample, &schema).map_err(|fault| {
            let path = path_text(&config.shard);
            Fault::new(fault.exit(), format!("{path}: {}", fault.message()))
        })?;
        writer.write(&batch)?;
    }
    writer.finish()?;
    Ok(())
}
