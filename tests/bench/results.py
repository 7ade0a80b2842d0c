"""What is measured, and results.json."""

import json
from dataclasses import dataclass, field

import figures

FLOOR = "gemm-floor"
CLOCK = "clock"


@dataclass
class Result:
    """Of one program on one input, in seconds a repeat.

    Cases of plmkit: `embed` (gpu-embed between loading the model and closing its output), `command` (all of gpu-embed)
    and `chain` (four programs); `shard`, `pack` and `validate`. Peers and the floor have `embed`, the clock `clock`.
    """

    case: str
    program: str
    tokens: float  # of a repeat; residues, <cls> and <eos>, never padding
    dtype: str = ""
    model: str = ""
    input: str = ""
    seconds: list = field(default_factory=list)
    batch_tokens: int | None = None  # of a peer, as its calibration chose; 0 is one sequence at a time
    cosine: float | None = None  # the lowest of any mean vector with gpu-embed's

    @property
    def key(self):
        return self.case, self.program, self.dtype, self.model, self.input

    @property
    def best(self):
        """Tokens/s of the fastest repeat: noise only ever adds time."""
        return self.tokens / min(self.seconds)

    @property
    def mean(self):
        return self.tokens / figures.spread(self.seconds)["mean"]

    def as_json(self):
        rates = {"mean": self.mean, "best": self.best}
        return vars(self) | {"seconds": figures.spread(self.seconds) | {"all": self.seconds}, "tokens_per_s": rates}

    @classmethod
    def from_json(cls, entry):
        known = {name: entry[name] for name in cls.__dataclass_fields__}
        return cls(**known | {"seconds": entry["seconds"]["all"]})


@dataclass
class Document:
    """A run of the benchmark: when, on what and with what; what it did not measure, and why; the results."""

    date: str
    machine: dict
    options: dict
    versions: dict
    skipped: list = field(default_factory=list)
    results: list = field(default_factory=list)

    def skip(self, line):
        if line not in self.skipped:
            self.skipped.append(line)

    def write(self, path):
        results = [result.as_json() for result in self.results]
        text = json.dumps(vars(self) | {"results": results}, indent=1)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path):
        found = json.loads(path.read_text(encoding="utf-8"))
        return cls(**found | {"results": [Result.from_json(entry) for entry in found["results"]]})
