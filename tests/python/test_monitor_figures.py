"""The figures that monitor-log reports of GPU samples, computed again from the two logs, a millisecond at a time.

The definitions are those of docs/internals/figures.md. Nothing is read but the logs, with the modules csv and json."""

import csv
import json
import math
import os
import random
import subprocess
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from conftest import PROGRAMS, ROOT, run

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
COLUMNS = (
    "timestamp,boot_id,boot_s,index,uuid,name,gpu_util,mem_used_mib,mem_total_mib,temperature_c,power_w,sm_clock_mhz,"
    "throttle,mem_clock_mhz,energy_j,interval_s"
).split(",")
# What tells that a GPU answered.
ANSWERS = "gpu_util mem_used_mib temperature_c power_w power_limit_w sm_clock_mhz mem_clock_mhz energy_j throttle".split()
# Columns whose values over time are in reports.
VALUES = "gpu_util mem_used_mib temperature_c power_w sm_clock_mhz mem_clock_mhz".split()


# --- the logs ---


def clock(ms):
    return (NOON + timedelta(milliseconds=ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Logs:
    """Logs of made-up runs and GPUs, with random values."""

    def __init__(self, folder, seed, boot=True):
        self.folder, self.random, self.boot = folder, random.Random(seed), boot
        # When the wall clock is set, and by how much.
        self.jump = 0, 0
        self.rows, self.events = [], []

    def clock(self, ms):
        return clock(ms + (self.jump[1] if ms >= self.jump[0] else 0))

    def moment(self, ms):
        return {"boot_id": "b", "boot_s": f"{1000 + ms / 1000:.3f}"} if self.boot else {}

    def run(self, name, from_ms, to_ms, gpus, job=None, outcome="done"):
        def event(kind, ms, **fields):
            time = {"time": self.clock(ms)} | ({"boot_s": 1000 + ms / 1000} if self.boot else {})
            self.events.append({"type": kind, "run": name} | time | fields)

        boot = {"boot_id": "b"} if self.boot else {}
        event("run", from_ms, device="cuda", gpu_uuids=gpus, job=job or name, **boot)
        work = {"sequences": 3, "tokens": 60_000, "residues": 54_000}
        event("batch", to_ms - 7, batch=len(self.events), elapsed_s=(to_ms - 7 - from_ms) / 1000, **work)
        if outcome:
            event("done", to_ms, elapsed_s=(to_ms - from_ms) / 1000, outcome=outcome, **work)

    def record(self, times, gpus, interval=None, lost=(), counter=(), reload_ms=None):
        """Rows at some times; no values of GPUs in `lost` (GPU, from, to)."""
        draw = self.random
        energy = {gpu: draw.uniform(1e5, 2e5) for gpu in counter}
        before = times[0]
        for ms in times:
            for index, gpu in enumerate(gpus):
                row = {"timestamp": self.clock(ms), "index": index, "uuid": gpu, "name": "Fake"}
                row |= self.moment(ms) | ({"interval_s": interval} if interval else {})
                watts = draw.uniform(60, 700)
                if gpu in energy:
                    energy[gpu] += watts * (ms - before) / 1000
                    if reload_ms is not None and before < reload_ms <= ms:
                        energy[gpu] = 1.0
                if not any(gpu == other and start <= ms < end for other, start, end in lost):
                    values = {
                        "gpu_util": draw.randrange(101),
                        "mem_used_mib": draw.randrange(80_000),
                        "mem_total_mib": 81_920,
                        "temperature_c": draw.randrange(40, 95),
                        "power_w": f"{watts:.3f}",
                        "sm_clock_mhz": draw.randrange(210, 2000, 15),
                        "mem_clock_mhz": draw.choice([405, 2619]),
                        "throttle": draw.choice(["none", "none", "sw_power_cap", "hw_slowdown+sw_power_cap"]),
                    }
                    row |= {name: value for name, value in values.items() if draw.random() > 0.03}
                    row |= {"energy_j": f"{energy[gpu]:.3f}"} if gpu in energy else {}
                self.rows.append(row)
            before = ms
        return self

    def steps(self, from_ms, to_ms, step_ms):
        """Times of about so many milliseconds each."""
        times = [from_ms]
        while times[-1] < to_ms:
            times.append(times[-1] + step_ms + self.random.randrange(-step_ms // 10, step_ms // 10 + 1))
        return times

    def write(self):
        with open(self.folder / "gpu.csv", "w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            writer.writerows(self.rows)
        lines = [json.dumps({name: value for name, value in event.items() if value is not None}) for event in self.events]
        (self.folder / "events.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


# --- the figures again ---


def milliseconds(row):
    """The time of a row or an event, since boot if it has that, in milliseconds."""
    if row.get("boot_s"):
        return round(float(row["boot_s"]) * 1000)
    return round(datetime.fromisoformat(row.get("timestamp") or row["time"]).timestamp() * 1000)


class Gpu:
    """The rows of one GPU, and the reading that each millisecond has."""

    def __init__(self, rows, is_reading):
        self.rows = sorted(rows, key=milliseconds)
        times = [milliseconds(row) for row in self.rows]
        self.start, self.owner, self.joules, last = times[0], [None] * (times[-1] - times[0]), {}, None
        for place, (row, time) in enumerate(zip(self.rows, times, strict=True)):
            if not is_reading(row):
                continue
            if last is not None and time - times[last] <= max(10_000, 2500 * float(row.get("interval_s") or 0)):
                self.owner[times[last] - self.start : time - self.start] = [place] * (time - times[last])
                counted = [self.rows[one].get("energy_j") for one in (last, place)]
                if all(counted) and float(counted[1]) >= float(counted[0]):
                    self.joules[place] = (float(counted[1]) - float(counted[0])) / (time - times[last])
            last = place

    def at(self, ms):
        inside = 0 <= ms - self.start < len(self.owner)
        return self.owner[ms - self.start] if inside else None


def is_possible(row):
    """Whether a GPU can draw that power."""
    return float(row["power_w"]) <= 3000


class Figures:
    """The figures of a GPU over some milliseconds."""

    def __init__(self, gpu, moments):
        self.gpu, self.moments = gpu, moments
        self.time = Counter(gpu.at(ms) for ms in moments)
        self.time.pop(None, None)

    def coverage(self, time=None):
        return sum((self.time if time is None else time).values()) / len(self.moments)

    def known(self, column, value):
        """Milliseconds of each value of a column."""
        found = Counter()
        for place, ms in self.time.items():
            if self.gpu.rows[place].get(column) and (column != "power_w" or is_possible(self.gpu.rows[place])):
                found[value(self.gpu.rows[place][column])] += ms
        return found

    def mean(self, column, value=float):
        found = self.known(column, value)
        if self.coverage(found) < 0.5:
            return None
        return math.fsum(value * ms for value, ms in found.items()) / sum(found.values())

    def values(self, column):
        found = self.known(column, float)
        if not found:
            return None
        return {"mean": self.mean(column), "max": max(found)}

    def energy(self):
        """Joules: those that were seen, over the coverage of the energy."""
        powers = {
            place: float(self.gpu.rows[place]["power_w"]) / 1000
            for place in self.time
            if self.gpu.rows[place].get("power_w") and is_possible(self.gpu.rows[place])
        }
        for joules in self.gpu.joules, powers:
            time = {place: ms for place, ms in self.time.items() if place in joules}
            seen = math.fsum(joules[place] * ms for place, ms in time.items())
            if seen > 0 or joules is powers:
                break
        coverage = self.coverage(time)
        if coverage < 0.5:
            return None
        return math.fsum(joules[place] * ms for place, ms in time.items()) / coverage


def near(found, expected, relative=1e-9):
    if isinstance(expected, type({}.keys())):
        assert found == expected
    elif isinstance(expected, dict):
        assert found is not None and found.keys() == expected.keys()
        for name in expected:
            near(found[name], expected[name], relative)
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            near(one, other, relative)
    elif expected is None:
        assert found is None
    else:
        assert found == pytest.approx(expected, rel=relative, abs=1e-12)


def truth(is_true):
    return lambda text: 1.0 if is_true(text) else 0.0


def paths(folder):
    return ["--gpu", folder / "gpu.csv", "--events", folder / "events.jsonl"]


def check(folder):
    """Compares the report of the logs in a folder with figures of our own. Returns the report."""
    run("monitor-log", "report", *paths(folder), "--out", folder / "report.json")
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    with open(folder / "gpu.csv", encoding="utf-8", newline="") as file:
        # A row that is there twice counts once.
        rows = list({tuple(row.values()): row for row in csv.DictReader(file)}.values())
    for row in rows:
        # Hot is within 5 °C of the board's limit, or above 80 °C.
        limit = int(row.get("temperature_limit_c") or 85) - 5
        row["above_limit_c"] = row["temperature_c"] and str(int(row["temperature_c"]) - limit)
    spans, runs, gpus_of = {}, {}, {}
    for line in (folder / "events.jsonl").read_text(encoding="utf-8").splitlines():
        event = json.loads(line)
        if event["type"] == "run":
            runs.setdefault(event["job"], []).append(event["run"])
            gpus_of[event["job"]] = event["gpu_uuids"]
        times = [*spans.get(event["run"], ()), milliseconds(event)]
        spans[event["run"]] = min(times), max(times)
    moments = {job: [ms for name in names for ms in range(*spans[name])] for job, names in runs.items()}
    gpus = {}
    for uuid in sorted({row["uuid"] for row in rows} - {""}):
        own = [row for row in rows if row["uuid"] == uuid]
        gpus[uuid] = Gpu(own, lambda row: any(row.get(column) for column in ANSWERS))
    at_work = {uuid: Counter() for uuid in gpus}
    for job, own in moments.items():
        for uuid in set(gpus_of[job]) & at_work.keys():
            at_work[uuid].update(own)

    for found in report["runs"]:
        total = []
        for gpu in found["gpus"]:
            figures = Figures(gpus[gpu["uuid"]], moments[found["job"]])
            near(gpu["coverage"], figures.coverage())
            assert gpu["samples"] == len(figures.time)
            few = len(figures.time) < 3
            is_shared = any(at_work[gpu["uuid"]][ms] > 1 for ms in figures.moments)
            energy = None if few or is_shared else figures.energy()
            near(gpu["energy_j"], energy)
            for column in VALUES:
                found_values, expected = gpu["values"].get(column), None if few else figures.values(column)
                near(found_values and found_values.keys(), expected and expected.keys())
                for figure, value in (expected or {}).items():
                    near(found_values[figure], value)
            total.append(energy)
        known = math.fsum(total) if None not in total else None
        near(found["efficiency"]["energy_j"], known)
        near(found["efficiency"]["residues_per_joule"], known and found["residues"] / known)

    for found in report["gpus"]:
        uuid = found["uuid"]
        recording = range(gpus[uuid].start, gpus[uuid].start + len(gpus[uuid].owner))
        figures = Figures(gpus[uuid], sorted(at_work[uuid]) or recording)
        near(found["coverage"], figures.coverage())
        assert found["samples"] == len(figures.time)
        near(found["energy_j"], None if len(figures.time) < 3 else figures.energy())
        conditions = {
            "hot": ("above_limit_c", lambda text: int(text) > 0),
            "throttled": ("throttle", lambda text: text != "none"),
            "throttle_hw_slowdown": ("throttle", lambda text: "hw_slowdown" in text.split("+")),
        }
        for name, (column, condition) in conditions.items():
            if name in found["values"]:
                near(found["values"][name]["mean"], figures.mean(column, truth(condition)))
        for column in VALUES:
            near(found["values"].get(column), None if len(figures.time) < 3 else figures.values(column))
    return report


# --- the cases ---

GPUS = ["GPU-0", "GPU-1"]


@pytest.fixture
def logs(tmp_path):
    return Logs(tmp_path, seed=1)


def gpu_of(report, place=0, run=0):
    return report["runs"][run]["gpus"][place]


def test_a_gpu_that_is_lost_has_no_figures(logs):
    logs.run("r", 500, 213_500, GPUS)
    times = logs.steps(0, 220_000, 1000)
    logs.record(times, GPUS, lost=[("GPU-1", 14_600, 999_999)], counter=["GPU-0"]).write()
    report = check(logs.folder)
    lost = gpu_of(report, 1)
    assert lost["coverage"] < 0.07 and lost["energy_j"] is None
    found = [finding["kind"] for finding in report["findings"] if finding["subject"].startswith("gpu 1")]
    assert "bottleneck" not in found


def test_a_gpu_that_is_lost_late_has_figures_of_the_time_before_and_a_row_without_a_gpu_is_none(logs):
    logs.run("r", 500, 213_500, GPUS)
    logs.record(logs.steps(0, 220_000, 1000), GPUS, lost=[("GPU-1", 150_000, 999_999)])
    logs.rows.append({"timestamp": logs.clock(230_000)} | logs.moment(230_000))
    logs.write()
    gpus = check(logs.folder)["gpus"]
    assert [gpu["coverage"] > 0.9 for gpu in gpus] == [True, False] and len(gpus) == 2


@pytest.mark.parametrize("is_told", [True, False])
def test_intervals_of_20_ms_and_of_1_s_in_one_log(logs, is_told):
    logs.run("r", 10_000, 90_000, GPUS[:1])
    fast = logs.steps(5_000, 50_000, 20)
    slow = logs.steps(fast[-1] + 900, 95_000, 1000)
    if is_told:
        logs.record(fast, GPUS[:1], interval=0.02).record(slow, GPUS[:1], interval=1.0).write()
    else:
        logs.record(fast + slow, GPUS[:1], counter=GPUS[:1]).write()
    assert gpu_of(check(logs.folder))["coverage"] > 0.98


def test_pauses_are_no_pace(logs):
    logs.run("r", 0, 300_000, GPUS[:1])
    logs.record([*range(0, 60_000, 1000), 160_000, 260_000, *range(261_000, 310_000, 1000)], GPUS[:1], interval=1).write()
    assert gpu_of(check(logs.folder))["coverage"] < 0.4


def test_two_gpus_one_of_which_had_its_driver_reloaded(logs):
    logs.run("r", 3_210, 98_765, GPUS)
    logs.record(logs.steps(0, 100_000, 500), GPUS, interval=0.5, counter=["GPU-0"], reload_ms=40_000).write()
    found = check(logs.folder)["runs"][0]
    assert found["efficiency"]["energy_j"] is not None


def test_a_folder_with_other_files(tmp_path):
    logs = Logs(tmp_path, seed=1)
    logs.run("r", 0, 50_000, GPUS)
    logs.write()
    (tmp_path / "other.jsonl").write_text("{}\n", encoding="utf-8")
    done = run("monitor-log", "report", "--events", tmp_path, "--out", tmp_path / "report.json")
    runs = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))["runs"]
    assert len(runs) == 1 and "left out: " in done.stderr and "other.jsonl" in done.stderr


def test_a_recording_of_a_tenth_of_a_run(logs):
    logs.run("r", 0, 200_000, GPUS[:1])
    logs.record(logs.steps(50_000, 70_000, 1000), GPUS[:1], interval=1).write()
    report = check(logs.folder)
    gpu = gpu_of(report)
    assert 0.09 < gpu["coverage"] < 0.11 and gpu["values"]["gpu_util"]["mean"] is None and gpu["energy_j"] is None
    assert any("% of the run, too little to give figures" in note for note in report["runs"][0]["notes"])


def test_a_reading_around_a_short_run_tells_of_the_time_around_it(logs):
    logs.run("r", 13_000, 16_000, GPUS[:1])
    logs.record(range(0, 60_000, 10_000), GPUS[:1], interval=10).write()
    report = check(logs.folder)
    assert gpu_of(report)["coverage"] == 1 and gpu_of(report)["energy_j"] is None
    assert report["gpus"][0]["values"] == {}
    assert any("too few for its figures" in note for note in report["runs"][0]["notes"])


@pytest.mark.parametrize("jump_ms", [3_600_000, -3_600_000, 30_000, -90_000])
def test_a_wall_clock_that_is_set_changes_nothing(tmp_path, jump_ms):
    logs = Logs(tmp_path, seed=1)
    logs.jump = 50_000, jump_ms
    logs.run("r", 20_000, 80_000, GPUS)
    logs.record(logs.steps(0, 100_000, 1000), GPUS, interval=1, counter=["GPU-0"]).write()
    assert gpu_of(check(tmp_path))["coverage"] > 0.98


def test_only_one_of_run_and_samples_names_its_boot(tmp_path):
    logs = Logs(tmp_path, seed=1)
    logs.run("r", 20_000, 80_000, GPUS)
    logs.boot = False
    logs.record(logs.steps(0, 100_000, 1000), GPUS, interval=1).write()
    run("monitor-log", "report", "--gpu", tmp_path / "gpu.csv", "--events", tmp_path / "events.jsonl", "--out", tmp_path / "report.json")
    [found] = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))["runs"]
    assert [gpu["coverage"] for gpu in found["gpus"]] == [0, 0] and found["efficiency"]["energy_j"] is None
    assert any(note.startswith("it is not joined with the samples") for note in found["notes"])


def test_rows_that_are_read_twice_count_once(logs):
    logs.run("r", 20_000, 80_000, GPUS)
    logs.record(logs.steps(0, 100_000, 1000), GPUS, interval=1, counter=["GPU-0"])
    logs.rows += logs.rows
    logs.write()
    assert gpu_of(check(logs.folder))["coverage"] > 0.98


def test_a_gpu_that_was_gone_for_half_of_a_run(logs):
    logs.run("r", 250, 1_000_250, GPUS[:1])
    logs.record(logs.steps(0, 1_002_000, 1000), GPUS[:1], lost=[("GPU-0", 250_000, 749_000)]).write()
    report = check(logs.folder)
    assert gpu_of(report)["coverage"] == pytest.approx(0.5, abs=0.002)
    assert any("its energy is scaled to the run" in note for note in report["runs"][0]["notes"])


def test_two_runs_on_one_gpu_have_no_energy_of_their_own(logs):
    logs.run("a", 5_000, 60_000, GPUS[:1])
    logs.run("b", 30_500, 95_000, GPUS[:1])
    logs.run("c", 50_000, 70_000, GPUS[1:])
    logs.record(logs.steps(0, 100_000, 1000), GPUS, interval=1, counter=["GPU-1"]).write()
    report = check(logs.folder)
    assert [gpu_of(report, run=run)["energy_j"] is None for run in range(3)] == [True, True, False]
    assert any("other runs were at work on it" in note for note in report["runs"][0]["notes"])


def test_power_above_3_kw_and_a_gpu_without_samples(logs):
    logs.run("r", 0, 99_000, GPUS[:1])
    logs.record(range(0, 100_000, 1000), GPUS[:1], interval=1)
    for row in logs.rows[10:90:7]:
        row["power_w"] = "4294967.295"
    logs.write()
    assert gpu_of(check(logs.folder))["values"]["power_w"]["max"] <= 700
    events = (logs.folder / "events.jsonl").read_text(encoding="utf-8")
    (logs.folder / "events.jsonl").write_text(events.replace('["GPU-0"]', '["GPU-0", "GPU-1"]'), encoding="utf-8")
    run("monitor-log", "report", *paths(logs.folder), "--out", logs.folder / "two.json")
    [found] = json.loads((logs.folder / "two.json").read_text(encoding="utf-8"))["runs"]
    known = [(gpu["coverage"], gpu["samples"]) for gpu in found["gpus"]]
    assert known[0][0] == 1 and known[1] == (0, 0)


def test_a_run_that_was_interrupted_has_the_time_of_both_attempts(logs):
    logs.run("a", 5_000, 40_000, GPUS[:1], job="j", outcome=None)
    logs.run("b", 60_000, 95_000, GPUS[:1], job="j")
    logs.record(logs.steps(0, 80_000, 1000), GPUS[:1], interval=1, counter=GPUS[:1]).write()
    assert 0.75 < gpu_of(check(logs.folder))["coverage"] < 0.8


@pytest.mark.parametrize("seed", range(12))
def test_recordings_with_holes_at_random(tmp_path, seed):
    logs = Logs(tmp_path, seed)
    draw = logs.random
    for name in "abc":
        start = draw.randrange(60_000)
        logs.run(name, start, start + draw.randrange(5_000, 60_000), draw.choice([GPUS, GPUS[:1], GPUS[1:]]))
    times = sorted(draw.sample(range(0, 120_000, draw.choice([10, 100])), draw.randrange(50, 1000)))
    holes = [(draw.choice(GPUS), start, start + draw.randrange(40_000)) for start in (10_000, 60_000)]
    logs.record(times, GPUS, interval=draw.choice([None, 0.1, 1]), lost=holes, counter=GPUS[: draw.randrange(3)])
    logs.write()
    check(tmp_path)


def test_a_recording_of_a_stand_in_for_the_driver(tmp_path):
    library = tmp_path / "libnvidia-ml.so.1"
    source = ROOT / "tests/fixtures/monitor_log/fake_nvml.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    record = [PROGRAMS / "monitor-log", "record", "--out", "gpu.csv", "--interval", "20ms", "--", "sleep", "2"]
    subprocess.run(record, cwd=tmp_path, env=os.environ | {"LD_LIBRARY_PATH": str(tmp_path)}, check=True)
    with open(tmp_path / "gpu.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    times = sorted({milliseconds(row) for row in rows})
    start, end = times[0] + 107, times[-1] - 211
    work = {"sequences": 1, "tokens": 9, "residues": 7}
    first = {"boot_id": rows[0]["boot_id"], "job": "r", "device": "cuda", "gpu_uuids": ["GPU-0", "GPU-3"]}
    last = {"elapsed_s": (end - start) / 1000, "outcome": "done"} | work
    events = [
        {"type": "run", "run": "r", "boot_s": start / 1000} | first,
        {"type": "batch", "run": "r", "boot_s": (start + 1000) / 1000, "batch": 0} | work,
        {"type": "done", "run": "r", "boot_s": end / 1000} | last,
    ]
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events), encoding="utf-8")
    check(tmp_path)
