"""The page of monitor-log, read by a parser of XML that is not ours."""

import xml.etree.ElementTree as ElementTree

import pytest
from conftest import ROOT, run

FIXTURES = ROOT / "tests/fixtures/monitor_log"
EVENTS = ["--events", FIXTURES / "events.jsonl"]
SAMPLES = ["--gpu", FIXTURES / "gpu.csv"]


@pytest.fixture(params=[EVENTS + SAMPLES, EVENTS, SAMPLES], ids=["both", "events", "samples"])
def page(request, tmp_path):
    """The page of a report."""
    path = tmp_path / "report.html"
    run("monitor-log", "report", *request.param, "--out", tmp_path / "report.json", "--html", path)
    return path


def test_the_page_is_well_formed(page):
    page = ElementTree.fromstring(page.read_text(encoding="utf-8").removeprefix("<!DOCTYPE html>"))
    # Of SVG, which has a name space of its own, as of HTML.
    tags = [element.tag.rsplit("}")[-1] for element in page.iter()]
    assert "table" in tags and "script" not in tags
    assert all("href" not in element.attrib and "src" not in element.attrib for element in page.iter())
