"""What others would compute with: transformers with padding, and the same model in torch without, written by hand."""

import time

import torch
from rates import TORCH
from safetensors.torch import load_file

import models

LETTERS = {letter: 4 + i for i, letter in enumerate("LAGVSERTIDPKQNFYMHWCXBUZO")}
CLS, PADDING, EOS, DROPOUT = 0, 1, 2, 0.88


def encode(sequence):
    return [CLS, *map(LETTERS.get, sequence), EOS]


def rate(model, proteins, batches):
    """Tokens/s, padding not counted, encoding not timed; the second of two rounds."""
    batches = [model.prepare(batch) for batch in batches]
    for _ in range(2):
        start = time.perf_counter()
        for batch in batches:
            model.mean(batch).cpu()
        taken = time.perf_counter() - start
    return models.tokens_of(proteins) / taken


def vectors(model, batches):
    """Name -> mean vector."""
    found = {}
    for batch in batches:
        found |= zip([name for name, _ in batch], model.mean(model.prepare(batch)).float().cpu().numpy(), strict=True)
    return found


def by_length(proteins):
    return sorted(proteins, key=lambda protein: len(protein[1]))


def exactly(model, proteins):
    """(name, column -> values) of every layer and the logits, by transformers in f32 on the CPU, one protein at a time."""
    import transformers

    made = transformers.AutoModelForMaskedLM.from_pretrained(model, attn_implementation="sdpa", dtype=torch.float32).eval()
    for name, sequence in proteins:
        with torch.inference_mode():
            found = made(torch.tensor([encode(sequence)]), output_hidden_states=True)
        columns = {f"residues_{layer}": hidden for layer, hidden in enumerate(found.hidden_states)} | {"logits": found.logits}
        yield name, {column: values[0, 1:-1].numpy() for column, values in columns.items()}


class Padded:
    """transformers' EsmModel or EsmcModel with sdpa."""

    def __init__(self, model, dtype, device):
        import transformers

        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        pooler = {} if models.config(model)["model_type"] == "esmc" else {"add_pooling_layer": False}
        found = transformers.AutoModel.from_pretrained(model, attn_implementation="sdpa", dtype=torch.float32, **pooler).eval()
        rotary = found.rotary_emb if hasattr(found, "rotary_emb") else getattr(found, "rotary_embeddings", None)
        inv_freq = rotary and rotary.inv_freq.clone()
        found = found.to(TORCH[dtype])
        if rotary:
            rotary.inv_freq = inv_freq
        self.device, self.model = device, found.to(device)

    @staticmethod
    def batches(proteins, budget):
        """Sorted by length, of at most `budget` tokens with padding."""
        batch, longest = [], 0
        for protein in by_length(proteins):
            longest = max(longest, len(protein[1]) + 2)
            if batch and (len(batch) + 1) * longest > budget:
                yield batch
                batch, longest = [], len(protein[1]) + 2
            batch.append(protein)
        if batch:
            yield batch

    def prepare(self, proteins):
        rows = [torch.tensor(encode(sequence)) for _, sequence in proteins]
        return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PADDING)

    @torch.inference_mode()
    def mean(self, ids):
        ids = ids.to(self.device)
        mask = ids != PADDING
        hidden = self.model(ids, attention_mask=mask.long()).last_hidden_state.float()
        residues = mask & (ids != CLS) & (ids != EOS)
        return (hidden * residues.unsqueeze(-1)).sum(1) / residues.sum(1, keepdim=True)


class Varlen:
    """ESM-2 of torch's own operations on packed sequences, with flash attention; on a CPU one sequence at a time."""

    def __init__(self, model, dtype, device):
        config, self.kind = models.config(model), TORCH[dtype]
        self.device, self.width, self.heads = device, config["hidden_size"], config["num_attention_heads"]
        stored = {name: tensor.to(device) for name, tensor in load_file(model / "model.safetensors").items()}
        self.words, self.layers = stored["esm.embeddings.word_embeddings.weight"], []
        for number in range(config["num_hidden_layers"]):
            layer = f"esm.encoder.layer.{number}."
            both = lambda name, layer=layer: [stored[f"{layer}{name}.{kind}"].to(self.kind) for kind in ("weight", "bias")]
            three = [both(f"attention.self.{name}") for name in ("query", "key", "value")]
            self.layers.append((
                both("attention.LayerNorm"), [torch.cat(parts) for parts in zip(*three, strict=True)],
                both("attention.output.dense"), both("LayerNorm"), both("intermediate.dense"), both("output.dense"),
            ))  # fmt: skip
        self.inv_freq = stored["esm.encoder.layer.0.attention.self.rotary_embeddings.inv_freq"].float()
        self.final = [stored[f"esm.encoder.emb_layer_norm_after.{kind}"].to(self.kind) for kind in ("weight", "bias")]

    @staticmethod
    def batches(proteins, budget):
        batch, held = [], 0
        for protein in by_length(proteins):
            if batch and held + len(protein[1]) + 2 > budget:
                yield batch
                batch, held = [], 0
            batch.append(protein)
            held += len(protein[1]) + 2
        if batch:
            yield batch

    def prepare(self, proteins):
        lengths = torch.tensor([len(sequence) + 2 for _, sequence in proteins])
        ids = torch.tensor([token for _, sequence in proteins for token in encode(sequence)])
        return ids, lengths

    @torch.inference_mode()
    def mean(self, batch):
        ids, lengths = batch
        offsets = torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).int()
        longest = int(lengths.max())
        positions = torch.cat([torch.arange(length) for length in lengths])
        owner = torch.repeat_interleave(torch.arange(len(lengths)), lengths).to(self.device)
        ids, cu_seqlens = ids.to(self.device), offsets.to(self.device)
        angles = torch.outer(positions.to(self.device).float(), self.inv_freq).repeat(1, 2).unsqueeze(1)
        cos, sin = angles.cos().to(self.kind), angles.sin().to(self.kind)
        x = (self.words[ids] * DROPOUT).to(self.kind)
        for norm, qkv, out, ffn_norm, up, down in self.layers:
            q, k, v = self.linear(self.norm(x, norm), qkv).view(len(ids), 3, self.heads, -1).unbind(1)
            q, k = (turned * cos + torch.cat((-turned.chunk(2, -1)[1], turned.chunk(2, -1)[0]), -1) * sin for turned in (q, k))
            x = x + self.linear(self.attend(q, k, v, cu_seqlens, longest).reshape(len(ids), -1), out)
            x = x + self.linear(torch.nn.functional.gelu(self.linear(self.norm(x, ffn_norm), up)), down)
        hidden = self.norm(x, self.final).float()
        hidden[(ids == CLS) | (ids == EOS)] = 0
        sums = torch.zeros(len(lengths), self.width, device=self.device).index_add_(0, owner, hidden)
        return sums / (lengths.to(self.device) - 2).unsqueeze(1)

    def attend(self, q, k, v, cu_seqlens, longest):
        if self.device == "cuda" and self.kind != torch.float32:
            flash = torch.ops.aten._flash_attention_forward
            return flash(q, k, v, cu_seqlens, cu_seqlens, longest, longest, 0.0, False, False)[0]
        parts = [
            torch.nn.functional.scaled_dot_product_attention(*(rows[begin:end].transpose(0, 1) for rows in (q, k, v))).transpose(0, 1)
            for begin, end in zip(cu_seqlens[:-1].tolist(), cu_seqlens[1:].tolist(), strict=True)
        ]
        return torch.cat(parts)

    def linear(self, x, parameters):
        return torch.nn.functional.linear(x, *parameters)

    def norm(self, x, parameters):
        return torch.nn.functional.layer_norm(x, (self.width,), *parameters, eps=1e-5)
