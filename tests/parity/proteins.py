"""The proteins of a comparison, chosen from test-data/proteins.fasta."""

import textwrap
from dataclasses import dataclass
from pathlib import Path

FASTA = Path(__file__).parents[2] / "test-data/proteins.fasta"
# No protein there has a selenocysteine (U) or a pyrrolysine (O), so one is written as if it had.
RARE = "P81746", str.maketrans("CK", "UO")


@dataclass(frozen=True)
class Protein:
    accession: str
    sequence: str

    def __len__(self):
        return len(self.sequence)


def read():
    proteins = []
    for block in FASTA.read_text(encoding="utf-8").split(">")[1:]:
        header, *lines = block.splitlines()
        proteins.append(Protein(header.split("|")[1], "".join(lines)))
    return proteins


def choose(count, longest):
    """`count` real proteins of at most `longest` residues, and one with U and O; a function of the file alone.

    Up to a quarter are those with B, Z or X, the shortest first; the others are evenly spaced quantiles of length, the
    shortest and the longest included.
    """
    ranked = sorted(read(), key=lambda protein: (len(protein), protein.accession))
    ranked = [protein for protein in ranked if len(protein) <= longest]
    unusual = [protein for protein in ranked if set("BZX") & set(protein.sequence)][: count // 4]
    plain = [protein for protein in ranked if not set("BZX") & set(protein.sequence)]
    wanted = count - len(unusual)
    quantiles = [plain[round(i * (len(plain) - 1) / (wanted - 1))] for i in range(wanted)]
    assert len(set(quantiles)) == wanted
    accession, rare = RARE
    source = next(protein for protein in ranked if protein.accession == accession)
    made = Protein(f"{accession}-UO", source.sequence.translate(rare))
    return sorted([*unusual, *quantiles, made], key=lambda protein: (len(protein), protein.accession))


def write_fasta(proteins, path):
    records = (f">{protein.accession}\n" + "\n".join(textwrap.wrap(protein.sequence, 60)) + "\n" for protein in proteins)
    path.write_text("".join(records), encoding="utf-8")
