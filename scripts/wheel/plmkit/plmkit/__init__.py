"""Protein sequences to embeddings of ESM models, by the programs of plmkit.

    import plmkit

    table = plmkit.embed({"P1": "MKVLAAGG", "P2": "MSTNPKPQ"}, model="facebook/esm2_t6_8M_UR50D", download=True)
    table = plmkit.read("results", columns=["id", "mean_33"])

    model = plmkit.Model("facebook/esm2_t6_8M_UR50D")
    vectors = model.embed(["MKVLAAGG", "MSTNPKPQ"]).vectors  # of numpy

Tables are of pyarrow, which has to be installed (pip install pyarrow numpy). Python only starts the programs.
"""

from plmkit._model import Embeddings, Model
from plmkit._programs import PlmkitError, run
from plmkit._tables import Sequences, embed, read

__all__ = ["Embeddings", "Model", "PlmkitError", "Sequences", "__version__", "embed", "read", "run"]


def __getattr__(name: str) -> str:
    if name == "__version__":
        return run("plmkit", "--version").split()[1]
    raise AttributeError(f"module 'plmkit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
