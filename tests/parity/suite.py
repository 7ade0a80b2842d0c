"""One configuration: references, gpu-embed, and what is past the tolerance."""

import gc
import json
import time
from dataclasses import asdict, dataclass, field

import numpy as np
import torch

import affordable
import checkpoint
import compare
import outputs
import proteins
import references
from cache import Cache
from programs import Embedder, ProgramFailed

# Of the two float64 references, on the shortest proteins; they have been seen to agree to the bit.
SAME_TRUTH = 1e-12


@dataclass(frozen=True)
class Offender:
    configuration: str
    dtype: str
    output: str
    protein: str
    figure: str
    found: float
    limit: float


@dataclass
class Result:
    """Of one configuration and type: implementation -> output -> worst figures, gpu-embed's being `plmkit`."""

    configuration: str
    layers: str
    dtype: str
    proteins: list
    residues: int
    worst: dict
    limits: dict
    offenders: list
    by_protein: dict = field(repr=False)


class Suite:
    def __init__(self, configuration, options):
        self.configuration, self.options = configuration, options
        self.seconds, self.without_logits = {}, False
        with self.timed("checkpoint"):
            self.checkpoint = checkpoint.make(configuration, options.folder)
            self.proteins = proteins.choose(configuration.proteins, configuration.longest)
            self.cache = Cache(options.folder / "references" / configuration.name, self.checkpoint, self.proteins)
        with self.timed("truth"):
            self.truth_folder = self.make_truth()
            self.scale = compare.scales(self.truth(protein) for protein in self.proteins)

    def timed(self, what):
        return Stopwatch(self.seconds, what)

    def make_truth(self):
        folder, complete = self.cache.entry("truth")
        if not complete:
            model = references.truths(self.configuration)[0](self.checkpoint)
            for protein in self.proteins:
                self.cache.save(folder / f"{protein.accession}.npz", model.run(protein))
            del model
            self.check_truth(folder)
            (folder / "complete").touch()
        return folder

    def check_truth(self, folder):
        second = references.truths(self.configuration)[1]
        if second is None:
            return
        model = second(self.checkpoint)
        for protein in self.proteins[:3]:
            truth = self.cache.load(folder / f"{protein.accession}.npz")
            for name, values in model.run(protein).items():
                difference = np.abs(values - truth[name]).max() / np.abs(truth[name]).max()
                assert difference <= SAME_TRUTH, (self.configuration.name, protein.accession, name, difference)

    def truth(self, protein):
        return self.cache.load(self.truth_folder / f"{protein.accession}.npz")

    def plain(self, reference, dtype, chosen):
        """Accession -> output -> figures of a plain implementation; accession -> its contacts in float32."""
        names = "-".join(protein.accession for protein in chosen)
        folder, complete = self.cache.entry(f"{reference.name}-{dtype}")
        path = folder / "figures.json"
        if complete and json.loads(path.read_text(encoding="utf-8"))["proteins"] != names:
            (folder / "complete").unlink()
            folder, complete = self.cache.entry(f"{reference.name}-{dtype}")
        if not complete:
            model, found, contacts = reference(self.checkpoint, dtype), {}, {}
            for protein in chosen:
                named = model.run(protein)
                if "contacts" in named:
                    contacts[protein.accession] = named["contacts"].astype(np.float32)
                figures = compare.all_figures(named, self.truth(protein), self.scale)
                found[protein.accession] = {name: asdict(value) for name, value in figures.items()}
            path.write_text(json.dumps({"proteins": names, "figures": found}), encoding="utf-8")
            self.cache.save(folder / "contacts.npz", contacts)
            (folder / "complete").touch()
        stored = json.loads(path.read_text(encoding="utf-8"))["figures"]
        figures = {
            accession: {name: compare.Figures(**value) for name, value in named.items() if self.wanted(name)}
            for accession, named in stored.items()
        }
        return figures, self.cache.load(folder / "contacts.npz")

    def wanted(self, name):
        return outputs.group(name) in self.groups()

    def groups(self):
        return [group for group in self.options.outputs if group != "logits" or not self.without_logits]

    def run(self, dtype):
        """The result in a type, or none where gpu-embed refuses it."""
        chosen = affordable.choose(self.proteins, self.configuration, dtype)
        if dtype == "fp8" and not self.configuration.fp8:
            return self.check_refused(chosen, dtype, ["pooled"])
        by_protein, contacts = {}, {}
        for reference in references.plain(self.configuration, dtype):
            with self.timed(f"{reference.name} {dtype}"):
                by_protein[reference.name], contacts[reference.name] = self.plain(reference, dtype, chosen)
                gc.collect()
        with self.timed(f"plmkit {dtype}"):
            self.without_logits = dtype == "fp8" or dtype == "int8" and not self.configuration.int8_logits
            if self.without_logits and "logits" in self.options.outputs:
                self.check_refused(chosen, dtype, ["logits"])
            by_protein["plmkit"], apart = self.embed(dtype, chosen, contacts.get("fair-esm", contacts.get("transformers", {})))
        worst = {name: compare.worst_of(figures) for name, figures in by_protein.items()}
        limits = {name: compare.limits(dtype, plain) for name, plain in worst["transformers"].items() if self.wanted(name)}
        if dtype == "f32":
            for name, plain in worst.get("fair-esm", {}).items():
                other = compare.limits(dtype, plain)
                limits[name] = {figure: max(limit, other[figure]) for figure, limit in limits[name].items()}
        return Result(
            configuration=self.configuration.short_name,
            layers=f"{self.configuration.layers}/{self.configuration.published_layers}",
            dtype=dtype,
            proteins=[protein.accession for protein in chosen],
            residues=sum(map(len, chosen)),
            worst=worst,
            limits=limits,
            offenders=[*self.offenders(dtype, by_protein["plmkit"], limits), *self.far_contacts(dtype, apart)],
            by_protein=by_protein["plmkit"],
        )

    def check_refused(self, chosen, dtype, wanted):
        """gpu-embed refuses 8 bits for outputs that are not close enough."""
        why = "log-probabilities of amino acids differ" if "logits" in wanted else "for a mean vector"
        embedder = Embedder(self.options, self.options.work / self.configuration.name)
        try:
            list(embedder.embed(chosen, self.checkpoint, self.configuration.layers, dtype, wanted))
        except ProgramFailed as refused:
            assert "ended with 65" in str(refused) and why in str(refused), refused
        else:
            raise AssertionError(f"{', '.join(wanted)} in {dtype} were not refused")

    def embed(self, dtype, chosen, peers):
        """Accession -> output -> figures of gpu-embed; accession -> largest difference of contacts from those of a peer."""
        embedder = Embedder(self.options, self.options.work / self.configuration.name)
        known = {protein.accession: protein for protein in chosen}
        figures, apart = {}, {}
        wanted = [group for group in self.groups() if group != "contacts" or peers]
        found = embedder.embed(chosen, self.checkpoint, self.configuration.layers, dtype, wanted)
        for accession, named in found:
            truth = {name: values for name, values in self.truth(known[accession]).items() if self.wanted(name)}
            figures[accession] = compare.all_figures(named, truth, self.scale)
            if "contacts" in named and np.shape(named["contacts"]) == peers[accession].shape:
                apart[accession] = float(np.abs(named["contacts"] - peers[accession]).max())
        assert figures.keys() == known.keys(), "gpu-embed left proteins out"
        return figures, apart

    def offenders(self, dtype, by_protein, limits):
        for accession, named in by_protein.items():
            for name, figures in named.items():
                offender = (self.configuration.short_name, dtype, name, accession)
                for figure, limit in limits[name].items():
                    if not getattr(figures, figure) <= limit:
                        yield Offender(*offender, figure, getattr(figures, figure), limit)
                lowest = compare.lowest_cosine(dtype, name, self.configuration.int8_cosine)
                if lowest is not None and not figures.cosine >= lowest:
                    yield Offender(*offender, "cosine", figures.cosine, lowest)

    def far_contacts(self, dtype, apart):
        for accession, difference in apart.items():
            if dtype == "f32" and not difference <= compare.CONTACTS:
                offender = (self.configuration.short_name, dtype, "contacts", accession)
                yield Offender(*offender, "from fair-esm", difference, compare.CONTACTS)


class Stopwatch:
    def __init__(self, seconds, what):
        self.seconds, self.what = seconds, what

    def __enter__(self):
        self.start = time.monotonic()

    def __exit__(self, *_):
        self.seconds[self.what] = round(time.monotonic() - self.start, 1)


def run(configuration, options):
    """The results of a configuration and the seconds that its parts took."""
    torch.set_num_threads(options.threads)
    suite = Suite(configuration, options)
    results = [suite.run(dtype) for dtype in options.dtypes]
    return [result for result in results if result], suite.seconds
