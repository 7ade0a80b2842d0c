"""Seeded checkpoints, drawn on the device: small ones with every size of head, and published shapes in depth; and proteins."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parents[1] / "parity"))
from configurations import CONFIGURATIONS

BY_NAME = {configuration.short_name: configuration for configuration in CONFIGURATIONS}
LAYERS = 2
HEADS_OF = {
    # Sizes that no published model has, and one that only the largest has.
    "heads-of-20": replace(BY_NAME["8M"], name="esm2_heads-of-20", width=320, heads=16, layers=LAYERS),
    "heads-of-10": replace(BY_NAME["8M"], name="esm2_heads-of-10", width=320, heads=32, layers=LAYERS),
    "heads-of-128": replace(BY_NAME["8M"], name="esm2_heads-of-128", width=512, heads=4, layers=LAYERS),
}
# Relatives of ESM-2.
FAMILY = ["C600M", "1b", "1v"]
# As published in width, two layers deep, and as deep as is said.
SMALL = {name: replace(BY_NAME[name], layers=LAYERS) for name in ("8M", "35M", "150M", "650M", "3B", *FAMILY)} | HEADS_OF
DEEP = {
    "650M-33": replace(BY_NAME["650M"], layers=33),
    "150M-30": replace(BY_NAME["150M"], layers=30),
    "C600M-36": replace(BY_NAME["C600M"], layers=36),
    "3B-12": replace(BY_NAME["3B"], layers=12),
    # In the place of these where nothing is to be measured.
    "8M-3": replace(BY_NAME["8M"], layers=3),
    "C600M-3": replace(BY_NAME["C600M"], layers=3),
}


def folder(bench, name):
    """Where a model is, or is to be."""
    configuration = (SMALL | DEEP)[name]
    return bench.work / "models" / f"{configuration.name}-{configuration.layers}"


def make(bench, names):
    """Makes those that are not there yet, a row each."""

    def one(name):
        weights = folder(bench, name) / "model.safetensors"
        if not weights.with_name("config.json").is_file():
            draw((SMALL | DEEP)[name], weights.parent, bench.device)
        size = weights.stat().st_size
        bench.row(name, f"{size / 1e6:,.0f} MB", None, {"bytes": size})

    bench.each([(name, lambda name=name: one(name)) for name in names])


def draw(configuration, path, device):
    import checkpoint
    import families
    import torch
    from safetensors.torch import save_file

    class Values(checkpoint.Values):
        """The values of the parity tests, but large tensors drawn by the device: it draws billions in a second."""

        def normal(self, rng, shape, scale):
            if device == "cpu" or np.prod(shape) < 1 << 16:
                return super().normal(rng, shape, scale)
            generator = torch.Generator(device).manual_seed(int(rng.integers(1 << 62)))
            return torch.empty(shape, device=device).normal_(0, float(scale), generator=generator).cpu().numpy()

    path.mkdir(parents=True, exist_ok=True)
    values = Values(configuration)
    shapes = sorted(checkpoint.shapes(configuration).items())
    tensors = {tensor: torch.from_numpy(values.of(tensor, shape)) for tensor, shape in shapes}
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
    # Last, so that a model that is there is whole.
    (path / "config.json").write_text(json.dumps(families.settings(configuration), indent=1), encoding="utf-8")


def config(model):
    return json.loads((model / "config.json").read_text(encoding="utf-8"))


def flops_per_token(config, length):
    """Of the matrix products of a model, those of attention over `length` tokens included."""
    width, inner, layers = config["hidden_size"], config["intermediate_size"], config["num_hidden_layers"]
    matrices = 3 if config["hidden_act"] == "silu" else 2
    return layers * (2 * width * (4 * width + matrices * inner) + 4 * length * width)


def proteins(tokens, seed, longest=1022):
    """Random proteins with the lengths of UniProt's, near enough: log-normal, median 290, mean 360."""
    rng = np.random.default_rng(seed)
    letters, found = np.frombuffer(b"LAGVSERTIDPKQNFYMHWC", np.uint8), []
    while tokens > 0:
        length = int(np.clip(rng.lognormal(5.67, 0.7), 20, longest))
        found.append((f"p{len(found)}", rng.choice(letters, length).tobytes().decode()))
        tokens -= length + 2
    return found


def tokens_of(proteins):
    return sum(len(sequence) + 2 for _, sequence in proteins)


def mean_square(proteins):
    """The length that a token sees in attention, on average."""
    return sum((len(sequence) + 2) ** 2 for _, sequence in proteins) / tokens_of(proteins)
