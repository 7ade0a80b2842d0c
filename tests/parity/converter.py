"""Makes fair-esm checkpoints of an ESM-2 and of an ESM-1b, converts them, and sees that gpu-embed reads the same models from them.

fair-esm's own loader reads the checkpoint first, so that its form is right. Ends with 0 if all is as it should be, with
2 if a program failed.
"""

import argparse
import dataclasses
import os
import shutil
import subprocess
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import esm
import torch
from safetensors.torch import load_file

import checkpoint
import families
import proteins
import references
from configurations import CONFIGURATIONS
from programs import ProgramFailed, run

ROOT = Path(__file__).parents[2]
CONVERTER = ROOT / "scripts/convert-fair-esm.py"
# Small, and in all else an ESM-1b.
ESM_1B = dataclasses.replace(CONFIGURATIONS[0], name="esm1b_t6_8M", family="esm1b")
OUTPUTS = ["--pool", "mean,bos", "--layers", "all", "--residues", "--logits", "--contacts"]


def write_fair_esm(folder, configuration, pt):
    """Writes the checkpoint of `folder` as fair-esm publishes its own: the contact head in a file beside it."""
    state, contacts = {}, {}
    for hub_name, tensor in load_file(folder / "model.safetensors").items():
        name = references.fair_esm_name(hub_name)
        if configuration.family == "esm2" and name.startswith("embed_positions."):
            continue  # nothing uses it
        if name.startswith("contact_head."):
            contacts[name] = tensor
        elif name.startswith("lm_head."):
            state[f"encoder.{name}"] = tensor
        else:
            state[f"encoder.sentence_encoder.{name}"] = tensor
    state["encoder.lm_head.weight"] = state["encoder.sentence_encoder.embed_tokens.weight"]
    sizes = argparse.Namespace(
        arch="roberta_large",
        encoder_layers=configuration.layers,
        encoder_embed_dim=configuration.width,
        encoder_attention_heads=configuration.heads,
        token_dropout=True,
    )
    if configuration.family == "esm2":
        torch.save({"cfg": {"model": sizes}, "model": state}, pt)
    else:
        sizes.encoder_ffn_embed_dim, sizes.max_positions = configuration.intermediate, families.POSITIONS - 2
        torch.save({"args": sizes, "model": state}, pt)
    torch.save({"model": contacts}, pt.with_name(f"{pt.stem}-contact-regression.pt"))


def check_form(pt):
    load = torch.load
    torch.load = lambda *arguments, **options: load(*arguments, **options | {"weights_only": False})
    try:
        model, _ = esm.pretrained.load_model_and_alphabet_local(str(pt))
    finally:
        torch.load = load
    assert model.embed_tokens.weight.shape[0] == families.VOCABULARY


def main():
    for configuration in (CONFIGURATIONS[0], ESM_1B):
        convert(configuration)


def convert(configuration):
    programs, folder = ROOT / "target/release", ROOT / "target/parity"
    original = checkpoint.make(configuration, folder)
    work = folder / "converter"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    pt, converted = work / f"{configuration.name}.pt", work / "converted"
    write_fair_esm(original, configuration, pt)
    check_form(pt)
    run(Path(sys.executable), CONVERTER, pt, converted)

    proteins.write_fasta(proteins.choose(8, 300), work / "proteins.fasta")
    run(programs / "fasta-shard", work / "proteins.fasta", "--out", work, "--shards", 1)
    run(programs / "pack-batches", work / "shard-00000.parquet", "--out", work / "batches.arrow")
    embed = [work / "batches.arrow", "--device", "cpu", *OUTPUTS]
    for model, out in (original, "original.parquet"), (converted, "converted.parquet"):
        run(programs / "gpu-embed", *embed, "--model", model, "--model-name", configuration.name, "--out", work / out)
    # To the byte: the digest of the model in it, too.
    same = (work / "original.parquet").read_bytes() == (work / "converted.parquet").read_bytes()
    assert same, "the converted model gives other embeddings"

    refused = [programs / "gpu-embed", *embed, "--model", pt, "--out", work / "refused.parquet"]
    done = subprocess.run([*map(str, refused)], capture_output=True, text=True, check=False)
    assert (done.returncode, CONVERTER.name in done.stderr) == (65, True), done
    print(f"{configuration.name} of fair-esm, converted: every output the same to the byte; unconverted: refused, the converter named")


if __name__ == "__main__":
    try:
        main()
    except ProgramFailed as failure:
        print(f"converter: {failure}", file=sys.stderr)
        sys.exit(2)
