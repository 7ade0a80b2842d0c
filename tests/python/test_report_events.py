"""The figures of monitor-log's report from run events, computed a second time with json alone."""

import json
import math
from collections import defaultdict

import pytest
from conftest import run


def as_events(name, *, workers=1, batches=40, seconds=100.0, wait_ms=5.0, busy=0.9, first=0, job="job", at=0.0, **started):
    """A run with a made-up rhythm: worker w has batches w, w + workers, … Times differ from batch to batch."""
    events = [{
        "type": "run", "run": name, "job": job, "boot_id": "b", "boot_s": at, "device": "cuda", "sample": "S",
        "gpu_uuids": [f"GPU-{worker}" for worker in range(workers)], "gpu_names": ["NVIDIA L4"] * workers,
        "load_ms": 8000.0, "host": "node1", "driver_version": "580.65.06", "cuda_version": "13.0", **started,
    }]
    if workers > 1:
        events[0] |= {"workers": workers, "worker_gpus": events[0]["gpu_uuids"]}
    step = seconds / (batches / workers + 1)
    for batch in range(first, batches):
        turn = batch // workers - first // workers + 1
        events.append({
            "type": "batch", "run": name, "batch": batch, "boot_s": at + turn * step, "elapsed_s": turn * step,
            "wait_ms": wait_ms * (1 + batch % 7), "h2d_ms": 1.5, "compute_ms": 1000 * step * busy * (1 - batch % 5 / 50),
            "d2h_ms": 2.5, "write_ms": 11.0, "worker": batch % workers, "sequences": 10 + batch % 3,
            "tokens": 4000 - 17 * (batch % 11), "residues": 3900, "longest": 300 + batch, "token_budget": 4096,
            "oom_splits": 0, "recomputed": batch % 2, "device_memory_mib": 900, "device_memory_peak_mib": 1000 + batch,
        })
        if workers == 1:
            del events[-1]["worker"]
    return events


def as_done(events, seconds=100.0):
    """The same run with its last event."""
    batches = [event for event in events if event["type"] == "batch"]
    sums = {name: sum(batch[name] for batch in batches) for name in ["sequences", "tokens", "residues"]}
    last = {"type": "done", "run": events[0]["run"], "boot_s": events[0]["boot_s"] + seconds, "elapsed_s": seconds}
    return [*events, last | sums | {"outcome": "done"}]


def starved():
    """Ten batches in 1,000 s, which waited for all but 3 s."""
    events = as_events("r", batches=10, seconds=1000.0)
    for batch in events[1:]:
        waits = 100_000.0 if batch["batch"] else 90_000.0
        batch |= {"wait_ms": waits - 300.0, "compute_ms": 300.0, "elapsed_s": 100.0 * batch["batch"] + 90.0, "h2d_ms": 0.0, "d2h_ms": 0.0, "write_ms": 0.0}
    return as_done(events, 1000.0)


LOGS = {
    "one worker": [as_done(as_events("r"))],
    "two workers": [as_done(as_events("r", workers=2, batches=61))],
    "two workers that the first event does not count": [as_done([event for event in as_events("r", workers=2) if event.pop("workers", 1)])],
    "killed and resumed": [as_events("z", seconds=60.0)[:20], as_done(as_events("a", first=15, at=200.0, batches_saved=15))],
    "99.7 % waiting": [starved()],
    "repeats": [as_done(as_events(f"r{number}", at=1000.0 * number, seconds=90.0 + number), 90.0 + number) for number in range(3)],
}


def percentile(values, percent):
    values = sorted(values)
    return values[max(math.ceil(len(values) * percent / 100), 1) - 1]


def distribution(values):
    if not values:
        return None
    quantiles = {f"p{percent}": percentile(values, percent) for percent in (5, 50, 95)}
    return {"batches": len(values), "min": min(values), **quantiles, "max": max(values), "mean": math.fsum(values) / len(values)}


def figures(attempts):
    """The figures of one run from the events of its attempts, in their order."""
    elapsed, seen, lost = 0.0, set(), []
    workers = defaultdict(lambda: defaultdict(float))
    batches = [event for events in attempts for event in events if event["type"] == "batch"]
    for events in attempts:
        own = [event for event in events if event["type"] == "batch"]
        done = [event["elapsed_s"] for event in events if event["type"] == "done"]
        seconds = done[0] if done else max(batch["elapsed_s"] for batch in own)
        elapsed += seconds
        lost += [batch for batch in own if batch["batch"] in seen]
        seen |= {batch["batch"] for batch in own}
        for number in range(max(events[0].get("workers", 1), *(batch.get("worker", 0) + 1 for batch in own))):
            mine = [batch for batch in own if batch.get("worker", 0) == number]
            first = mine[0]
            start = first["elapsed_s"] - (first["h2d_ms"] + first["compute_ms"] + first["d2h_ms"] + first["write_ms"]) / 1000
            computing = math.fsum(batch["compute_ms"] for batch in mine) / 1000
            idle = max(seconds - computing, 0)
            starting = min(max(start, 0), idle)
            waiting = min(math.fsum(batch["wait_ms"] for batch in mine[1:]) / 1000, idle - starting)
            sums = workers[number]
            sums["elapsed"] += seconds
            sums["idle"] += idle
            sums["starting"] += starting
            sums["waiting"] += waiting
            sums["waits"] += math.fsum(batch["wait_ms"] for batch in mine) / 1000
            sums["computing"] += computing
            sums["batches"] += len(mine)
            for name in ["sequences", "tokens", "residues"]:
                sums[name] += sum(batch[name] for batch in mine)
    unique = list({batch["batch"]: batch for batch in reversed(batches)}.values())
    counts = {name: sum(batch[name] for batch in unique) for name in ["sequences", "tokens", "residues", "recomputed"]}
    time = math.fsum(sums["elapsed"] for sums in workers.values())
    idle = {part: math.fsum(sums[part] for sums in workers.values()) / time for part in ["idle", "starting", "waiting"]}
    loading = sum(events[0]["load_ms"] for events in attempts) / 1000
    return {
        **counts,
        "elapsed_s": elapsed,
        "attempts": len(attempts),
        "lost_batches": len(lost),
        "lost_tokens": sum(batch["tokens"] for batch in lost),
        "load_share": loading / (loading + elapsed),
        "longest": max(batch["longest"] for batch in batches),
        "mean_length": counts["tokens"] / counts["sequences"],
        "peak_device_memory_mib": max(batch["device_memory_peak_mib"] for batch in batches),
        "idle": {
            "share": idle["idle"],
            "starting": idle["starting"],
            "waiting": idle["waiting"],
            "other": idle["idle"] - idle["starting"] - idle["waiting"],
        },
        "throughput": {f"{name}_per_s": counts[name] / elapsed for name in ["sequences", "tokens", "residues"]},
        "distributions": {
            "wait_ms": distribution([batch["wait_ms"] for batch in batches]),
            "compute_ms": distribution([batch["compute_ms"] for batch in batches]),
            "tokens": distribution([batch["tokens"] for batch in batches]),
            "longest": distribution([batch["longest"] for batch in batches]),
        },
        "by_worker": [
            {
                "worker": number,
                "gpu_uuid": f"GPU-{number}",
                "gpu_name": "NVIDIA L4",
                "batches": sums["batches"],
                "sequences": sums["sequences"],
                "tokens": sums["tokens"],
                "token_share": sums["tokens"] / sum(other["tokens"] for other in workers.values()),
                "throughput": {f"{name}_per_s": sums[name] / sums["elapsed"] for name in ["sequences", "tokens", "residues"]},
                "wait_share": min(sums["waits"] / sums["elapsed"], 1),
                "compute_share": sums["computing"] / sums["elapsed"],
                "idle": {
                    "share": sums["idle"] / sums["elapsed"],
                    "starting": sums["starting"] / sums["elapsed"],
                    "waiting": sums["waiting"] / sums["elapsed"],
                    "other": (sums["idle"] - sums["starting"] - sums["waiting"]) / sums["elapsed"],
                },
            }
            for number, sums in sorted(workers.items())
        ],
        "stages": {
            "compute": {"share": math.fsum(batch["compute_ms"] for batch in batches) / 1000 / time},
            "write": {"share": math.fsum(batch["write_ms"] for batch in batches) / 1000 / elapsed},
        },
    }


def assert_agrees(found, expected, where="report"):
    """Compares the figures that are expected; a report may have more."""
    if isinstance(expected, dict):
        for name, value in expected.items():
            assert_agrees(found[name], value, f"{where}.{name}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), where
        for place, pair in enumerate(zip(found, expected, strict=True)):
            assert_agrees(*pair, f"{where}[{place}]")
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-12), where
    else:
        assert found == expected, where


def report(folder, logs):
    """The report on logs, each in a file of a subfolder of its own. The first one has the last name."""
    for place, events in enumerate(logs):
        path = folder / "logs" / f"{9 - place}" / "events.jsonl"
        path.parent.mkdir(parents=True)
        path.write_text("".join(json.dumps(event) + "\n" for event in events), encoding="utf-8")
    run("monitor-log", "report", "--events", folder / "logs", "--out", folder / "report.json")
    return json.loads((folder / "report.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", LOGS)
def test_figures_agree_with_a_second_computation(name, tmp_path):
    logs = LOGS[name]
    # Logs are read in the order of their first events.
    for place, events in enumerate(logs):
        events[0]["time"] = f"2026-01-31T12:0{place}:00.000Z"
    events = report(tmp_path, logs)["events"]
    expected = [figures([events]) for events in logs] if name == "repeats" else [figures(logs)]
    assert_agrees(events["runs"], expected)
    for found in events["runs"]:
        shares = [found["idle"][part] for part in ["starting", "waiting", "other"]]
        assert all(0 <= share <= 1 for share in shares) and sum(shares) <= 1 + 1e-9
        known = [found[name] for name in ["host", "driver_version", "cuda_version"]]
        assert known == ["node1", "580.65.06", "13.0"]


def test_waiting_is_critical(tmp_path):
    found = report(tmp_path, [starved()])
    assert found["verdict"] == "critical"
    [run_] = found["events"]["runs"]
    assert run_["idle"]["share"] == pytest.approx(0.997, rel=1e-9)
    assert (run_["idle_tier"], run_["queue"]["state"]) == ("critical", "starved")


def test_an_interruption_is_told(tmp_path):
    logs = LOGS["killed and resumed"]
    [found] = report(tmp_path, logs)["events"]["runs"]
    first, second = found["by_attempt"]
    assert (first["run"], first["outcome"], first["gap_s"]) == ("z", None, None)
    assert (second["run"], second["outcome"], second["batches_again"]) == ("a", "done", 4)
    assert second["gap_s"] == pytest.approx(200.0 - logs[0][-1]["boot_s"], rel=1e-9)


def test_repeats_and_samples_are_summed_up(tmp_path):
    logs = LOGS["repeats"]
    events = report(tmp_path, logs)["events"]
    rates = [figures([events])["throughput"]["tokens_per_s"] for events in logs]
    mean = math.fsum(rates) / 3
    spread = {"mean": mean, "stddev": math.sqrt(math.fsum((rate - mean) ** 2 for rate in rates) / 2), "min": min(rates), "max": max(rates)}
    assert_agrees(events["repeats"], [{"job": "job", "sample": "S", "runs": ["r0", "r1", "r2"], "tokens_per_s": spread}])
    seconds = 90.0 + 91.0 + 92.0
    tokens = sum(event["tokens"] for event in logs[0] if event["type"] == "batch")
    # Batch utilisation over all batches, each with a budget of 4,096 tokens.
    packing = tokens / (40 * 4096)
    assert_agrees(events["by_sample"], [{
        "sample": "S", "runs": 3, "shards": 1, "unfinished": 0, "tokens": 3 * tokens, "elapsed_s": seconds,
        "tokens_per_s": 3 * tokens / seconds, "gpu_hours": (seconds + 3 * 8.0) / 3600, "energy_j": None, "mean_fill": packing,
    }])


def test_runs_of_one_name_in_two_files_do_not_mix(tmp_path):
    logs = [as_done(as_events("r", job=job, host=job)) for job in ["one", "two"]]
    found = report(tmp_path, [*logs, logs[0]])["events"]["runs"]
    assert sorted(run["host"] for run in found) == ["one", "two"]
    assert [run["batches"] for run in found] == [40, 40]
