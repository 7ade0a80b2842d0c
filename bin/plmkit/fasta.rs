//! FASTA inputs, before anything is computed from them.

use std::io::Read;
use std::path::Path;

use plmkit_cli::Stop;
use plmkit_kit::is_stream;
use plmkit_sequence::{FastaReader, Limits, ShardError};
use plmkit_store::open_input;

/// Extensions that are no part of a sample's name.
const EXTENSIONS: [&str; 12] = [
    "gz", "bgz", "zst", "fasta", "fas", "fa", "faa", "fna", "ffn", "pep", "prot", "txt",
];

/// Returns the first bytes of a file, as far as it can be read; nothing of a pipe, which can be read once.
pub(crate) fn head(path: &Path) -> Vec<u8> {
    let mut head = Vec::new();
    let _ = open_input(path).map(|file| file.take(4096).read_to_end(&mut head));
    head
}

/// Whether a file has records of FASTA, of which it reads the first as fasta-shard does. A pipe is left to fasta-shard.
pub(crate) fn has_records(path: &Path, limits: Limits, stop: &Stop) -> Result<bool, ShardError> {
    Ok(is_stream(path) || FastaReader::open(path, limits, stop)?.read()?.is_some())
}

/// Returns the name of the sample in a file: the name of the file without extensions, with `_` for what a sample's name cannot have.
pub(crate) fn sample_name(path: &Path) -> String {
    if path == "-" {
        return "stdin".to_owned();
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut name = &*name;
    while let Some((stem, extension)) = name.rsplit_once('.')
        && !stem.is_empty()
        && EXTENSIONS.contains(&&*extension.to_ascii_lowercase())
    {
        name = stem;
    }
    let name: String = name
        .chars()
        .map(|found| match found {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '_' | '-' | '.' => found,
            _ => '_',
        })
        .collect();
    if name.starts_with(['-', '.']) {
        format!("_{name}")
    } else {
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_named_as_its_file() {
        for (file, name) in [
            ("proteomes/yeast.fasta.gz", "yeast"),
            ("UP000005640_9606.faa", "UP000005640_9606"),
            (
                "GCF_000005845.2_ASM584v2_protein.FAA.zst",
                "GCF_000005845.2_ASM584v2_protein",
            ),
            ("my proteins (2).fa", "my_proteins__2_"),
            ("-few.fasta", "_-few"),
            (".fasta", "_.fasta"),
            ("soil", "soil"),
            ("-", "stdin"),
            ("./-", "_-"),
        ] {
            assert_eq!(sample_name(file.as_ref()), name, "{file}");
            assert_eq!(crate::table::check_name(name), Ok(()));
        }
    }
}
