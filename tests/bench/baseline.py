"""Compares plmkit's own figures with those of an earlier run, and ends with 1 if one is more than 10 % slower.

Machines and hours differ, so no time is compared with a time. What is compared is the time for a token divided by that
of a yardstick that was measured in the same rounds: for gpu-embed and the chain torch's matrix products in the same
type (or in f32, or else a peer: the first that both runs have), for the programs that compute nothing SHA-256 on one
thread. Of both it is the least time, because noise only ever adds to it. Runs on CPUs with different instructions are
compared all the same, and it is said.
"""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

from results import CLOCK, FLOOR, Document

SLOWER = 0.10


class Incomparable(Exception):
    """Two runs have nothing to compare, or were made in different ways."""


@dataclass(frozen=True)
class Change:
    case: str
    yardstick: str
    before: float  # multiples of the yardstick's time for a token
    now: float

    @property
    def slower(self):
        """0.1 is 10 % slower; negative is faster."""
        return self.now / self.before - 1


def yardsticks(result):
    """Keys of what a result may be divided by, the best first."""
    if not result.model:
        return [(CLOCK, "sha256", "", "", "")]
    peers = "hugging-face", "fair-esm", "esm-cpp"
    programs = [(FLOOR, result.dtype), (FLOOR, "f32"), *((peer, "f32") for peer in peers)]
    return [("embed", *program, result.model, result.input) for program in programs]


def changes(now, before):
    """Of plmkit's cases that both have, and the names of those that only one has or that no yardstick joins."""
    ours, theirs = ({result.key: result for result in document.results} for document in (now, before))
    found, alone = [], []
    for key in dict.fromkeys([*ours, *theirs]):
        case = " ".join(filter(None, key))
        if key[1] != "plmkit":
            continue
        both = key in ours and key in theirs and ours[key].tokens == theirs[key].tokens
        common = [yard for yard in yardsticks(ours[key]) if yard in ours and yard in theirs] if both else []
        if common:
            yard = common[0]
            then, today = (results[yard].best / results[key].best for results in (theirs, ours))
            found.append(Change(case, " ".join(filter(None, yard[1:3])), then, today))
        else:
            alone.append(case)
    return found, alone


def report(now, before):
    """Says what changed; 1 if something is slower."""
    if now.machine["threads"] != before.machine["threads"]:
        raise Incomparable(f"{before.machine['threads']} threads before, {now.machine['threads']} now")
    found, alone = changes(now, before)
    if not found:
        raise Incomparable("the two runs have no case in common")
    if now.machine["flags"] != before.machine["flags"]:
        print(f"another CPU: {' '.join(before.machine['flags'])} before, {' '.join(now.machine['flags'])} now")
    for case in alone:
        print(f"{case}: not compared, not in both runs with the same tokens and a yardstick")
    slower = [change for change in found if change.slower > SLOWER]
    for change in sorted(found, key=lambda change: -change.slower):
        verdict = "SLOWER" if change in slower else "ok"
        print(
            f"{change.case}: {change.before:.3f} times {change.yardstick} before, {change.now:.3f} now, "
            f"{change.slower:+.1%} {verdict}"
        )
    return 1 if slower else 0


def main(arguments):
    parser = argparse.ArgumentParser(prog="baseline", description=__doc__.splitlines()[0])
    parser.add_argument("now", type=Path)
    parser.add_argument("before", type=Path)
    options = parser.parse_args(arguments)
    return report(Document.read(options.now), Document.read(options.before))


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Incomparable as difference:
        print(f"baseline: {difference}", file=sys.stderr)
        sys.exit(2)
