//! `plmkit variants`.

use std::collections::BTreeSet;
use std::fs;
use std::num::NonZero;
use std::path::{Path, PathBuf};

use plmkit_cli::{
    Common, Exit, Fault, Given, Stop, ensure_distinct, ensure_no_stream, ensure_same_kind,
};
use plmkit_contract::{AMINO_ACIDS, Reject, SPECIAL_TOKENS, ShardRow, ShortIds};
use plmkit_dataset::{Dataset, Sites, Table};
use plmkit_engine::rejects_beside;
use plmkit_kit::{Quoted, path_text};
use plmkit_programs::fasta_shard;
use plmkit_programs::gpu_embed::{self, Request};
use plmkit_programs::variants::{EARLIER, TableArgs};
use plmkit_store::{StoreError, read_rejects, read_shard};

use crate::args::input;
use crate::computer::{answer_aside, temporary_folder, warn_of_rejects};
use crate::model;
use crate::search::hide_if_of_records;

/// Score the variants of a table, or all substitutions, by the log-probabilities of a model
///
/// Writes the table with two more columns, `score` and `reason`. The score is the log-probability of the mutant residue less that of the
/// wild type, summed over the substitutions; above 0, the model prefers the mutant. Stops, frameshifts, insertions and deletions have a
/// reason instead. Only the proteins that the table names are computed, in windows if they are long. Leaves nothing but the table.
///
/// Exit codes: 0; 1 if lines are wrong, of which a warning counts them and names the first, or if a protein could not be computed.
#[derive(Debug, clap::Args)]
#[command(mut_args(hide_if_of_records))]
pub(crate) struct VariantsArgs {
    /// FASTA of the proteins, plain or compressed by gzip, bgzip or zstd; - is standard input
    #[arg(value_name = "PROTEINS.fasta", value_parser = input())]
    fasta: PathBuf,

    /// CSV or TSV with a header and a column of variants, such as A123V, p.Ala123Val or A123V:K5R; may be compressed
    #[arg(value_name = "TABLE", value_parser = input(), required_unless_present = "scan")]
    path: Option<PathBuf>,

    /// Write the scores of all 19 substitutions of each residue, instead of those of a table
    #[arg(long, conflicts_with_all = ["path", "column", "id_column", "strict"])]
    scan: bool,

    /// Predict each residue from the others while it is masked, in a pass for each position of the table
    #[arg(long)]
    masked: bool,

    #[command(flatten)]
    table: TableArgs,

    /// Folder or weight file of the model, or an id of the Hugging Face Hub
    #[arg(long, value_name = "MODEL")]
    model: String,

    /// Fetch the model from the Hub if it is not in the local cache
    #[arg(long)]
    download: bool,

    #[command(flatten)]
    computation: Given<gpu_embed::ComputationOptions>,

    #[command(flatten)]
    records: Given<fasta_shard::RecordOptions>,

    /// Compute in N child processes, as on so many GPUs
    #[cfg_attr(feature = "testing", arg(long, value_name = "N", hide = true))]
    #[cfg_attr(not(feature = "testing"), arg(skip))]
    children: Option<usize>,

    #[command(flatten)]
    pub(crate) common: Common,
}

/// The id of a protein, and its residues.
type Protein = (String, String);

impl VariantsArgs {
    pub(crate) fn run(self, stop: &Stop) -> Result<Exit, Fault> {
        let path = self.path.as_deref().unwrap_or(&self.fasta);
        let outputs = self.table.outputs();
        ensure_no_stream(&outputs)?;
        ensure_distinct(&[("the FASTA", &self.fasta), ("the table", path)], &outputs)?;
        ensure_same_kind(&outputs, EARLIER)?;
        let folder = temporary_folder()?;
        let proteins = self.proteins(folder.path(), stop)?;
        let only = proteins.first().filter(|_| proteins.len() == 1);
        let mut table = match &self.path {
            Some(path) => self.table.read(path, only.map(|(id, _)| &**id), stop)?,
            None => scan(&proteins)?,
        };
        let out = self.table.output(&table)?;
        let mut named = ShortIds::new(table.ids());
        let ids = proteins.iter().map(|(id, _)| id);
        ids.for_each(|id| named.see(id));
        table.name(&named);
        let mut sites = Sites::default();
        sites.ask(&table);
        for (id, residues) in &proteins {
            sites.see(id, residues.len() as u32, 1, residues.as_bytes());
        }
        // With --strict, a wrong line costs no computation.
        self.table.scores((path, &table), &sites)?;
        let exit = self.embed(&proteins, &mut sites, folder.path(), stop)?;
        self.table.write(out, (path, &table), &sites, exit)
    }

    /// Reads the proteins.
    fn proteins(&self, folder: &Path, stop: &Stop) -> Result<Vec<Protein>, Fault> {
        let all = folder.join("all");
        let mut words = self.records.words.clone();
        words.push("--max-residues=16777216".into());
        let common = self.common.clone();
        let mut cut = fasta_shard::Args::new(all.clone(), Given::parse(&words)?, None, common);
        (cut.inputs, cut.shards) = (vec![self.fasta.clone()], Some(NonZero::<u32>::MIN));
        fasta_shard::run(cut, stop)?;
        let shard = read_shard(&all.join("shard-00000.parquet"))?;
        let rows = shard.rows();
        let own = |row: ShardRow<'_>| (row.key.id.to_owned(), row.sequence.to_owned());
        let proteins: Vec<Protein> = rows.iter().map(own).collect();
        let mut ids = BTreeSet::new();
        if let Some((id, _)) = proteins.iter().find(|(id, _)| !ids.insert(id)) {
            let what = format!("{} is the id of several records: expected one", Quoted(id));
            return Err(StoreError::malformed(&self.fasta, what).into());
        }
        Ok(proteins)
    }

    /// Computes the log-probabilities of the proteins that have sites, in a folder, and reads them.
    fn embed(
        &self,
        proteins: &[Protein],
        sites: &mut Sites,
        folder: &Path,
        stop: &Stop,
    ) -> Result<Exit, Fault> {
        let names = ["proteins.fasta", "positions.tsv", "shards", "embeddings"];
        let [fasta, listed, shards, out] = names.map(|name| folder.join(name));
        let (mut records, mut lines, mut tokens) = (String::new(), "id\tposition\n".to_owned(), 0);
        for (id, residues) in proteins {
            let positions = sites.positions(id);
            if positions.is_empty() {
                continue;
            }
            records.extend([">", id, "\n", residues, "\n"]);
            lines.extend(positions.iter().map(|at| format!("{id}\t{at}\n")));
            let passes = 1 + usize::from(self.masked) * positions.len();
            tokens += (passes * (residues.len() + SPECIAL_TOKENS as usize)) as u64;
        }
        if tokens == 0 {
            return Ok(Exit::Done);
        }
        let written = fs::write(&fasta, records).and_then(|()| fs::write(&listed, lines));
        let made = written.and_then(|()| fs::create_dir(&out));
        made.map_err(StoreError::cannot_create(&out))?;
        let mut words = self.computation.words.clone();
        let way = if self.masked { "masked" } else { "wild-type" };
        words.push(format!("--scores={way}").into());
        if self.masked {
            words.push(format!("--scores-positions={}", listed.display()).into());
        }
        let (path, common) = (Path::new(&self.model).to_owned(), self.common.clone());
        let mut args = gpu_embed::Args::new(path, Given::parse(&words)?, common);
        args.download = self.download;
        let Some(mut session) = model::open(&args, true, stop)? else {
            return Err(StoreError::Stopped.into());
        };
        let [shards, fasta] = [&shards, &fasta].map(|path| path.display());
        let cut = format!(
            "--out={shards}\n--shards=1\n--long-policy=window\n--alphabet=protein\n{fasta}"
        );
        let rejects = rejects_beside(&out.join("embeddings.parquet"));
        let request = Request::Fasta {
            cut: cut.lines().map(str::to_owned).collect(),
            pack: ["x", "--out=x"].map(str::to_owned).to_vec(),
            folder: out,
        };
        let exit = answer_aside(&args, self.children, &mut session, &request, tokens, stop)?;
        sites.read(&Dataset::open(folder, Err, stop)?, stop)?;
        if exit == Exit::Done {
            return Ok(exit);
        }
        let rejected = read_rejects(&rejects)?.lines;
        for Reject { id, reason, .. } in &rejected {
            sites.reject(id, *reason);
        }
        let fasta = path_text(&self.fasta);
        Ok(warn_of_rejects(&fasta, &rejected, "without scores"))
    }
}

/// The table of all substitutions of these proteins.
fn scan(proteins: &[Protein]) -> Result<Table, Fault> {
    let mut text = "id\tmutant\n".to_owned();
    for (id, residues) in proteins {
        for (position, own) in (1..).zip(residues.chars()) {
            let mutants = AMINO_ACIDS.map(char::from).into_iter();
            let mutants = mutants.filter(|&mutant| mutant != own);
            text.extend(mutants.map(|mutant| format!("{id}\t{own}{position}{mutant}\n")));
        }
    }
    let table = Table::read(text.as_bytes(), [None; 2], None);
    table.map_err(|what| Fault::new(Exit::Data, what))
}
