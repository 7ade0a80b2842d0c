"""Seeded checkpoints in the full depth of the published models, which the parity tests cut to a few layers.

Values are those of the parity tests but for the weights before GELU, which are half as large: esm-cpp 0.2.1 gives
garbage for activations beyond 13.3 there (where exp(-x²/2) is 0 in f32), and so deep a model reaches that now and then.
"""

import hashlib
import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

from safetensors.numpy import save_file

sys.path.append(str(Path(__file__).parents[1] / "parity"))
import checkpoint
import families
from configurations import CONFIGURATIONS

NAMES = {configuration.short_name: configuration for configuration in CONFIGURATIONS}


class Values(checkpoint.Values):
    def weight(self, rng, parent, shape):
        scale = 0.5 if parent.endswith(".intermediate.dense") else 1.0
        return super().weight(rng, parent, shape) * scale


def make(name, parent):
    """The folder of the checkpoint in `parent`; made if this code has not made it already."""
    configuration = NAMES[name]
    configuration = replace(configuration, layers=configuration.published_layers)
    folder = parent / configuration.name
    source = Path(__file__).read_bytes() + Path(checkpoint.__file__).read_bytes()
    stamp, key = folder / "made-by", hashlib.sha256(source).hexdigest()
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == key:
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    values, shapes = Values(configuration), checkpoint.shapes(configuration)
    tensors = {tensor: values.of(tensor, shape) for tensor, shape in sorted(shapes.items())}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    settings = json.dumps(families.settings(configuration), indent=2)
    (folder / "config.json").write_text(settings + "\n", encoding="utf-8")
    stamp.write_text(key, encoding="utf-8")
    return folder
