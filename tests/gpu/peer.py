"""transformers' EsmModel with `sdpa`, padded: sorted by length, batches of the same number of tokens."""

import time

import torch
import transformers

from machine import TORCH

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

LETTERS = {letter: 4 + i for i, letter in enumerate("LAGVSERTIDPKQNFYMHWCXBUZO")}
CLS, PADDING, EOS = 0, 1, 2


class Peer:
    def __init__(self, model, dtype, device):
        self.device = device
        found = transformers.EsmModel.from_pretrained(
            model, attn_implementation="sdpa", dtype=torch.float32, add_pooling_layer=False
        ).eval()
        inv_freq = found.rotary_embeddings.inv_freq.clone()
        found = found.to(TORCH[dtype])
        found.rotary_embeddings.inv_freq = inv_freq
        self.model = found.to(device)

    def batches(self, proteins, budget):
        """Padded to at most `budget` tokens each: ids, mask, names."""
        batch, longest = [], 0
        for name, sequence in sorted(proteins, key=lambda protein: len(protein[1])):
            longest = max(longest, len(sequence) + 2)
            if batch and (len(batch) + 1) * longest > budget:
                yield self.pad(batch)
                batch, longest = [], len(sequence) + 2
            batch.append((name, sequence))
        if batch:
            yield self.pad(batch)

    def pad(self, proteins):
        rows = [torch.tensor([CLS, *map(LETTERS.get, sequence), EOS]) for _, sequence in proteins]
        ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PADDING)
        return ids, [name for name, _ in proteins]

    @torch.inference_mode()
    def mean(self, ids):
        """(proteins, tokens) -> (proteins, width) f32, over residues."""
        ids = ids.to(self.device)
        mask = ids != PADDING
        hidden = self.model(ids, attention_mask=mask.long()).last_hidden_state.float()
        residues = mask & (ids != CLS) & (ids != EOS)
        return (hidden * residues.unsqueeze(-1)).sum(1) / residues.sum(1, keepdim=True)

    def vectors(self, proteins, budget=16384):
        """Name -> mean vector."""
        found = {}
        for ids, names in self.batches(proteins, budget):
            found |= zip(names, self.mean(ids).tolist(), strict=True)
        return found

    def rate(self, proteins, budget):
        """Tokens/s without padding, tokenising and padding not timed; the second of two rounds."""
        batches = [ids for ids, _ in self.batches(proteins, budget)]
        for _ in range(2):
            start = time.perf_counter()
            for ids in batches:
                self.mean(ids).cpu()
            taken = time.perf_counter() - start
        return sum(len(sequence) + 2 for _, sequence in proteins) / taken
