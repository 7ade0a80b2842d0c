"""Makes model-tiny-{esmc,1b,1v}, golden/{esmc,1b,1v}.safetensors, and model-tiny-esmc-pth, as ESMC was first released.

The models are those of the parity tests in narrow shapes, in float16. Their outputs are those of transformers (ESMC) and
fair-esm in float64: see tests/parity/references.py.
"""

import sys
from collections import OrderedDict
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import save_file

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "tests/parity"))

import checkpoint
import proteins
import references
from configurations import Configuration

SIZES = {"width": 24, "heads": 3, "published_layers": 2, "layers": 2, "proteins": 2, "longest": 37}
RELATIVES = [
    Configuration("esmc", **SIZES, family="esmc", inner=48),
    Configuration("1b", **SIZES, family="esm1b"),
    Configuration("1v", **SIZES, family="esm1v"),
]
# Its heads have 64 channels.
FIRST_RELEASE = Configuration(
    "esmc-pth", width=64, heads=1, published_layers=1, layers=1, proteins=0, longest=0, family="esmc", inner=16
)
# 7 residues, and 37 with two X.
PROTEINS = ["B0M3A0", "P81746"]
FIRST_NAMES = [
    ("esmc.norm", "transformer.norm"),
    ("esmc.embed_tokens", "embed"),
    ("esmc.layers", "transformer.blocks"),
    ("input_layernorm", "attn.layernorm_qkv.0"),
    ("self_attn.qkv_proj", "attn.layernorm_qkv.1"),
    ("self_attn.q_norm", "attn.q_ln"),
    ("self_attn.k_norm", "attn.k_ln"),
    ("self_attn.o_proj", "attn.out_proj"),
    ("post_attention_layernorm", "ffn.0"),
    ("mlp.gate_up_proj", "ffn.1"),
    ("mlp.down_proj", "ffn.3"),
    ("lm_head.dense", "sequence_head.0"),
    ("lm_head.layer_norm", "sequence_head.2"),
    ("lm_head.decoder", "sequence_head.3"),
]
JOINED = {"self_attn.qkv_proj": ("q_proj", "k_proj", "v_proj"), "mlp.gate_up_proj": ("gate_proj", "up_proj")}


def golden(configuration):
    """`<accession>/<output>`, as make_goldens.py names them, without `<eos>`."""
    reference = references.truths(configuration)[0](HERE / f"model-tiny-{configuration.name}")
    named = {}
    for protein in proteins.read():
        if protein.accession in PROTEINS:
            found = reference.run(protein)
            for layer in range(configuration.layers + 1):
                found[f"layer_{layer}"] = np.vstack([found[f"bos_{layer}"], found[f"residues_{layer}"]])
            kept = [f"layer_{layer}" for layer in range(configuration.layers + 1)]
            kept += [f"mean_{configuration.layers}", "logits", "contacts"]
            for name in kept:
                if name in found:
                    named[f"{protein.accession}/{name}"] = found[name].astype(np.float32)
    return named


def first_release(configuration):
    values = checkpoint.Values(configuration)
    shapes = checkpoint.shapes(configuration)
    tensors = {name: torch.from_numpy(values.of(name, shape)).half() for name, shape in shapes.items()}
    for joined, parts in JOINED.items():
        for layer in range(configuration.layers):
            module = f"esmc.layers.{layer}.{joined.split('.')[0]}"
            own = [tensors.pop(f"{module}.{part}.weight") for part in parts]
            tensors[f"esmc.layers.{layer}.{joined}.weight"] = torch.cat(own)
    renamed = OrderedDict()
    for name, tensor in sorted(tensors.items()):
        for own, first in FIRST_NAMES:
            name = name.replace(own, first)
        renamed[name] = tensor
    return renamed


def main():
    torch.set_num_threads(1)
    for configuration in RELATIVES:
        checkpoint.write(checkpoint.Values(configuration), HERE / f"model-tiny-{configuration.name}", np.float16)
        path = HERE / f"golden/{configuration.name}.safetensors"
        save_file(golden(configuration), path)
        path.chmod(0o644)
    weights = HERE / "model-tiny-esmc-pth/data/weights/esmc_tiny.pth"
    weights.parent.mkdir(parents=True, exist_ok=True)
    torch.save(first_release(FIRST_RELEASE), weights)


if __name__ == "__main__":
    main()
