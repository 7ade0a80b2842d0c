"""Makes golden/{transformers,fair-esm}.safetensors: what two independent implementations say model-tiny puts out.

Computed in float64 on the CPU and stored in float32, one protein at a time, no padding: a comparison with them measures the
rounding of one side alone. Before anything is written, both are compared in float64 with each other, and in float32 with fair-esm in float64, and four
well-known mistakes are made on purpose to prove that the stored values would give each of them away.
"""

import contextlib
import sys
from pathlib import Path

import esm
import torch
import transformers
from esm.model.esm2 import ESM2
from safetensors.torch import load_file, save_file

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "tests/parity"))

from references import fair_esm_name

MODEL = HERE / "model-tiny"
# 7, 37 (2 X), 96, 140 (B and Z) and 172 (5 X) residues.
PROTEINS = ["B0M3A0", "P81746", "X1R1X0", "P02135", "K7Z353"]
AGREEMENT = 2e-5  # largest error of either reference in float32, relative as in `errors`
EQUAL = 2e-6  # the same in float64, where transformers has sines and cosines in float32
VISIBLE = 1e-4  # smallest change, in the same measure, that a mistake must make


def read_proteins():
    """Returns id -> sequence, the id being the accession in `tr|ACCESSION|NAME`."""
    proteins = {}
    for line in (HERE / "proteins.fasta").read_text(encoding="utf-8").splitlines():
        if line.startswith(">"):
            accession = line.split("|")[1]
            proteins[accession] = ""
        else:
            proteins[accession] += line
    return {name: proteins[name] for name in PROTEINS}


def load_transformers(tensors):
    model, info = transformers.EsmForMaskedLM.from_pretrained(
        MODEL, attn_implementation="eager", dtype=torch.float32, output_loading_info=True
    )
    # The decoder is tied to the embedding; the unused position table is ignored by design.
    assert set(info["missing_keys"]) <= {"lm_head.decoder.weight"}, info
    assert set(info["unexpected_keys"]) <= {"esm.embeddings.position_embeddings.weight"}, info
    assert not info["mismatched_keys"], info
    inv_freq = model.esm.rotary_embeddings.inv_freq
    assert torch.equal(inv_freq, tensors["esm.encoder.layer.0.attention.self.rotary_embeddings.inv_freq"]), inv_freq
    assert model.lm_head.decoder.weight.data_ptr() == model.esm.embeddings.word_embeddings.weight.data_ptr()
    return model.eval()


def load_fair_esm(tensors, config):
    state = {"lm_head.weight": tensors["esm.embeddings.word_embeddings.weight"]}
    for name, tensor in tensors.items():
        # ESM-2 has a table of positions that it does not use.
        if (theirs := fair_esm_name(name)) not in (None, "embed_positions.weight"):
            state[theirs] = tensor
    model = ESM2(config.num_hidden_layers, config.hidden_size, config.num_attention_heads)
    model.load_state_dict(state, strict=True)
    return model.eval()


@torch.no_grad()
def run_transformers(model, tokens):
    out = model(tokens, output_hidden_states=True)
    contacts = model.predict_contacts(tokens, torch.ones_like(tokens))
    return list(out.hidden_states), out.logits, contacts


@torch.no_grad()
def run_fair_esm(model, tokens):
    layers = range(model.num_layers + 1)
    out = model(tokens, repr_layers=layers, return_contacts=True)
    return [out["representations"][i] for i in layers], out["logits"], out["contacts"]


def outputs(run, model, proteins, mean=slice(1, -1)):
    """Returns `<id>/layer_<i>` (tokens, d), `<id>/mean_<N>` (d), `<id>/logits` (tokens, 33), `<id>/contacts` (L, L)."""
    alphabet = esm.data.Alphabet.from_architecture("ESM-1b")
    named = {}
    for name, sequence in proteins.items():
        tokens = torch.tensor([[alphabet.cls_idx, *map(alphabet.get_idx, sequence), alphabet.eos_idx]])
        layers, logits, contacts = run(model, tokens)
        for i, layer in enumerate(layers):
            named[f"{name}/layer_{i}"] = layer[0]
        named[f"{name}/mean_{len(layers) - 1}"] = layers[-1][0, mean].mean(0)
        named[f"{name}/logits"], named[f"{name}/contacts"] = logits[0], contacts[0]
    return named


def errors(found, truth):
    """Returns the largest error of each kind of output, relative to what is large in a typical channel.

    The scale is the median over channels of the channel's largest value: beside outliers of 1e3, an error that spoils
    every other channel would look small.
    """
    worst = {}
    for name, expected in truth.items():
        kind = name.split("/")[1]
        channels = expected.abs().reshape(-1, expected.shape[-1]).amax(0)
        error = (found[name].double() - expected).abs().max() / channels.median()
        worst[kind] = max(worst.get(kind, 0.0), error.item())
    return worst


@contextlib.contextmanager
def replaced(owner, name, value):
    original = getattr(owner, name)
    setattr(owner, name, value)
    yield
    setattr(owner, name, original)


def truth_of(proteins, tensors, config):
    # fair-esm does its softmax in float32 whatever the model's type.
    with replaced(esm.multihead_attention, "utils_softmax", lambda x, dim, onnx_trace=False: torch.softmax(x, dim)):
        return outputs(run_fair_esm, load_fair_esm(tensors, config).double(), proteins)


def mistakes(proteins, tensors, config):
    """Yields a name, the kind of output to look at, and the outputs of fair-esm with one mistake in it."""
    last = f"layer_{config.num_hidden_layers}"
    model = load_fair_esm(tensors, config)
    for layer in model.layers:
        width = layer.self_attn.head_dim
        layer.self_attn.rot_emb.inv_freq = 1.0 / (10000 ** (torch.arange(0, width, 2).float() / width))
    yield "inv_freq recomputed", last, outputs(run_fair_esm, model, proteins)

    model = load_fair_esm(tensors, config)
    model.token_dropout = False
    yield "embedding not scaled by 0.88", last, outputs(run_fair_esm, model, proteins)

    model = load_fair_esm(tensors, config)
    with replaced(esm.modules, "gelu", lambda x: torch.nn.functional.gelu(x, approximate="tanh")):
        yield "tanh GELU", last, outputs(run_fair_esm, model, proteins)

    mean = f"mean_{config.num_hidden_layers}"
    yield "BOS in the mean", mean, outputs(run_fair_esm, model, proteins, mean=slice(0, -1))
    yield "EOS in the mean", mean, outputs(run_fair_esm, model, proteins, mean=slice(1, None))


def main():
    torch.set_num_threads(1)
    tensors = load_file(MODEL / "model.safetensors")
    proteins = read_proteins()
    hugging_face = load_transformers(tensors)
    config = hugging_face.config
    truth = truth_of(proteins, tensors, config)

    for kind in sorted({name.split("/")[1] for name in truth}):
        largest = max(value.abs().max().item() for name, value in truth.items() if name.endswith("/" + kind))
        print(f"{kind}: largest value {largest:.4g}")
    for name, kind, found in mistakes(proteins, tensors, config):
        change = errors(found, truth)[kind]
        print(f"{name}: changes {kind} by {change:.2g}")
        assert change > VISIBLE, name

    (HERE / "golden").mkdir(exist_ok=True)
    in_float32 = {
        "transformers": outputs(run_transformers, hugging_face, proteins),
        "fair-esm": outputs(run_fair_esm, load_fair_esm(tensors, config), proteins),
    }
    found = {"transformers": outputs(run_transformers, hugging_face.double(), proteins), "fair-esm": truth}
    checks = [("transformers", found["transformers"], EQUAL), *((f"{library}, float32", values, AGREEMENT) for library, values in in_float32.items())]
    for which, values, limit in checks:
        worst = errors(values, truth)
        print(which, {kind: f"{error:.1e}" for kind, error in worst.items()})
        assert max(worst.values()) < limit, which
    for library, named in found.items():
        version = {"transformers": transformers.__version__, "fair-esm": esm.version.version}[library]
        # One entry only: safetensors writes several in random order.
        metadata = {"made_with": f"{library} {version}, torch {torch.__version__}, float64, CPU"}
        path = HERE / "golden" / f"{library}.safetensors"
        save_file({name: value.float().contiguous() for name, value in named.items()}, path, metadata=metadata)
        path.chmod(0o644)


if __name__ == "__main__":
    main()
