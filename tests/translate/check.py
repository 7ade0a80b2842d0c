"""Compares `fasta-shard --translate` with EMBOSS transeq and getorf: the same peptides, frames and coordinates.

    check.py [CONTIGS...]

Named differences, all of them asserted here:
- transeq translates one or two bases that are left over at the end of a frame; fasta-shard leaves them out, as getorf does.
- transeq -clean makes X of a stop codon that ends a frame; fasta-shard leaves it out.
- EMBOSS resolves a few codons with letters other than A, C, G, T and N to a residue that not all of their codons have, or to X
  although they have the same one. fasta-shard gives X unless all of them agree.
- getorf -find 1 leaves out a start codon that is the last codon of its frame: a peptide of one residue.
- EMBOSS has older start codons of codes 3 and 13, and lacks codes 24 to 33.
"""

import gzip
import itertools
import random
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parents[2]
FASTA_SHARD = ROOT / "target/release/fasta-shard"
CODES = [1, 2, 3, 4, 5, 6, 9, 10, 11, 12, 13, 14, 15, 16, 21, 22, 23]
OTHER_STARTS = {3, 13}
DATA = Path("/usr/share/EMBOSS/test/data")
GENOME = Path("/usr/share/doc/bowtie/examples/genomes/NC_008253.fna.gz")
FRAMES = {"1": 1, "2": 2, "3": 3, "4": -1, "5": -2, "6": -3}
IUPAC = {
    "A": "A", "C": "C", "G": "G", "T": "T", "R": "AG", "Y": "CT", "S": "CG", "W": "AT",
    "K": "GT", "M": "AC", "B": "CGT", "D": "AGT", "H": "ACT", "V": "ACG", "N": "ACGT",
}


def fasta(text):
    """Returns the headers and sequences of FASTA."""
    for record in text.split(">")[1:]:
        header, _, sequence = record.partition("\n")
        yield header, "".join(sequence.split())


def emboss(program, contigs, *options):
    command = [program, "-sequence", contigs, "-outseq", "stdout", "-auto", *options]
    return list(fasta(subprocess.run(command, check=True, capture_output=True, text=True).stdout))


def ours(contigs, *options):
    """Returns contig, frame, start, end and residues of each peptide, in the order of the ordinals."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "shards"
        command = [FASTA_SHARD, contigs, "--out", out, "--shards", "3", "--max-residues", str(1 << 24)]
        subprocess.run([*command, *options], check=True, capture_output=True)
        table = pq.read_table(sorted(out.glob("shard-*.parquet")), columns=["ordinal", "id", "sequence"])
    rows = table.sort_by("ordinal").to_pydict()
    places = (re.fullmatch(r"(.+)_(-?[123])_(\d+)_(\d+)", id).groups() for id in rows["id"])
    return [(contig, int(frame), int(start), int(end), residues)
            for (contig, frame, start, end), residues in zip(places, rows["sequence"])]


def same(what, expected, found):
    """Compares two lists of peptides in any order."""
    expected, found = Counter(expected), Counter(found)
    missing, more = expected - found, found - expected
    assert not missing and not more, f"{what}: missing {list(missing)[:3]}, more {list(more)[:3]}"
    print(f"{what}: {sum(found.values())} peptides, {sum(len(row[-1]) for row in found.elements())} residues")


def getorf(name, contigs, code, between, least):
    find = {"stops": "0", "start-stop": "1"}[between]
    options = ("-find", find, "-minsize", str(3 * least), "-maxsize", "300000000", "-table", str(code))
    expected = []
    for header, residues in emboss("getorf", contigs, *options):
        if residues:
            contig, start, end = re.match(r"(.+)_\d+ \[(\d+) - (\d+)\]", header).groups()
            start, end = int(start), int(end)
            reverse = "(REVERSE SENSE)" in header
            start, end = (end, start) if reverse else (start, end)
            frame = (start - 1) % 3 + 1
            expected.append((contig, -frame if reverse else frame, start, end, residues))
    found = ours(contigs, "--translate", "orf", "--orf-between", between, "--genetic-code", str(code), "--min-residues", str(least))
    same(f"{name}, code {code}, between {between}", expected, found)


def transeq(name, contigs, sizes, code, stops, least):
    clean = {"split": (), "drop": (), "x": ("-clean",)}[stops]
    expected = Counter()
    whole = emboss("transeq", contigs, "-frame", "6", "-table", str(code))
    cleaned = emboss("transeq", contigs, "-frame", "6", "-table", str(code), *clean)
    for (header, plain), (_, residues) in zip(whole, cleaned):
        contig, frame = header.split()[0].rsplit("_", 1)
        frame = FRAMES[frame]
        codons = (sizes[contig] - abs(frame) + 1) // 3
        assert len(residues) - codons in (0, 1), header
        plain, residues = plain[:codons], residues[:codons]
        if plain.endswith("*"):
            residues = residues[:-1]
        if stops == "drop" and "*" in residues:
            continue
        peptides = residues.split("*")
        expected.update((contig, frame, peptide) for peptide in peptides if len(peptide) >= least)
    found = ours(contigs, "--translate", "six-frame", "--stops", stops, "--genetic-code", str(code), "--min-residues", str(least))
    found = [(contig, frame, residues) for contig, frame, _, _, residues in found]
    same(f"{name}, code {code}, six frames, {stops}", expected.elements(), found)


def compare(name, contigs, codes, least=1):
    sizes = {header.split()[0]: len(sequence) for header, sequence in fasta(contigs.read_text())}
    for code in codes:
        getorf(name, contigs, code, "stops", least)
        if code not in OTHER_STARTS:
            getorf(name, contigs, code, "start-stop", max(least, 2))
        for stops in ["split", "drop", "x"]:
            transeq(name, contigs, sizes, code, stops, least)


def codons(folder, code):
    """Compares all codons with ambiguous letters, and returns those that EMBOSS takes otherwise."""
    lines = Path(f"/usr/share/EMBOSS/data/EGC.{code}").read_text().splitlines()
    residues = next(line for line in lines if line.startswith("AAs")).split("=")[1].strip()
    table = {"".join(codon): residue for codon, residue in zip(itertools.product("TCAG", repeat=3), residues)}
    every = ["".join(codon) for codon in itertools.product(IUPAC, repeat=3)]
    contigs = folder / "codons.fasta"
    # The first codon is no start; a residue begins and ends every frame, so that no stop is at an end.
    contigs.write_text("".join(f">{codon}\nGCC{codon}GCC\n" for codon in every))
    theirs = [residues[1] for header, residues in emboss("transeq", contigs, "-table", str(code))]
    stop = "--stops", "split"
    found = ours(contigs, "--translate", "six-frame", *stop, "--genetic-code", str(code), "--min-residues", "1", "--alphabet", "nucleotide")
    frames = {}
    for contig, frame, _, _, residues in found:
        if frame == 1:
            frames.setdefault(contig, []).append(residues)
    different = []
    for codon, emboss_residue in zip(every, theirs):
        mine = "*".join(frames[codon])[1]
        agreed = {table["".join(bases)] for bases in itertools.product(*(IUPAC[letter] for letter in codon))}
        assert mine == (agreed.pop() if len(agreed) == 1 else "X"), (code, codon, mine)
        if mine != emboss_residue:
            assert not set(codon) <= set("ACGTN"), (code, codon)
            different.append(codon)
    print(f"code {code}: {len(every)} codons with ambiguity; EMBOSS takes {len(different)} otherwise: {' '.join(different)}")
    assert len(different) <= 17


def made(folder):
    """Writes contigs of every length up to 40, and longer ones with lower case, N and U."""
    source = random.Random(7)
    contigs = folder / "made.fasta"
    with contigs.open("w") as file:
        for number, length in enumerate([*range(3, 41), 200, 999, 1000, 1001, 20_000]):
            letters = ["ACGT", "ACGTN", "acgtACGT", "ACGU"][number % 4]
            file.write(f">c_{number} made\n{''.join(source.choices(letters, k=length))}\n")
    return contigs


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        compare("made", made(folder), CODES)
        for name in ["feat.fasta", "paamir.fasta", "pax6_cdna.fasta", "tropomyosin.fasta"]:
            # EMBOSS leaves out the name of a database.
            contigs = folder / name
            contigs.write_text((DATA / name).read_text().replace(">embl:", ">"))
            compare(name, contigs, [1, 11])
        genome = folder / "genome.fasta"
        _, bases = gzip.decompress(GENOME.read_bytes()).decode().split("\n", 1)
        genome.write_text(f">genome\n{bases}")
        compare("Escherichia coli 536", genome, [11, 4, 1], least=30)
        for contigs in sys.argv[1:]:
            compare(contigs, Path(contigs), [11], least=30)
        for code in CODES:
            codons(folder, code)


main()
