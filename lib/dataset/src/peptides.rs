//! Where embedded peptides lie on their contigs, as text for genome browsers, and their residues.

use std::collections::{BTreeMap, HashMap};
use std::iter;
use std::path::Path;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use plmkit_contract::{Kind, PEPTIDES_FILE, PeptideRow, ordinals, peptide_rows};
use plmkit_kit::{Quoted, Stop};
use plmkit_store::{AtomicFile, StoreError};
use strum::{Display, EnumMessage, EnumString, VariantArray};

use crate::folder::SHARDS;
use crate::{AskedIds, Dataset, DatasetError, Merge};

/// How places are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, VariantArray, EnumMessage, EnumString)]
#[strum(serialize_all = "lowercase")]
pub enum PlaceFormat {
    /// GFF3: features of type ORF
    #[strum(to_string = "gff", serialize = "gff3")]
    Gff,
    /// BED with six columns
    Bed,
    /// The residues as FASTA, with the place in the header
    #[strum(to_string = "fasta", serialize = "fa", serialize = "faa")]
    Fasta,
}

/// Writes the places of the peptides that have vectors, each once, in the order of the input, and returns their number: of all, or of
/// those with these `ids`. A peptide has vectors if it has a row, or if a list of the shards says which other record has its residues.
/// Memory does not grow with the rows. Other work at `out` is kept unless `force`. FASTA lacks the peptides whose residues earlier
/// datasets have; the second number counts these.
///
/// # Errors
/// If the shards are not those of `fasta-shard --translate` or of several samples, or if asked ids are not among the peptides.
pub fn write_peptides(
    dataset: &Dataset,
    ids: Option<&AskedIds>,
    format: PlaceFormat,
    out: &Path,
    force: bool,
    stop: &Stop,
) -> Result<[u64; 2], DatasetError> {
    if dataset.samples().len() > 1 {
        let what = "expected the folder of one sample: contigs of several may have one name";
        return Err(DatasetError::content(&dataset.path, what));
    }
    let list_path = &dataset.path.join(SHARDS).join(PEPTIDES_FILE);
    if dataset.manifest()?.peptides.is_none() {
        let what = "expected a list of peptides: the shards were cut without --translate";
        return Err(DatasetError::missing(list_path, what));
    }
    if format == PlaceFormat::Fasta {
        let mut file = AtomicFile::create(out)?.keeping(!force);
        let written = write_fasta(dataset, ids, &mut file, stop)?;
        let mut left_out = 0;
        dataset.each_record(Kind::Known, stop, |_| left_out += 1)?;
        ids.map_or(Ok(()), |ids| dataset.check_found(ids, stop))?;
        file.finish()?;
        return Ok([written, left_out]);
    }
    let mut rows = Merge::new(&dataset.parts, [], stop);
    let mut records = vec![ids_of(move || rows.next_rows())];
    let mut peptides = Vec::new();
    for (kind, mut list) in dataset.lists()? {
        if kind == Kind::Peptides {
            peptides.push(list);
        } else {
            records.push(ids_of(move || Ok(list.next_batch()?)));
        }
    }
    let mut file = AtomicFile::create(out)?.keeping(!force);
    if format == PlaceFormat::Gff {
        file.append(b"##gff-version 3\n")?;
    }
    let mut written = 0;
    for list in &mut peptides {
        while let Some(batch) = list.next_batch()? {
            StoreError::check(stop)?;
            for peptide in peptide_rows(&batch) {
                for id_of in &mut records {
                    if let Some(id) = id_of(peptide.ordinal)?
                        && ids.is_none_or(|ids| ids.find(&id, 0))
                    {
                        let line = line(format, peptide, &id);
                        let line = line.map_err(|what| DatasetError::content(list_path, what))?;
                        file.append(line.as_bytes())?;
                        written += 1;
                    }
                }
            }
        }
    }
    ids.map_or(Ok(()), |ids| dataset.check_found(ids, stop))?;
    file.finish()?;
    Ok([written, 0])
}

/// Writes the residues of the peptides that have vectors, shard by shard; after each, the peptides that have the same residues.
fn write_fasta(
    dataset: &Dataset,
    ids: Option<&AskedIds>,
    file: &mut AtomicFile,
    stop: &Stop,
) -> Result<u64, DatasetError> {
    let (mut written, mut copies) = (0, HashMap::<u64, Vec<String>>::new());
    dataset.each_record(Kind::Aliases, stop, |row| {
        let copies = copies.entry(row.representative).or_default();
        copies.push(row.key.id.to_owned());
    })?;
    for listed in &dataset.manifest()?.shards {
        StoreError::check(stop)?;
        let shard = dataset.read_shard(listed)?;
        let mut peptides = BTreeMap::<u64, (String, String)>::new();
        for row in shard.rows().iter() {
            let peptide = peptides.entry(row.key.ordinal).or_default();
            row.key.id.clone_into(&mut peptide.0);
            // Windows overlap.
            let known = peptide.1.len().saturating_sub(row.key.start as usize);
            peptide.1 += row.sequence.get(known..).unwrap_or_default();
        }
        let embedded: Vec<u64> = peptides.keys().copied().collect();
        let mut merge = Merge::new(&dataset.parts, [], stop).of_ordinals(&embedded);
        while let Some(rows) = merge.next_rows()? {
            for ordinal in ordinals(&rows) {
                let Some((id, residues)) = peptides.remove(ordinal) else {
                    continue;
                };
                for id in iter::once(id).chain(copies.remove(ordinal).unwrap_or_default()) {
                    if ids.is_none_or(|ids| ids.find(&id, 0)) {
                        file.append(format!(">{}\n{residues}\n", header(&id)).as_bytes())?;
                        written += 1;
                    }
                }
            }
        }
    }
    Ok(written)
}

/// Returns the id of a peptide, which ends with its frame and place, and the place as others write it.
fn header(id: &str) -> String {
    let fields: Vec<&str> = id.rsplitn(4, '_').collect();
    let [end, start, frame, contig] = fields[..] else {
        return id.to_owned();
    };
    let strand = if frame.starts_with('-') { '-' } else { '+' };
    format!("{id} {contig}:{start}-{end}({strand})")
}

/// Finds the id of the record with an ordinal, if it is among some.
type FindId<'a> = Box<dyn FnMut(u64) -> Result<Option<String>, DatasetError> + 'a>;

/// Finds ids among the records in the order of the input that `read` reads, of which a batch is held. Ordinals are asked in ascending
/// order.
fn ids_of<'a>(
    mut read: impl FnMut() -> Result<Option<RecordBatch>, DatasetError> + 'a,
) -> FindId<'a> {
    // The current batch, and the next of its records.
    let mut current: Option<(RecordBatch, usize)> = None;
    Box::new(move |ordinal| {
        loop {
            if let Some((batch, at)) = &mut current {
                let ordinals = ordinals(batch);
                *at += ordinals[*at..].partition_point(|&other| other < ordinal);
                if let Some(&found) = ordinals.get(*at) {
                    let id = || batch["id"].as_string::<i32>().value(*at).to_owned();
                    return Ok((found == ordinal).then(id));
                }
            }
            current = match read()? {
                Some(batch) => Some((batch, 0)),
                None => return Ok(None),
            };
        }
    })
}

/// The beginnings of the lines of BED that readers take for comments, titles and settings. Some want a word, most a prefix.
const NO_FEATURE: [&str; 6] = ["#", ">", "!", "browser", "track", "visibility"];

/// Returns the line of a peptide. The error says why its format has none.
///
/// Source: <https://github.com/The-Sequence-Ontology/Specifications/blob/master/gff3.md>, <https://samtools.github.io/hts-specs/BEDv1.pdf>.
fn line(format: PlaceFormat, peptide: PeptideRow<'_>, id: &str) -> Result<String, String> {
    let PeptideRow {
        contig,
        start,
        end,
        frame,
        ..
    } = peptide;
    let strand = peptide.strand();
    Ok(match format {
        PlaceFormat::Gff => {
            let contig = escaped(contig, |byte| {
                byte.is_ascii_alphanumeric() || b".:^*$@!+_?-|".contains(&byte)
            });
            let id = escaped(id, |byte| {
                !byte.is_ascii_control() && !b"%;=&,".contains(&byte)
            });
            format!(
                "{contig}\tplmkit\tORF\t{start}\t{end}\t.\t{strand}\t.\tID={id};frame={frame}\n"
            )
        }
        PlaceFormat::Bed if NO_FEATURE.iter().any(|start| contig.starts_with(start)) => {
            return Err(format!(
                "ordinal {} {}: readers of BED pass over a line that begins with the contig {}: expected --format gff",
                peptide.ordinal,
                Quoted(id),
                Quoted(contig)
            ));
        }
        PlaceFormat::Fasta => format!(">{}\n", header(id)),
        PlaceFormat::Bed => format!("{contig}\t{}\t{end}\t{id}\t0\t{strand}\n", start - 1),
    })
}

/// Returns a text with the bytes that are not kept as `%XX`.
fn escaped(text: &str, keep: impl Fn(u8) -> bool) -> String {
    let mut escaped = Vec::with_capacity(text.len());
    for byte in text.bytes() {
        if keep(byte) {
            escaped.push(byte);
        } else {
            escaped.extend(format!("%{byte:02X}").bytes());
        }
    }
    String::from_utf8(escaped).expect("whole characters are kept or escaped")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_escape_what_the_formats_reserve() {
        let peptide = PeptideRow {
            ordinal: 3,
            contig: "NODE|1,x=é",
            start: 4,
            end: 9,
            frame: -2,
        };
        let line = |contig, format| {
            let peptide = PeptideRow { contig, ..peptide };
            line(format, peptide, "NODE|1,x=é_-2_4_9")
        };
        assert_eq!(
            line("NODE|1,x=é", PlaceFormat::Gff).as_deref(),
            Ok(
                "NODE|1%2Cx%3D%C3%A9\tplmkit\tORF\t4\t9\t.\t-\t.\tID=NODE|1%2Cx%3Dé_-2_4_9;frame=-2\n"
            )
        );
        assert_eq!(
            line("NODE|1,x=é", PlaceFormat::Bed).as_deref(),
            Ok("NODE|1,x=é\t3\t9\tNODE|1,x=é_-2_4_9\t0\t-\n")
        );
        assert_eq!(
            line("NODE|1,x=é", PlaceFormat::Fasta).as_deref(),
            Ok(">NODE|1,x=é_-2_4_9 NODE|1,x=é:4-9(-)\n")
        );
        for contig in ["#1", ">1", "!1", "track", "track1", "browser", "visibility"] {
            let error = line(contig, PlaceFormat::Bed).expect_err(contig);
            assert!(error.contains("expected --format gff"), "{error}");
            let gff = line(contig, PlaceFormat::Gff).expect("a name that is escaped");
            assert!(!gff.starts_with(['#', '>']), "{gff}");
        }
        for contig in ["Track", "1#", "subtrack", "="] {
            assert!(line(contig, PlaceFormat::Bed).is_ok(), "{contig}");
        }
    }
}
