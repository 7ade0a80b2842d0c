"""Keeps what does not depend on gpu-embed, under a key made of everything that it does depend on."""

import hashlib
import json
import shutil
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch

CODE = ["checkpoint.py", "compare.py", "families.py", "outputs.py", "references.py", "proteins.py", "quantization.py"]
PACKAGES = ["fair-esm", "numpy", "safetensors", "torch", "transformers"]


class Cache:
    """In `folder`, a folder for each key; those of other keys with the same prefix are removed."""

    def __init__(self, folder, checkpoint, proteins):
        self.folder = folder
        digest = hashlib.sha256()
        for path in (checkpoint / "config.json", checkpoint / "model.safetensors"):
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        for name in CODE:
            digest.update(Path(__file__).with_name(name).read_bytes())
        facts = [
            [f"{package} {version(package)}" for package in PACKAGES],
            torch.backends.cpu.get_cpu_capability(),
            [(protein.accession, protein.sequence) for protein in proteins],
        ]
        digest.update(json.dumps(facts).encode())
        self.key = digest.hexdigest()[:32]

    def entry(self, name):
        """The folder of `name` under this key; whether it is complete."""
        folder = self.folder / f"{name}-{self.key}"
        if (folder / "complete").is_file():
            return folder, True
        for old in self.folder.glob(f"{name}-" + "?" * len(self.key)):
            shutil.rmtree(old)
        folder.mkdir(parents=True)
        return folder, False

    @staticmethod
    def save(path, named):
        np.savez(path, **named)

    @staticmethod
    def load(path):
        with np.load(path) as file:
            return dict(file)
