"""What a model puts out for one protein, under the names of gpu-embed's columns.

A value of an output is a float array of rows and channels:
`residues_<layer>` (L, D), `mean_<layer>`, `max_<layer>`, `std_<layer>` and `bos_<layer>` (1, D), `logits` (L, 33),
`contacts` (1, L·L), if the model has such a head; ESMC has 64 logits. Layer 0 is the embedding; the last one is taken after the final LayerNorm.
"""

import numpy as np

POOLS = {
    "mean": lambda tokens: tokens[1:-1].mean(0),
    "max": lambda tokens: tokens[1:-1].max(0),
    "std": lambda tokens: tokens[1:-1].std(0),  # divided by L, not by L - 1
    "bos": lambda tokens: tokens[0],
}
# Groups of outputs, in the order of the table.
GROUPS = ["pooled", "residues", "logits", "contacts"]


def group(name):
    kind = name.split("_")[0]
    return "pooled" if kind in POOLS else kind


def of_layers(layers, logits, contacts=None):
    """From every layer's (tokens, D), logits of (tokens, 33), both with <cls> and <eos>, and contacts of (L, L).

    Pooled in float64 whatever the values' type: what an implementation adds by its own pooling is its own error.
    """
    named = {}
    for i, tokens in enumerate(layers):
        tokens = np.asarray(tokens, np.float64)
        named[f"residues_{i}"] = tokens[1:-1]
        for pool, function in POOLS.items():
            named[f"{pool}_{i}"] = function(tokens)[None]
    named["logits"] = np.asarray(logits, np.float64)[1:-1]
    if contacts is not None:
        named["contacts"] = np.asarray(contacts, np.float64).reshape(1, -1)
    return named
