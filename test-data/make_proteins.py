"""Picks proteins.fasta from the example data of MMseqs2 (Debian package mmseqs2-examples).

The choice is a function of the input alone: evenly spaced quantiles of length, and by name the cases a program must not
trip over. Records keep their original headers and their original order.
"""

import gzip
import sys
import textwrap
from pathlib import Path

SOURCE = Path("/usr/share/doc/mmseqs2/example-data/DB.fasta.gz")
TARGET = Path(__file__).with_name("proteins.fasta")

ORDINARY = 81  # quantiles of length among the proteins that fit a 1022-residue window
UNKNOWN = 8  # quantiles of length among those with an X
LONG = [1022, 1023, 1100, 1279, 1600, 2045, 2700, 4100]  # the nearest protein to each


def read(path):
    records = []
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            if line.startswith(">"):
                records.append((line[1:].rstrip("\n"), []))
            else:
                records[-1][1].append(line.strip())
    return [(header, "".join(lines)) for header, lines in records]


def quantiles(ranked, count):
    return [ranked[round(i * (len(ranked) - 1) / (count - 1))] for i in range(count)]


def choose(records):
    """Returns the positions of the chosen records, in the order of the input."""

    def length(position):
        return len(records[position][1])

    ranked = sorted(range(len(records)), key=lambda position: (length(position), records[position][0]))
    plain = [p for p in ranked if not set("XBZUO") & set(records[p][1])]
    chosen = set(quantiles([p for p in plain if length(p) <= 1022], ORDINARY))
    chosen |= set(quantiles([p for p in ranked if "X" in records[p][1] and length(p) <= 1022], UNKNOWN))
    chosen |= {p for p in ranked if set("BZUO") & set(records[p][1])}
    for target in LONG:
        chosen.add(min(plain, key=lambda p: (abs(length(p) - target), records[p][0])))
    return sorted(chosen)


def main():
    records = read(Path(sys.argv[1]) if len(sys.argv) > 1 else SOURCE)
    with TARGET.open("w", encoding="utf-8") as out:
        for position in choose(records):
            header, sequence = records[position]
            out.write(f">{header}\n" + "\n".join(textwrap.wrap(sequence, 60)) + "\n")


if __name__ == "__main__":
    main()
