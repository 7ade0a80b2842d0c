#!/usr/bin/env python3
"""Turns a fair-esm checkpoint of an ESM-2, an ESM-1b or an ESM-1v into a folder that gpu-embed and transformers read.

    convert-fair-esm.py esm2_t6_8M_UR50D.pt esm2_t6_8M_UR50D

reads esm2_t6_8M_UR50D.pt, and beside it esm2_t6_8M_UR50D-contact-regression.pt if that is there, and writes config.json and
model.safetensors into the folder esm2_t6_8M_UR50D. It needs Python with torch, safetensors and numpy. Values are stored as they
are; nothing in the checkpoint is run: it is opened with weights_only, and argparse.Namespace is the one class let in.
"""

import argparse
import json
import re
import sys
from pathlib import Path

VOCABULARY, MASK = 33, 32
POSITIONS = "esm.embeddings.position_embeddings.weight"
# Names of fair-esm -> names of the Hub, the number of the layer in between.
LAYER = {
    "self_attn.q_proj": "attention.self.query",
    "self_attn.k_proj": "attention.self.key",
    "self_attn.v_proj": "attention.self.value",
    "self_attn.out_proj": "attention.output.dense",
    "self_attn_layer_norm": "attention.LayerNorm",
    "fc1": "intermediate.dense",
    "fc2": "output.dense",
    "final_layer_norm": "LayerNorm",
}
ELSEWHERE = {
    "embed_tokens.weight": "esm.embeddings.word_embeddings.weight",
    "embed_positions.weight": "esm.embeddings.position_embeddings.weight",
    "emb_layer_norm_before.weight": "esm.embeddings.layer_norm.weight",
    "emb_layer_norm_before.bias": "esm.embeddings.layer_norm.bias",
    "emb_layer_norm_after.weight": "esm.encoder.emb_layer_norm_after.weight",
    "emb_layer_norm_after.bias": "esm.encoder.emb_layer_norm_after.bias",
    "contact_head.regression.weight": "esm.contact_head.regression.weight",
    "contact_head.regression.bias": "esm.contact_head.regression.bias",
    "lm_head.bias": "lm_head.bias",
    "lm_head.dense.weight": "lm_head.dense.weight",
    "lm_head.dense.bias": "lm_head.dense.bias",
    "lm_head.layer_norm.weight": "lm_head.layer_norm.weight",
    "lm_head.layer_norm.bias": "lm_head.layer_norm.bias",
}
# The word embedding again, and what other tasks of the training needed.
UNUSED = {"lm_head.weight", "version", "_float_tensor"}


class Refused(Exception):
    """What is wrong with the checkpoint."""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path, help="the .pt file")
    parser.add_argument("folder", type=Path, help="the folder to write, which must not be there yet")
    arguments = parser.parse_args()
    try:
        convert(arguments.checkpoint, arguments.folder)
    except ImportError as error:
        return failed(parser, f"{error.name} is missing: expected Python with torch, safetensors and numpy", 69)
    except Refused as error:
        return failed(parser, error, 65)
    except FileNotFoundError as error:
        return failed(parser, f"{error.filename}: {error.strerror}", 66)
    except OSError as error:
        return failed(parser, f"{error.filename}: {error.strerror}", 73)
    return 0


def failed(parser, what, code):
    print(f"{parser.prog}: {what}", file=sys.stderr)
    return code


def convert(checkpoint, folder):
    # safetensors needs numpy, and would say so when half of the folder is written.
    import numpy  # noqa: F401
    from safetensors.torch import save_file

    sizes, state = read(checkpoint)
    tensors = {}
    for name, tensor in state.items():
        if (new := renamed(name)) is not None:
            tensors[new] = tensor.contiguous()
    check(checkpoint, sizes, tensors)
    folder.mkdir()
    # The weights last, under another name until they are whole: a folder without them is no checkpoint.
    (folder / "config.json").write_text(json.dumps(config(sizes, tensors), indent=2, sort_keys=True) + "\n")
    begun = folder / ".model.safetensors"
    save_file(tensors, begun, metadata={"format": "pt"})
    # safetensors leaves it to its owner alone.
    begun.chmod((folder / "config.json").stat().st_mode)
    begun.rename(folder / "model.safetensors")


def read(checkpoint):
    """The sizes of the model, and its tensors by fair-esm's names without their prefixes."""
    data = load(checkpoint)
    model, cfg, args = map(data.get, ("model", "cfg", "args")) if isinstance(data, dict) else (None, None, None)
    cfg = cfg.get("model") if isinstance(cfg, dict) else cfg or args
    if not isinstance(model, dict) or not isinstance(cfg, argparse.Namespace):
        what = "an ESM-2 with the keys 'cfg' and 'model', or an ESM-1b or ESM-1v with 'args' and 'model'"
        raise Refused(f"{checkpoint}: expected {what}; other models are not converted")
    if args is not None and getattr(args, "arch", None) != "roberta_large":
        raise Refused(f"{checkpoint}: of the models with the key 'args', ESM-1b and ESM-1v are converted")
    state = {re.sub(r"^encoder\.(sentence_encoder\.)?", "", name): tensor for name, tensor in model.items()}
    contacts = checkpoint.with_name(f"{checkpoint.stem}-contact-regression.pt")
    if contacts.exists():
        state.update(load(contacts)["model"])
    if args is not None and "embed_tokens.weight" in state:
        # As fair-esm does when it loads an ESM-1b or an ESM-1v.
        state["embed_tokens.weight"][MASK] = 0
    return cfg, state


def load(path):
    import torch

    try:
        with torch.serialization.safe_globals([argparse.Namespace]):
            return torch.load(path, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as error:
        # What torch says is an advice to run the code in the file.
        raise Refused(f"{path}: not a checkpoint, or one with other objects than tensors and sizes") from error


def renamed(name):
    """The Hub's name of a tensor, or None for one that is not needed."""
    if name in UNUSED:
        return None
    if name in ELSEWHERE:
        return ELSEWHERE[name]
    if match := re.fullmatch(r"layers\.(\d+)\.self_attn\.rot_emb\.inv_freq", name):
        return f"esm.encoder.layer.{match[1]}.attention.self.rotary_embeddings.inv_freq"
    if (match := re.fullmatch(r"layers\.(\d+)\.(.+)\.(weight|bias)", name)) and match[2] in LAYER:
        return f"esm.encoder.layer.{match[1]}.{LAYER[match[2]]}.{match[3]}"
    raise Refused(f"tensor {name!r}: not one of an ESM-2")


def check(checkpoint, sizes, tensors):
    try:
        layers, width, heads = sizes.encoder_layers, sizes.encoder_embed_dim, sizes.encoder_attention_heads
    except AttributeError as error:
        raise Refused(f"{checkpoint}: {error}; not the configuration of an ESM-2") from error
    words = tensors.get("esm.embeddings.word_embeddings.weight")
    if words is None or tuple(words.shape) != (VOCABULARY, width) or width % heads:
        raise Refused(f"{checkpoint}: expected the embedding of {VOCABULARY} tokens in {width} channels; not an ESM-2")
    for layer in range(layers):
        for part in [f"{name}.{kind}" for name in LAYER.values() for kind in ("weight", "bias")]:
            if f"esm.encoder.layer.{layer}.{part}" not in tensors:
                raise Refused(f"{checkpoint}: no tensor for {part} of layer {layer}")
        frequencies = f"esm.encoder.layer.{layer}.attention.self.rotary_embeddings.inv_freq"
        if (frequencies in tensors) == (POSITIONS in tensors):
            raise Refused(f"{checkpoint}: layer {layer}: expected rotary frequencies or a table of positions")


def config(sizes, tensors):
    words = tensors["esm.embeddings.word_embeddings.weight"]
    return {
        "architectures": ["EsmForMaskedLM"],
        "attention_probs_dropout_prob": 0.0,
        "emb_layer_norm_before": "esm.embeddings.layer_norm.weight" in tensors,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.0,
        "hidden_size": sizes.encoder_embed_dim,
        "initializer_range": 0.02,
        "intermediate_size": tensors["esm.encoder.layer.0.intermediate.dense.weight"].shape[0],
        "is_folding_model": False,
        "layer_norm_eps": 1e-05,
        "mask_token_id": 32,
        "max_position_embeddings": tensors[POSITIONS].shape[0] if POSITIONS in tensors else 1026,
        "model_type": "esm",
        "num_attention_heads": sizes.encoder_attention_heads,
        "num_hidden_layers": sizes.encoder_layers,
        "pad_token_id": 1,
        "position_embedding_type": "absolute" if POSITIONS in tensors else "rotary",
        "token_dropout": bool(getattr(sizes, "token_dropout", POSITIONS not in tensors)),
        "torch_dtype": str(words.dtype).removeprefix("torch."),
        "use_cache": True,
        "vocab_size": VOCABULARY,
    }


if __name__ == "__main__":
    sys.exit(main())
