"""Takes turns: one repeat of each program, again and again, so that slow minutes of the machine hit them all."""

import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import agreement
import chain
import machine
import models
import workers
from inputs import INPUTS


def say(text):
    print(f"bench: {text}", file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Subject:
    """A model and what it embeds."""

    model: str
    family: str
    input: str
    checkpoint: Path
    proteins: list

    @classmethod
    def make(cls, model, name, tokens, folder):
        return cls(model, models.NAMES[model].family, name, models.make(model, folder / "models"), INPUTS[name](tokens))


def files(model, repeats, options, document):
    """fasta-shard, pack-batches and validate-embeddings beside the clock."""
    say("fasta-shard, pack-batches and validate-embeddings")
    contestants = [chain.Files(model, options), machine.Clock()]
    take_turns(contestants, repeats, document)
    contestants[0].close()


def embed(subject, repeats, options, document):
    """gpu-embed beside its peers and the floor."""
    contestants = []
    try:
        for name, lacks, start in entrants(subject, options):
            try:
                if lacks:
                    document.skip(f"{name}: {lacks}")
                else:
                    say(f"{subject.model} {subject.input}: {name} gets ready")
                    contestants.append(start())
            except chain.Refused as refusal:
                document.skip(f"{name}: {refusal}")
        ours, *others = contestants
        for other in others:
            if other.vectors:  # the floor has none
                other.results[0].cosine = agreement.compare(ours.vectors, other.results[0], other.vectors)
        say(f"{subject.model} {subject.input}: {repeats} rounds of {len(contestants)}")
        take_turns(contestants, repeats, document)
    finally:
        for contestant in contestants:
            contestant.close()


def entrants(subject, options):
    """Name, why it cannot run here or none, and what starts it."""
    for dtype in options.dtypes:
        start = partial(chain.Ours, dtype, subject, options)
        yield f"plmkit {dtype}", machine.lacks(machine.FAST.get(dtype)), start
    for peer in [*(peer for peer in workers.PEERS if peer.name in options.peers), workers.GEMM]:
        for dtype in options.dtypes:
            if dtype in peer.dtypes:
                start = partial(workers.Worker, peer, dtype, subject, options)
                yield f"{peer.name} {dtype}", peer.lacks(dtype, subject.family), start


def take_turns(contestants, repeats, document):
    for _ in range(repeats):
        for contestant in contestants:
            contestant.once()
    for contestant in contestants:
        document.results += contestant.results
        document.versions |= contestant.versions
