"""esm-cpp, in f32 or in int8 after its own recipe (SmoothQuant).

Its packed pass gives logits and nothing else, so that is what is timed; the head is under 1 % of the work. Vectors come
from a pass over one protein at a time, whose logits are compared with those.
"""

from pathlib import Path

import esm_cpp
import numpy as np

from serve import Batched, around_the_median, serve

ALPHA = 0.5  # of SmoothQuant, its default
# How far logits may be apart, relative to the largest, packed and alone: its int8 rounds otherwise in other company.
SAME = {"f32": 1e-4, "int8": 0.1}


class EsmCpp(Batched):
    budgets = (1024, 4096, 16384)

    def __init__(self, job):
        super().__init__(job)
        self.tokenizer = esm_cpp.Tokenizer()
        self.model = esm_cpp.Model.load_from_safetensors(str(Path(job["model"]) / "model.safetensors"))
        assert self.model.num_threads == job["threads"]
        self.same = SAME[job["dtype"]]
        if job["dtype"] == "int8":
            self.quantize()

    def quantize(self):
        observer = esm_cpp.ActivationObserver()
        for tokens in self.build(around_the_median(self.proteins)):
            self.model.forward_with_observer(tokens, np.ones_like(tokens), observer)
        self.model.apply_smoothquant(observer.percentile(99.9), ALPHA)
        self.model.quantize_weights()

    def build(self, proteins):
        return [np.asarray(self.tokenizer.encode(protein.sequence), np.int32) for protein in proteins]

    def embed(self, batch):
        return self.model.forward_scheduled(batch)

    def vectors(self):
        found = {}
        logits = (logits for batch in self.batches for logits in self.embed(batch))
        for protein, packed in zip(self.proteins, logits, strict=True):
            alone, hidden = self.model.forward_with_hidden_states(self.build([protein])[0])
            assert np.abs(packed - alone).max() <= self.same * np.abs(alone).max(), protein.accession
            found[protein.accession] = hidden[-1][1:-1].mean(0).tolist()
        return found


serve(EsmCpp, ["esm-cpp", "numpy"])
