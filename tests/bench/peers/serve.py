"""What all peers have in common: how they are talked to, and how they make batches.

A peer reads a line with its job and answers with versions; to "prepare" it answers with its vectors, to "run" with the
time of one repeat. Loading, tokenising and padding are not in that time. Modules of tests/parity are on its path.
"""

import json
import os
import sys
import time
from importlib.metadata import version

from proteins import Protein

CALIBRATION_TOKENS, CALIBRATION_REPEATS = 3000, 2
# How much slower than the best a batch size is before larger ones are not tried any more.
HOPELESS = 1.1


class Batched:
    """Proteins sorted by length, in batches of the size that is fastest here.

    A subclass has `build`, which makes a batch of proteins, and `embed`, which computes one and returns the mean
    vectors of its proteins. `budgets` are the batch sizes to try, in tokens with padding; 0 is one protein at a time.
    """

    budgets = (0, 512, 1024, 2048, 4096, 8192)

    def __init__(self, job):
        self.proteins = sorted((Protein(*pair) for pair in job["proteins"]), key=len)

    def prepare(self):
        """Chooses the batch size and embeds everything once."""
        batch_tokens = self.calibrate()
        self.batches = [self.build(group) for group in groups(self.proteins, batch_tokens)]
        return {"batch_tokens": batch_tokens, "vectors": self.vectors()}

    def calibrate(self):
        sample, best, chosen = around_the_median(self.proteins), None, None
        self.embed(self.build(sample[:1]))
        for budget in self.budgets:
            batches = [self.build(group) for group in groups(sample, budget)]
            # What is done for the first time with a shape is not what a repeat takes.
            seconds = min(self.seconds(batches) for _ in range(CALIBRATION_REPEATS))
            if best is None or seconds < best:
                best, chosen = seconds, budget
            elif seconds > HOPELESS * best:
                break
        return chosen

    def seconds(self, batches):
        start = time.perf_counter()
        for batch in batches:
            self.embed(batch)
        return time.perf_counter() - start

    def vectors(self):
        """Accession -> mean vector."""
        found = (vector for batch in self.batches for vector in self.embed(batch))
        return {protein.accession: [*map(float, vector)] for protein, vector in zip(self.proteins, found, strict=True)}

    def run(self):
        """Embeds everything; the number of tokens."""
        for batch in self.batches:
            self.embed(batch)
        return sum(len(protein) + 2 for protein in self.proteins)


def groups(proteins, budget):
    """Neighbours, as many as fit into a budget of tokens when padded to the last of them, and at least one."""
    group = []
    for protein in proteins:
        if group and (len(group) + 1) * (len(protein) + 2) > budget:
            yield group
            group = []
        group.append(protein)
    yield group


def around_the_median(proteins):
    """Neighbours around the protein that the middle token belongs to: as much padding as there is with all of them."""
    tokens = [len(protein) + 2 for protein in proteins]
    middle = next(i for i in range(len(tokens)) if 2 * sum(tokens[: i + 1]) >= sum(tokens))
    first, last = middle, middle + 1
    while sum(tokens[first:last]) < min(CALIBRATION_TOKENS, sum(tokens)):
        first, last = max(0, first - 1), last + 1
    return proteins[first:last]


def serve(start, packages):
    """`start` makes a peer of its job."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints is no answer

    def answer(value):
        print(json.dumps(value), file=answers, flush=True)

    peer = start(json.loads(sys.stdin.readline()))
    answer({package: version(package) for package in packages})
    for line in sys.stdin:
        if json.loads(line) == "prepare":
            answer(peer.prepare())
        else:
            begin = time.perf_counter()
            tokens = peer.run()
            answer({"seconds": time.perf_counter() - begin, "tokens": tokens})
