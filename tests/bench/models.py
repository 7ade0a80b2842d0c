"""Seeded checkpoints in the full depth of the published models, which the parity tests cut to a few layers.

Values are those of the parity tests but for the weights before GELU, which are half as large: esm-cpp 0.2.1 gives
garbage for activations beyond 13.3 there (where exp(-x²/2) is 0 in f32), and so deep a model reaches that now and then.
"""

import sys
from dataclasses import replace
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "parity"))
import checkpoint
from configurations import CONFIGURATIONS

NAMES = {configuration.short_name: configuration for configuration in CONFIGURATIONS}


class Values(checkpoint.Values):
    def weight(self, rng, parent, shape):
        scale = 0.5 if parent.endswith(".intermediate.dense") else 1.0
        return super().weight(rng, parent, shape) * scale


def make(name, parent):
    """The folder of the checkpoint in `parent`."""
    configuration = NAMES[name]
    configuration = replace(configuration, layers=configuration.published_layers)
    return checkpoint.write_once(Values(configuration), parent / configuration.name, [__file__])
