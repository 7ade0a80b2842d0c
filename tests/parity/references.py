"""The two implementations that gpu-embed is compared with, and the truth in float64.

Each runs one protein at a time, so that nothing is padded, with attention written out (`eager`), on the CPU.
"""

import argparse
import contextlib
from pathlib import Path

import esm
import torch
import transformers
from esm.model.esm1 import ProteinBertModel
from esm.model.esm2 import ESM2
from safetensors import safe_open
from transformers.models.esm import modeling_esm
from transformers.models.esmc import modeling_esmc

import outputs
from proteins import Protein
from quantization import quantized

# In int8 all but the layers' linear maps is f32, in fp8 bf16.
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "f64": torch.float64}
DTYPES |= {"int8": torch.float32, "fp8": torch.bfloat16}
FP8_PROTEINS = Path(__file__).parents[2] / "lib/cuda/src/fp8/proteins.fasta"
ALPHABET = esm.data.Alphabet.from_architecture("ESM-1b")
FAIR_ESM_NAMES = [
    ("esm.embeddings.word_embeddings.", "embed_tokens."),
    ("esm.embeddings.position_embeddings.", "embed_positions."),
    ("esm.embeddings.layer_norm.", "emb_layer_norm_before."),
    ("esm.encoder.layer.", "layers."),
    ("esm.encoder.emb_layer_norm_after.", "emb_layer_norm_after."),
    ("esm.contact_head.", "contact_head."),
    (".attention.self.query.", ".self_attn.q_proj."),
    (".attention.self.key.", ".self_attn.k_proj."),
    (".attention.self.value.", ".self_attn.v_proj."),
    (".attention.self.rotary_embeddings.", ".self_attn.rot_emb."),
    (".attention.output.dense.", ".self_attn.out_proj."),
    (".attention.LayerNorm.", ".self_attn_layer_norm."),
    (".intermediate.dense.", ".fc1."),
    (".output.dense.", ".fc2."),
    (".LayerNorm.", ".final_layer_norm."),
]


def fair_esm_name(hub_name):
    """fair-esm's name of a tensor of the Hub."""
    for hub, fair_esm in FAIR_ESM_NAMES:
        hub_name = hub_name.replace(hub, fair_esm)
    return hub_name


def tokens_of(protein):
    return torch.tensor([[ALPHABET.cls_idx, *map(ALPHABET.get_idx, protein.sequence), ALPHABET.eos_idx]])


def see_proteins(model):
    """Computes the proteins of which gpu-embed keeps the mean inputs of products from rounding in fp8."""
    for line in FP8_PROTEINS.read_text(encoding="utf-8").splitlines():
        if not line.startswith(">"):
            model(tokens_of(Protein("", line)))


class HuggingFace:
    """transformers' EsmForMaskedLM, cast whole to a type, but for `inv_freq`, which stays in float32."""

    name = "transformers"

    def __init__(self, folder, dtype):
        model, info = transformers.EsmForMaskedLM.from_pretrained(
            folder, attn_implementation="eager", dtype=torch.float32, output_loading_info=True
        )
        # The decoder is tied to the embedding; the position table is unused by design.
        assert set(info["missing_keys"]) <= {"lm_head.decoder.weight"}, info
        assert set(info["unexpected_keys"]) <= {"esm.embeddings.position_embeddings.weight"}, info
        assert not info["mismatched_keys"], info
        is_rotary = model.config.position_embedding_type == "rotary"
        inv_freq = model.esm.rotary_embeddings.inv_freq.clone() if is_rotary else None
        model.esm.encoder = quantized(model.esm.encoder, dtype, lambda: see_proteins(model))
        self.model = model.to(DTYPES[dtype]).eval()
        if is_rotary:
            assert torch.equal(inv_freq, inv_freq.half().float()), "transformers computed inv_freq again"
            self.model.esm.rotary_embeddings.inv_freq = inv_freq

    @torch.no_grad()
    def run(self, protein):
        tokens = tokens_of(protein)
        out = self.model(tokens, output_hidden_states=True, output_attentions=True)
        contacts = self.model.esm.contact_head(tokens, torch.stack(out.attentions, dim=1))
        layers = [layer[0].double() for layer in out.hidden_states]
        return outputs.of_layers(layers, out.logits[0].double(), contacts[0].double())


def fair_esm_model(config):
    """fair-esm's ESM2, or its ESM-1b, which ESM-1v is too."""
    if config.position_embedding_type == "rotary":
        return ESM2(config.num_hidden_layers, config.hidden_size, config.num_attention_heads)
    sizes = argparse.Namespace(
        arch="roberta_large",
        layers=config.num_hidden_layers,
        embed_dim=config.hidden_size,
        ffn_embed_dim=config.intermediate_size,
        attention_heads=config.num_attention_heads,
        max_positions=config.max_position_embeddings - 2,
        emb_layer_norm_before=config.emb_layer_norm_before,
        token_dropout=config.token_dropout,
    )
    return ProteinBertModel(sizes, ALPHABET)


class FairEsm:
    """fair-esm's model with the same weights, cast whole to a type.

    As released: `inv_freq` is cast too, so that in a half type the angles of a long protein have lost their last bits.
    """

    name = "fair-esm"

    def __init__(self, folder, dtype):
        config = transformers.EsmConfig.from_pretrained(folder)
        state = {}
        with safe_open(folder / "model.safetensors", "pt") as file:
            for hub_name in file.keys():  # noqa: SIM118
                state[fair_esm_name(hub_name)] = file.get_tensor(hub_name).to(DTYPES[dtype])
        state["lm_head.weight"] = state["embed_tokens.weight"]
        if config.position_embedding_type == "rotary":
            del state["embed_positions.weight"]  # nothing uses it
        with torch.device("meta"):
            self.model = fair_esm_model(config)
        self.model.load_state_dict(state, strict=True, assign=True)
        self.model.eval()
        self.model.layers = quantized(self.model.layers, dtype, lambda: see_proteins(self.model))

    @torch.no_grad()
    def run(self, protein):
        layers = range(self.model.num_layers + 1)
        out = self.model(tokens_of(protein), repr_layers=layers, return_contacts=True)
        layers = [out["representations"][i][0].double() for i in layers]
        return outputs.of_layers(layers, out["logits"][0].double(), out["contacts"][0].double())


class Truth(FairEsm):
    """fair-esm in float64 throughout; as released, it takes its softmax in float32 whatever the model's type.

    Angles are exact either way: the rounded `inv_freq` have 11 significant bits, positions here at most 11 more.
    """

    name = "truth"

    def __init__(self, folder):
        super().__init__(folder, "f64")

    def run(self, protein):
        def softmax(x, dim, onnx_trace=False):
            return x.softmax(dim)

        def contacts(self, tokens, attentions):
            """One head at a time: all at once would take 8 GB at 1000 residues."""
            heads = attentions[0, :, :, 1:-1, 1:-1].flatten(0, 1)  # (layers·heads, L, L), without <cls> and <eos>
            logits = self.regression.bias
            for weight, head in zip(self.regression.weight[0], heads, strict=True):
                logits = logits + weight * esm.modules.apc(esm.modules.symmetrize(head))
            return logits.sigmoid()[None]

        with (
            replaced(esm.multihead_attention, "utils_softmax", softmax),
            replaced(esm.modules.ContactPredictionHead, "forward", contacts),
        ):
            return super().run(protein)


class SecondTruth(HuggingFace):
    """transformers in float64 throughout; as released, it rotates in float32. To check `Truth` with."""

    name = "second truth"

    def __init__(self, folder):
        super().__init__(folder, "f64")

    def run(self, protein):
        def tables(self, x, position_ids):
            angles = position_ids[..., None].double() * self.inv_freq.double()
            angles = torch.cat((angles, angles), dim=-1)
            return angles.cos(), angles.sin()

        def rotate(q, k, cos, sin, unsqueeze_dim=1):
            cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
            turn = modeling_esm.rotate_half
            return q * cos + turn(q) * sin, k * cos + turn(k) * sin

        with (
            replaced(modeling_esm.EsmRotaryEmbedding, "forward", tables),
            replaced(modeling_esm, "apply_rotary_pos_emb", rotate),
        ):
            return super().run(protein)


class Esmc:
    """transformers' EsmcForMaskedLM, cast whole to a type, but for `inv_freq`, which stays in float32."""

    name = "transformers"

    def __init__(self, folder, dtype):
        model, info = transformers.EsmcForMaskedLM.from_pretrained(
            folder, attn_implementation="eager", dtype=torch.float32, output_loading_info=True
        )
        assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"], info
        inv_freq = model.esmc.rotary_emb.inv_freq.clone()
        model.esmc.layers = quantized(model.esmc.layers, dtype, lambda: see_proteins(model))
        self.model = model.to(DTYPES[dtype]).eval()
        self.model.esmc.rotary_emb.inv_freq = inv_freq

    @torch.no_grad()
    def run(self, protein):
        out = self.model(tokens_of(protein), output_hidden_states=True)
        layers = [layer[0].double() for layer in out.hidden_states]
        return outputs.of_layers(layers, out.logits[0].double())


class EsmcTruth(Esmc):
    """transformers in float64 throughout; as released, it rotates in float32."""

    name = "truth"

    def __init__(self, folder):
        super().__init__(folder, "f64")

    def run(self, protein):
        def tables(self, x, position_ids):
            angles = position_ids[..., None].double() * self.inv_freq.double()
            angles = torch.cat((angles, angles), dim=-1)
            return angles.cos(), angles.sin()

        with replaced(modeling_esmc.EsmcRotaryEmbedding, "forward", tables):
            return super().run(protein)


@contextlib.contextmanager
def replaced(owner, name, value):
    original = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, original)


def truths(configuration):
    """The reference in float64, and a second one to check it with, if there is one."""
    return (EsmcTruth, None) if configuration.family == "esmc" else (Truth, SecondTruth)


def plain(configuration, dtype):
    """The implementations to compare with in a type."""
    if configuration.family == "esmc":
        return [Esmc]
    # fair-esm's ESM-1 scales the embeddings in float32, and its norms in a half type refuse them. It is in bf16 before weights are fp8.
    if dtype == "fp8" or configuration.family in ("esm1b", "esm1v") and dtype in ("bf16", "f16"):
        return [HuggingFace]
    return [HuggingFace, FairEsm]
