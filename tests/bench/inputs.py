"""The proteins that are embedded, all from test-data/proteins.fasta; functions of that file alone."""

import itertools

from parity import proteins

LONGEST = 1022
FRAGMENT = 50


def tokens(chosen):
    return sum(len(protein) + 2 for protein in chosen)


def natural(count):
    """`count` proteins, evenly spaced quantiles of length, cut at LONGEST; some come again where there are fewer."""
    ranked = sorted(proteins.read(), key=lambda protein: (len(protein), protein.accession))
    quantiles = (ranked[int((i + 0.5) * len(ranked) / count)] for i in range(count))
    return [proteins.Protein(f"{one.accession}.{i}", one.sequence[:LONGEST]) for i, one in enumerate(quantiles)]


def every():
    return natural(len(proteins.read()))


def pieces(chosen, residues):
    """The same proteins, each cut into equal pieces of about so many residues."""
    found = []
    for protein in chosen:
        parts = max(1, round(len(protein) / residues))
        cuts = [len(protein) * i // parts for i in range(parts + 1)]
        for start, end in itertools.pairwise(cuts):
            found.append(proteins.Protein(f"{protein.accession}.{start}", protein.sequence[start:end]))
    return found


def natural_of(wanted):
    """The natural mix of lengths in about as many tokens as wanted."""
    return natural(max(1, round(wanted * len(every()) / tokens(every()))))


def fragments_of(wanted):
    """The proteins of the natural mix in fragments, as from short reads."""
    return pieces(natural_of(wanted), FRAGMENT)


INPUTS = {"natural": natural_of, "fragments": fragments_of}
