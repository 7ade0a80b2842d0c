"""Measures `monitor-log report` on a long event log: python3 tests/bench/long_log.py [--events N] [--keep FOLDER].

The log is one run of gpu-embed, with all fields that it writes; beside it lie samples of two GPUs, one a second. Both follow
from the number of events alone. Needs nothing but the standard library; 10 million events are a log of 3.6 GB.
"""

import argparse
import datetime
import json
import os
import pathlib
import random
import resource
import subprocess
import sys
import tempfile
import time

PROGRAMS = pathlib.Path(os.environ.get("PLMKIT_PROGRAMS", pathlib.Path(__file__).resolve().parents[2] / "target/release"))
RUN = "2026-01-31T12:00:00.000Z-4711"
START = datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.timezone.utc)
TOKEN_BUDGET = 16384
# Different lines are so many; they come again with other numbers, times and waits.
PATTERNS = 1000
BATCH_S = 0.02


def timestamp(elapsed_s):
    return (START + datetime.timedelta(seconds=elapsed_s)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def write_events(path, events):
    """One run with `events` batches; returns the sums that a report must find."""
    draw = random.Random(1)
    patterns = []
    for _ in range(PATTERNS):
        sequences = draw.randint(20, 90)
        tokens = draw.randint(15500, TOKEN_BUDGET)
        patterns.append((tokens, draw.choice([0.004, 0.007, 0.31, 1.25, 1.9]), (
            f'"h2d_ms":{draw.randint(100, 900) / 1000},"compute_ms":{draw.randint(17000, 19999) / 1000},'
            f'"d2h_ms":{draw.randint(10, 99) / 1000},"write_ms":{draw.randint(1000, 2999) / 1000},'
            f'"queue_depth":{draw.randint(0, 8)},"sequences":{sequences},"tokens":{tokens},'
            f'"residues":{tokens - 2 * sequences},"pairs":{tokens * 350},"token_budget":{TOKEN_BUDGET},'
            f'"oom_splits":0}}\n'
        )))
    with open(path, "w", buffering=1 << 20) as log:
        log.write(
            f'{{"type":"run","run":"{RUN}","time":"{timestamp(0)}","boot_id":"b","boot_s":0.0,"tool":"gpu-embed","version":"0.1.0",'
            f'"model_digest":"00112233445566778899aabbccddeeff","device":"cuda:0","gpu_uuids":["GPU-0"],"pid":4711,'
            f'"flops_per_token":297000000,"flops_per_pair":76800,"dtype":"bf16","threads":8,'
            f'"batches_total":{events},"token_budget":{TOKEN_BUDGET}}}\n'
        )
        total = 0
        second = ""
        for batch in range(events):
            tokens, wait_ms, rest = patterns[batch % PATTERNS]
            total += tokens
            elapsed_s = (batch + 1) * BATCH_S
            if batch % 50 == 0:
                second = timestamp(elapsed_s)[:-4]
            log.write(
                f'{{"type":"batch","run":"{RUN}","batch":{batch},"time":"{second}{batch % 50 * 20:03}Z",'
                f'"boot_s":{elapsed_s:.3f},"elapsed_s":{elapsed_s:.6f},"wait_ms":{wait_ms},{rest}'
            )
        elapsed_s = events * BATCH_S
        log.write(
            f'{{"type":"done","run":"{RUN}","time":"{timestamp(elapsed_s)}","boot_s":{elapsed_s},'
            f'"elapsed_s":{elapsed_s},"outcome":"done"}}\n'
        )
    return {"batches": events, "tokens": total, "tokens_per_s": total / elapsed_s}


def write_samples(path, seconds):
    """Two GPUs, a row a second."""
    with open(path, "w") as log:
        log.write("timestamp,boot_id,boot_s,index,uuid,name,gpu_util,mem_used_mib,mem_total_mib,temperature_c,power_w,throttle,energy_j\n")
        for second in range(seconds):
            for gpu in 0, 1:
                log.write(
                    f"{timestamp(second)},b,{second},{gpu},GPU-{gpu},NVIDIA H100 80GB HBM3,{90 + second % 10},60000,81559,"
                    f"66,{600 + second % 50},none,{625.5 * second}\n"
                )


def measure(folder, report, commands):
    """Wall time in seconds and peak memory in MiB of `monitor-log report`."""
    command = [PROGRAMS / "monitor-log", "report", "--quiet", *commands, "--out", report]
    begin = time.perf_counter()
    subprocess.run(command, check=True, cwd=folder)
    seconds = time.perf_counter() - begin
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"seconds": seconds, "cpu_seconds": used.ru_utime + used.ru_stime, "peak_mib": used.ru_maxrss / 1024}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--keep", type=pathlib.Path, help="folder for the logs, which stay and are used again")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (args.keep or pathlib.Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        events, samples, sums = folder / "events.jsonl", folder / "gpu.csv", folder / "sums.json"
        if not sums.exists():
            sums.write_text(json.dumps(write_events(events, args.events)))
            write_samples(samples, int(args.events * BATCH_S) + 1)
        expected = json.loads(sums.read_text())
        measured = measure(folder, "report.json", ["--events", events, "--gpu", samples, "--html", "report.html"])
        run = json.loads((folder / "report.json").read_text())["runs"][0]
        found = {"batches": run["batches"], "tokens": run["tokens"], "tokens_per_s": run["throughput"]["tokens_per_s"]}
        if found != expected:
            sys.exit(f"expected {expected}, found {found}")
        figures = {"log_mib": os.path.getsize(events) / (1 << 20), **expected, **measured}
        print(json.dumps({name: round(value, 2) for name, value in figures.items()}))


if __name__ == "__main__":
    main()
