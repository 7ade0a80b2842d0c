"""Honest sets that look unusual. None may fail."""

from faults import numbered
from sets import lengths, pieces


def honest_sets(records, many):
    """(name, proteins, options of fasta-shard, of gpu-embed). Where the number of proteins matters, it is `many`, or a quarter."""
    text = "".join(records[:2000])

    def proteins(count):
        return numbered(records[:count] if len(records) >= count else pieces(records, lengths(count, 20, 120)))

    def cut(begin, length):
        begin %= len(text) - length
        return text[begin : begin + length]

    def with_x(residues):
        return "".join("X" if place * 7 % 10 < 3 else residue for place, residue in enumerate(residues))

    some, one = proteins(-(-many // 4)), cut(1000, 150)
    twice = some + [(f"{id}-copy", residues) for id, residues in some]
    scan = {one[:place] + residue + one[place + 1 :] for place in range(60) for residue in "ACDEFGHIKLMNPQRSTVWY"}
    peptides = [cut(31 * n, 5 + n % 12) for n in range(300)] + [cut(57 * n, 150 + n % 150) for n in range(600)]
    mean, pools, shards = "--pool mean", "--pool mean,max,std,bos", "--shards 3 --max-residues 400"
    pairs, every = numbered(cut(77 * n, 10 + n) for n in range(60)), "--residues --logits --contacts"
    windows = "--shards 3 --long-policy window --max-residues 100 --overlap 30"
    return [
        ("proteins", proteins(many), shards, mean),
        ("proteins, four poolings", proteins(many), shards, pools),
        ("all layers", some, shards, f"--layers all {pools}"),
        ("one shard", some, "--shards 1 --max-residues 400", mean),
        ("twenty shards", some, "--shards 20 --max-residues 400", mean),
        ("int8", some, shards, f"--dtype int8 {pools}"),
        ("bf16", some, shards, f"--dtype bf16 --kernels libtorch {pools}"),
        ("f16", some, shards, f"--dtype f16 --kernels libtorch {pools}"),
        ("f32 stored as f16", some, shards, f"--store-dtype f16 {pools}"),
        ("int8 stored as f16", some, shards, f"--dtype int8 --store-dtype f16 {pools}"),
        ("kernels of libtorch", some, shards, f"--kernels libtorch {pools}"),
        ("all lengths in one shard", numbered(cut(101 * n, n) for n in range(1, 401)), "--shards 1", pools),
        ("variants of a protein", numbered(sorted(scan)), "--shards 3", mean),
        ("poly-A of rising length", numbered("A" * n for n in range(1, 301)), "--shards 3 --alphabet protein", pools),
        ("linkers of rising length", numbered("GGGGS" * n for n in range(1, 81)), "--shards 3", pools),
        ("truncations of a protein", numbered(one[:n] for n in range(1, 151)), "--shards 3", pools),
        ("homopolymers", numbered(residue * 50 for residue in "ACDEFGHIKLMNPQRSTVWYX"), "--shards 2", pools),
        ("one protein", numbered([one]), "--shards 1", pools),
        ("two of one residue", numbered("MK"), "--shards 1", pools),
        ("no row", numbered(cut(31 * n, 200) for n in range(9)), "--shards 1 --long-policy reject --max-residues 100", mean),
        ("30 % X", [(id, with_x(residues)) for id, residues in some], shards, mean),
        ("all X", numbered("X" * n for n in range(1, 61)), "--shards 2", mean),
        ("peptides beside proteins", numbered(peptides), "--max-shard-tokens 4500", mean),
        ("copies", twice, shards, mean),
        ("copies, --dedup", twice, f"{shards} --dedup", mean),
        ("windows, stitched", some, windows, pools),
        ("windows, separate", some, windows, f"--windows separate {pools}"),
        ("residues, logits, contacts", pairs, "--shards 3", every),
        ("residues, logits, contacts, stored as f16", pairs, "--shards 3", f"--store-dtype f16 {every}"),
        ("residues, logits, contacts, f16", pairs, "--shards 3", f"--dtype f16 --kernels libtorch --store-dtype f16 {every}"),
    ]
