"""fair-esm's ESM2, asked for what its own extract.py asks for. Its forward pass has the language model's head in it."""

from pathlib import Path

import torch

import padded
import references
from serve import Batched, serve


class FairEsm(Batched):
    build = padded.Batch

    def __init__(self, job):
        super().__init__(job)
        torch.set_num_threads(job["threads"])
        self.model = references.FairEsm(Path(job["model"]), job["dtype"]).model

    @torch.inference_mode()
    def embed(self, batch):
        last = self.model.num_layers
        return batch.mean(self.model(batch.ids, repr_layers=[last])["representations"][last])


serve(FairEsm, ["fair-esm", "torch"])
