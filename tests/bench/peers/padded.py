"""Padded batches for torch, and the mean over residues."""

import torch

import references

PADDING = references.ALPHABET.padding_idx


class Batch:
    def __init__(self, proteins):
        rows = [references.tokens_of(protein)[0] for protein in proteins]
        self.ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PADDING)  # (proteins, tokens)
        self.mask = (self.ids != PADDING).long()
        self.weights = torch.zeros(len(rows), 1, self.ids.shape[1])
        for weights, row in zip(self.weights, rows, strict=True):
            weights[0, 1 : len(row) - 1] = 1 / (len(row) - 2)

    def mean(self, hidden):
        """(proteins, tokens, width) -> (proteins, width), in f32, without <cls>, <eos> and padding."""
        return torch.bmm(self.weights, hidden.float())[:, 0]
