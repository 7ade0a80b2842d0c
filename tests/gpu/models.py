"""Seeded checkpoints: small ones with every size of head, and published shapes in full depth."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parents[1] / "parity"))
import checkpoint
from configurations import CONFIGURATIONS

BY_NAME = {configuration.short_name: configuration for configuration in CONFIGURATIONS}
# Heads of 16, 24, 32, 64 and 128 channels, one of each.
HEADS = ["8M", "35M", "150M", "3B", "15B"]
LAYERS = 2


def small(name, folder):
    return checkpoint.make(replace(BY_NAME[name], layers=LAYERS), folder / "small")


def full(name, folder):
    configuration = BY_NAME[name]
    return checkpoint.make(replace(configuration, layers=configuration.published_layers), folder / "full")


def config(model):
    return json.loads((model / "config.json").read_text(encoding="utf-8"))


def proteins(tokens, seed, longest=1022):
    """Random proteins with the lengths of UniProt's, near enough: log-normal, median 290, mean 360."""
    rng = np.random.default_rng(seed)
    letters, found = np.array(list("LAGVSERTIDPKQNFYMHWC")), []
    while tokens > 0:
        length = int(np.clip(rng.lognormal(5.67, 0.7), 20, longest))
        found.append((f"p{len(found)}", "".join(rng.choice(letters, length))))
        tokens -= length + 2
    return found
