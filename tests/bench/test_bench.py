"""What `make bench` computes of its measurements; needs nothing but the standard library."""

import copy
import math
from xml.etree import ElementTree

import pytest

import agreement
import baseline
import figures
import inputs
import machine
import picture
import table
import workers
from results import Document, Result

MACHINE = {"cpu": "A <CPU> & more", "flags": ["avx2", "fma"], "threads": 2, "cores": 4}


def document():
    def embed(program, dtype, name, seconds, case="embed"):
        return Result(case, program, 1000, dtype, "150M", name, seconds)

    results = [Result("pack", "plmkit", 5000, seconds=[0.2, 0.3]), Result("clock", "sha256", 64, seconds=[0.1])]
    for name in "natural", "fragments":
        results += [
            embed("plmkit", "f32", name, [2.0, 2.1, 2.5]),
            embed("plmkit", "f32", name, [2.2, 2.4, 2.6], "chain"),
            embed("plmkit", "bf16", name, [1.0, 1.1]),
            embed("hugging-face", "f32", name, [4.0, 4.5]),
            embed("gemm-floor", "f32", name, [1.5, 1.6]),
        ]
    return Document("2026-01-01T00:00:00+00:00", MACHINE, {}, {"plmkit": "0.1.0"}, ["esm-cpp f32: no AVX-512"], results)


def slowed(factor, chosen=lambda result: result.program == "plmkit"):
    """The same run, some of it that many times slower."""
    after = copy.deepcopy(document())
    for result in filter(chosen, after.results):
        result.seconds = [seconds * factor for seconds in result.seconds]
    return after


@pytest.fixture
def compared(tmp_path):
    """Exit code of a comparison of a run with document()."""

    def compare(now):
        now.write(tmp_path / "now.json")
        document().write(tmp_path / "before.json")
        return baseline.main([str(tmp_path / "now.json"), str(tmp_path / "before.json")])

    return compare


def test_spread():
    found = figures.spread([1.0, 2.0, 3.0, 6.0])
    assert found == {"mean": 3.0, "stddev": pytest.approx(2.1602469), "min": 1.0, "max": 6.0}
    assert figures.spread([2.0])["stddev"] == 0


def test_rates_are_of_the_fastest_repeat_and_of_the_mean():
    result = Result("embed", "plmkit", 1000, seconds=[2.0, 3.0])
    assert (result.best, result.mean) == (500, 400)


def test_results_come_back_from_their_file(tmp_path):
    document().write(tmp_path / "of/results.json")
    assert Document.read(tmp_path / "of/results.json") == document()


def test_nothing_is_slower_than_itself(compared, capsys):
    assert compared(document()) == 0
    assert "SLOWER" not in capsys.readouterr().out


@pytest.mark.parametrize("case", ["embed", "chain", "pack"])
def test_a_slowed_case_is_found(compared, capsys, case):
    assert compared(slowed(1.15, lambda result: (result.program, result.case) == ("plmkit", case))) == 1
    found = [line for line in capsys.readouterr().out.splitlines() if "SLOWER" in line]
    assert found
    assert all(line.startswith(f"{case} plmkit") and "+15.0%" in line for line in found)


def test_a_tenth_is_allowed(compared):
    assert compared(slowed(1.09)) == 0


def test_a_slower_machine_is_no_slower_program(compared):
    assert compared(slowed(3.0, lambda result: True)) == 0


def test_the_yardstick_is_one_that_both_runs_have(compared, capsys):
    now = slowed(1.2)
    now.results = [result for result in now.results if result.program != "gemm-floor"]
    assert compared(now) == 1
    assert "embed plmkit f32 150M natural: 0.500 times hugging-face f32 before, 0.600 now" in capsys.readouterr().out


def test_what_is_in_one_run_only_is_named(compared, capsys):
    now = document()
    now.results[0].tokens += 1
    assert compared(now) == 0
    assert "pack plmkit: not compared" in capsys.readouterr().out


def test_runs_with_other_threads_are_not_compared(compared):
    now = document()
    now.machine = MACHINE | {"threads": 4}
    with pytest.raises(baseline.Incomparable, match="2 threads before, 4 now"):
        compared(now)


def vectors(angle):
    return {"P1": [1.0, 0.0], "P2": [math.cos(angle), math.sin(angle)]}


def test_a_peer_has_the_same_vectors():
    peer = Result("embed", "fair-esm", 1000, "f32")
    assert agreement.compare(vectors(1.0), peer, vectors(1.001)) == pytest.approx(math.cos(0.001))


@pytest.mark.parametrize("other", [vectors(1.1), vectors(math.nan), {"P1": [1.0, 0.0]}, {}])
def test_a_peer_with_other_vectors_is_none(other):
    with pytest.raises(agreement.Disagreement, match="fair-esm f32"):
        agreement.compare(vectors(1.0), Result("embed", "fair-esm", 1000, "f32"), other)


def test_the_table_has_every_result_and_says_what_was_skipped():
    text = table.text(document())
    programs = "plmkit", "hugging-face", "gemm-floor", "sha256"
    assert sum(line.split()[0] in programs for line in text.splitlines() if " - " in line) == 12
    assert "SKIPPED esm-cpp f32: no AVX-512" in text


def test_the_picture_is_well_formed(tmp_path):
    document().write(tmp_path / "results.json")
    picture.main([str(tmp_path / "results.json"), str(tmp_path / "of/picture.svg")])
    root = ElementTree.parse(tmp_path / "of/picture.svg").getroot()
    space = "{http://www.w3.org/2000/svg}"
    bars, lines = root.findall(f"{space}rect"), root.findall(f"{space}line")
    assert (len(bars), len(lines)) == (6, 4)  # there is no floor in bf16
    assert {bar.get("class") for bar in bars} == {"plmkit", "peer"}
    assert max(float(bar.get("width")) for bar in bars) <= picture.PLOT


@pytest.mark.parametrize(
    ("family", "flags", "runs"),
    [
        ("esm2", {"avx2", "fma"}, ["hugging-face f32", "hugging-face int8", "fair-esm f32"]),
        ("esm2", {"avx512f"}, ["hugging-face f32", "hugging-face int8", "fair-esm f32", "esm-cpp f32", "esm-cpp int8"]),
        ("esmc", {"avx512f"}, ["hugging-face f32", "hugging-face int8"]),
    ],
)
def test_a_cpu_runs_what_it_has_instructions_for(monkeypatch, family, flags, runs):
    monkeypatch.setattr(machine, "flags", lambda: flags)
    found = [(peer, dtype) for peer in workers.PEERS for dtype in peer.dtypes]
    assert [f"{peer.name} {dtype}" for peer, dtype in found if not peer.lacks(dtype, family)] == runs
    assert workers.PEERS[0].lacks("bf16", family) == "this CPU has no amx_bf16 or avx512_bf16"


def test_a_lesser_cpu_is_kept_to_its_instructions(monkeypatch):
    monkeypatch.setattr(machine, "FLAGS", list(machine.FLAGS))
    monkeypatch.setattr(machine.os, "environ", {})
    monkeypatch.setattr(machine, "fields", lambda _: {"flags": "avx2 fma avx512f avx512_bf16 avx_vnni"})
    machine.limit("auto")
    assert "avx512f" in machine.flags()
    assert not machine.os.environ
    machine.limit("avx2")
    assert machine.flags() == ["avx2", "fma"]
    assert machine.lacks(machine.FAST["bf16"])
    assert machine.os.environ["ONEDNN_MAX_CPU_ISA"] == "AVX2"


def test_inputs_are_as_large_as_wanted_and_named_apart():
    for wanted in 3000, 10000, 60000:
        for choose in inputs.INPUTS.values():
            chosen = choose(wanted)
            assert inputs.tokens(chosen) == pytest.approx(wanted, rel=0.2)
            assert len({protein.accession for protein in chosen}) == len(chosen)
            assert max(map(len, chosen)) <= inputs.LONGEST


def test_pieces_are_the_whole_protein():
    protein = inputs.every()[-1]
    assert len(protein) == inputs.LONGEST
    found = inputs.pieces([protein], 50)
    assert "".join(piece.sequence for piece in found) == protein.sequence
    assert {len(piece) for piece in found} <= {50, 51, 52}
