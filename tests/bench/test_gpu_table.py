"""The tables of docs on GPUs have the figures of the runs that they name."""

import csv
import json
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESULTS = ROOT / "tests/gpu/results"
FOLDERS = {"h100": "2026-11-27-h100", "h200": "2026-11-26-h200"}
MODELS = {"ESMC-600M": "C600M-36", "150M": "150M-30"}


def tables(page, first):
    """The cells of each row below a header whose second cell begins with `first`."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in (ROOT / page).read_text().splitlines()]
    begin = next(number for number, row in enumerate(rows) if len(row) > 3 and row[1].startswith(first))
    rows = rows[begin + 2 :]
    return rows[: next(number for number, row in enumerate(rows) if len(row) < 3)]


def run(name):
    machine, stage = name.split("/")
    return RESULTS / FOLDERS[machine] / stage


def number(text):
    return float(text.replace(",", ""))


def test_each_row_of_speed_is_that_of_its_run():
    for kind, name, rate, products, idle, transformers, packed in tables("docs/internals/performance.md", "run"):
        model, dtype = kind.split(", ")[:2]
        key = ("other-models", MODELS[model]) if model in MODELS else (f"end-to-end-{dtype}", "all three")
        found = [row for row in json.loads((run(name) / "report.json").read_text())["rows"] if (row["case"], row["what"]) == key]
        text, figures = found[-1]["text"], found[-1]["figures"]
        steady = figures.get("steady_tokens_per_s") or figures["tokens_per_s"]["mean"]
        assert number(rate.split()[0]) == round(steady, -2), (kind, name, steady)
        if "±" in rate:
            assert number(rate.split()[2]) == round(figures["tokens_per_s"]["stddev"], -2), (kind, name)
        share = figures["idle"] if isinstance(figures["idle"], float) else figures["idle"]["mean"]
        assert idle == f"{share:.1%}".replace("%", " %"), (kind, name, share)
        assert f"{products.replace(' ', '')} of floor" in text, (kind, name, text)
        for cell, peer in [(transformers, "transformers"), (packed, "varlen")]:
            assert (f"{cell.replace('×', 'x')} {peer}" in text) if cell else peer not in text, (kind, name, text)


def test_each_row_of_memory_is_that_of_its_run():
    for kind, held, most, gpu, name in tables("docs/gpu.md", "tensors between batches"):
        name, dtype = name.split(", ")
        assert kind.endswith(dtype)
        events = map(json.loads, (run(name) / f"events-{dtype}.jsonl").read_text().splitlines())
        batches = [event for event in events if event["type"] == "batch"]
        assert {number(held)} == {batch["device_memory_mib"] for batch in batches}
        assert number(most) == max(batch["device_memory_peak_mib"] for batch in batches)
        with (run(name) / f"samples-{dtype}.csv").open() as samples:
            assert number(gpu) == max(float(sample["mem_used_mib"]) for sample in csv.DictReader(samples))


def test_the_readme_has_the_rates_of_the_table():
    rates = {row[1]: row[2].split()[0] for row in tables("docs/internals/performance.md", "run") if row[0].startswith("650M, f16")}
    said = re.search(r"650M in f16 computes ([\d,]+) and ([\d,]+) tokens/s", (ROOT / "README.md").read_text()).groups()
    assert [round(number(rates[name]), -3) for name in ("h100/b", "h200/b")] == [number(rate) for rate in said]
