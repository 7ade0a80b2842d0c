//! `peptides.parquet`: where the peptides of translated contigs lie.

use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_array::builder::{Int8Builder, Int64Builder, StringBuilder};
use plmkit_contract::{Kind, PeptideRow};

use crate::record_list::{ListRows, RecordListWriter};

/// Writes a list of [`Kind::Peptides`].
pub type PeptidesWriter = RecordListWriter<PeptideRows>;

/// The rows of a list of peptides.
#[derive(Default)]
pub struct PeptideRows {
    ordinals: Int64Builder,
    contigs: StringBuilder,
    starts: Int64Builder,
    ends: Int64Builder,
    strands: StringBuilder,
    frames: Int8Builder,
}

impl ListRows for PeptideRows {
    type Row<'a> = PeptideRow<'a>;

    fn push(&mut self, row: PeptideRow<'_>) -> usize {
        self.ordinals.append_value(row.ordinal.cast_signed());
        self.contigs.append_value(row.contig);
        self.starts.append_value(row.start.into());
        self.ends.append_value(row.end.into());
        self.strands.append_value(row.strand());
        self.frames.append_value(row.frame);
        row.contig.len()
    }

    fn columns(mut self, _: Kind) -> Vec<ArrayRef> {
        vec![
            Arc::new(self.ordinals.finish()),
            Arc::new(self.contigs.finish()),
            Arc::new(self.starts.finish()),
            Arc::new(self.ends.finish()),
            Arc::new(self.strands.finish()),
            Arc::new(self.frames.finish()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use plmkit_contract::{PeptideColumns, Provenance};

    use super::*;
    use crate::RecordListReader;

    #[test]
    fn rows_come_back() {
        let folder = tempfile::tempdir().expect("temp folder");
        let path = folder.path().join("peptides.parquet");
        let rows: Vec<_> = (0..70_000)
            .map(|at| PeptideRow {
                ordinal: 3 * at,
                contig: ["k141_7", "NODE|1,x=\"\""][at as usize % 2],
                start: u32::MAX - 3 * at as u32,
                end: u32::MAX - 2,
                frame: [1, 2, 3, -1, -2, -3][at as usize % 6],
            })
            .collect();
        let mut writer = PeptidesWriter::create(&path, Kind::Peptides).expect("create");
        for row in &rows {
            writer.push(*row).expect("push");
        }
        let finished = writer.finish(&Provenance::new("fasta-shard", Vec::new()));
        finished.expect("finish").publish().expect("publish");
        let mut reader = RecordListReader::open(&path, Kind::Peptides).expect("open");
        let mut found = 0;
        while let Some(batch) = reader.next_batch().expect("read") {
            for row in PeptideColumns::new(&batch).rows() {
                assert_eq!(row, rows[found]);
                found += 1;
            }
        }
        assert_eq!(found, rows.len());
    }
}
