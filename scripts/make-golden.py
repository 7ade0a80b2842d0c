#!/usr/bin/env python3
"""Computes vectors of known proteins with transformers, for validate-embeddings --reference.

    make-golden.py facebook/esm2_t33_650M_UR50D proteins.fasta esm2_t33_650M_UR50D.golden.parquet

reads the model, a folder or a name on the Hugging Face Hub, and the proteins, of which each is computed alone, in float64 on the CPU.
It writes id, sequence, and mean, bos, max and std of the layers (--layers 0,6; by default of the last) as float32. A golden file is
good for one checkpoint, whatever computes with it. It needs Python with torch, transformers and pyarrow.
"""

import argparse
import os
import sys
from pathlib import Path

# The vocabulary of ESM-2.
CLS, EOS, FIRST_RESIDUE = 0, 2, 4
RESIDUES = "LAGVSERTIDPKQNFYMHWCXBUZO"
# Exit codes, as of the programs.
USAGE, DATA, NO_INPUT, CANNOT_CREATE = 2, 65, 66, 73


def fail(code, what):
    print(f"make-golden.py: {what}", file=sys.stderr)
    sys.exit(code)


def read_fasta(path):
    """Returns id -> residues in upper case, without gaps and a final stop."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        fail(DATA, f"{path}: expected a FASTA file")
    except OSError as error:
        fail(NO_INPUT, f"{path}: {error.strerror}")
    proteins, name = {}, None
    for number, line in enumerate(lines, 1):
        if line.startswith(">"):
            name = (line[1:].split() or [""])[0]
            if not name or name in proteins:
                fail(DATA, f"{path}: line {number}: expected an id that no other protein has")
            proteins[name] = ""
        elif name is None and line.strip():
            fail(DATA, f"{path}: line {number}: expected a header that begins with >")
        elif name is not None:
            proteins[name] += line.strip().upper().removesuffix("*")
    if not proteins or not all(proteins.values()):
        fail(DATA, f"{path}: expected proteins with residues")
    for name, sequence in proteins.items():
        if wrong := set(sequence) - set(RESIDUES):
            fail(DATA, f"{path}: {name}: expected residues of ESM-2, found {min(wrong)}")
    return proteins


def layer_list(text):
    return [int(layer) for layer in text.split(",")]


def pool(states):
    """The poolings of a layer: (length + 2, dimension) with <cls> first and <eos> last."""
    residues = states[1:-1]
    return {
        "mean": residues.mean(dim=0),
        "bos": states[0],
        "max": residues.amax(dim=0),
        "std": residues.std(dim=0, correction=0),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a folder, or a name on the Hugging Face Hub")
    parser.add_argument("proteins", type=Path, help="a FASTA file")
    parser.add_argument("output", type=Path, help="the Parquet file to write; an existing one is replaced")
    parser.add_argument("--layers", type=layer_list, help="layers, with commas between them; by default the last")
    arguments = parser.parse_args()
    proteins = read_fasta(arguments.proteins)
    if arguments.output.exists() and arguments.output.samefile(arguments.proteins):
        fail(USAGE, f"{arguments.output}: expected another file than the input")

    import pyarrow as pa
    import pyarrow.parquet as pq
    import torch
    import transformers

    try:
        model = transformers.EsmModel.from_pretrained(arguments.model, add_pooling_layer=False, attn_implementation="eager")
    except (OSError, ValueError) as error:
        fail(NO_INPUT, f"{arguments.model}: {str(error).splitlines()[0]}")
    model = model.double().eval()
    last = model.config.num_hidden_layers
    layers = arguments.layers or [last]
    if wrong := [layer for layer in layers if not 0 <= layer <= last]:
        fail(USAGE, f"{arguments.model}: expected layers from 0 to {last}, found {wrong[0]}")
    columns = {}
    for name, sequence in proteins.items():
        tokens = torch.tensor([[CLS, *(RESIDUES.index(residue) + FIRST_RESIDUE for residue in sequence), EOS]])
        with torch.inference_mode():
            states = model(tokens, torch.ones_like(tokens), output_hidden_states=True).hidden_states
        for layer in layers:
            for pooling, vector in pool(states[layer][0]).items():
                columns.setdefault(f"{pooling}_{layer}", []).append(vector.float().numpy())
    vectors = {name: pa.array([list(v) for v in values], pa.list_(pa.float32())) for name, values in columns.items()}
    table = pa.table({"id": list(proteins), "sequence": list(proteins.values()), **vectors})
    unfinished = arguments.output.with_name(f".{arguments.output.name}.unfinished")
    try:
        pq.write_table(table, unfinished)
        os.replace(unfinished, arguments.output)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        fail(CANNOT_CREATE, f"{arguments.output}: {error.strerror or error}")


if __name__ == "__main__":
    main()
