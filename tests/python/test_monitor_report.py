"""The report of monitor-log, read by a validator of JSON schemas and a parser of XML that are not ours."""

import json
import xml.etree.ElementTree as ElementTree

import jsonschema
import pytest
from conftest import ROOT, run

FIXTURES = ROOT / "tests/fixtures/monitor_log"
SCHEMA = json.loads((ROOT / "lib/telemetry/schemas/monitor-report.schema.json").read_text(encoding="utf-8"))
EVENTS = ["--events", FIXTURES / "events.jsonl"]
SAMPLES = ["--gpu", FIXTURES / "gpu.csv"]


@pytest.fixture(params=[EVENTS + SAMPLES, EVENTS, SAMPLES], ids=["both", "events", "samples"])
def report(request, tmp_path):
    """The paths of a report and its page."""
    paths = tmp_path / "report.json", tmp_path / "report.html"
    run("monitor-log", "report", *request.param, "--out", paths[0], "--html", paths[1])
    return paths


def test_the_schema_is_one():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_a_report_has_the_form_that_the_schema_says(report):
    jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(report[0].read_text(encoding="utf-8")))


def test_the_schema_finds_what_is_wrong(report):
    found = json.loads(report[0].read_text(encoding="utf-8"))
    del found["verdict"]
    with pytest.raises(jsonschema.ValidationError, match="'verdict' is a required property"):
        jsonschema.Draft202012Validator(SCHEMA).validate(found)


def test_the_page_is_well_formed(report):
    page = ElementTree.fromstring(report[1].read_text(encoding="utf-8").removeprefix("<!DOCTYPE html>"))
    # Of SVG, which has a name space of its own, as of HTML.
    tags = [element.tag.rsplit("}")[-1] for element in page.iter()]
    assert "table" in tags and "script" not in tags
    assert all("href" not in element.attrib and "src" not in element.attrib for element in page.iter())
