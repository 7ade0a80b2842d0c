"""The figures of `make parity` show what they are meant to show; they need nothing but numpy."""

import sys

import numpy as np
from conftest import ROOT

sys.path.append(str(ROOT / "tests/parity"))
import compare

OUTLIER = 3


def residues():
    """(residues, channels): ordinary channels of about 1, one of about 1000."""
    values = np.random.default_rng(1).standard_normal((50, 64))
    values[:, OUTLIER] += 1000
    return values


def figures(found):
    truth = residues()
    return compare.figures(found, truth, compare.scales([{"residues_0": truth}])["residues_0"])


def test_a_copy_has_no_error():
    found = figures(residues())
    assert found.cosine > 1 - 1e-15
    assert found == compare.Figures(0, 0, 0, 0, found.cosine)


def test_errors_of_ordinary_channels_show_beside_an_outlier():
    found = residues()
    found[:, :OUTLIER] += 0.1
    found = figures(found)
    assert found.l2 < 3e-4 < 1e-2 < found.channel_l2
    assert found.cosine > 1 - 1e-7


def test_one_wrong_residue_shows_among_many():
    found = residues()
    found[7, 10] += 1.0
    found = figures(found)
    assert found.channel_l2 < 0.03 < 0.1 < found.vector_l2


def test_what_is_missing_misshapen_or_not_finite_is_infinitely_wrong():
    truth = {"residues_0": residues()}
    scale = compare.scales([truth])
    broken = residues()
    broken[0, 0] = np.nan
    for found in [{}, {"residues_0": residues()[1:]}, {"residues_0": broken}]:
        worst = compare.all_figures(found, truth, scale)["residues_0"]
        assert worst.vector_l2 == np.inf and worst.cosine == -1


def test_limits_follow_the_plain_implementation_and_have_a_floor_in_f32():
    plain = compare.Figures(1.0, 1e-7, 1e-4, 1e-3, 1.0)
    assert compare.limits("f32", plain) == {"l2": 1e-5, "channel_l2": 2e-4, "vector_l2": 2e-3}
    assert compare.limits("bf16", plain) == {"l2": 2e-7, "channel_l2": 2e-4, "vector_l2": 2e-3}
