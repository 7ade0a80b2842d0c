"""The workflow as jobs of a real SLURM with two devices that stand for GPUs."""

import subprocess
import sys

from case import ROOT, check
from failures import LONG, equal, many

CLUSTER = ROOT / "tests/workflows/slurm/cluster.sh"
# No GPU behind the devices: gpu-embed computes on the CPU.
OPTIONS = ["-c", str(ROOT / "tests/workflows/nextflow/slurm.config"), "-profile", "gpu,slurm", "--slurm_queue", "debug", *LONG]


def slurm(case):
    if not CLUSTER.exists():
        sys.exit(f"{CLUSTER}: missing: it starts the SLURM that this check needs")
    cluster = case.path("cluster")
    started = subprocess.run([CLUSTER, "start", cluster])
    if started.returncode == 77:
        return
    check("SLURM starts", started.returncode == 0)
    case.env["SLURM_CONF"] = f"{cluster}/slurm.conf"
    try:
        jobs(case)
    finally:
        subprocess.run([CLUSTER, "stop", cluster])


def jobs(case):
    many(case.path("long.fasta"), 20)
    case.wrapper("gpu-embed", f"""
[[ $1 == --version ]] && exec "$real" "$@"
echo "${{CUDA_VISIBLE_DEVICES-none}} ${{SLURM_JOB_ID-none}}" >>{case.folder}/devices
mkdir "$once" 2>/dev/null && exit 75
exec "$real" "$@"
""")
    run = case.run(*OPTIONS)
    check("every task a job", run.code == 0 and len(run.of("GPU_EMBED", "COMPLETED")) >= 2, run.said)
    tries = [task["attempt"] for task in run.of("GPU_EMBED") if task["exit"] == "75"]
    check("a job that ends with 75 is tried again", tries == ["1"] and len(run.of("GPU_EMBED", "FAILED")) == 1, run.tasks)
    devices = [line.split() for line in case.path("devices").read_text().splitlines()]
    alone = all(device in ("0", "1") and job != "none" for device, job in devices)
    check(f"each of {len(devices)} GPU jobs sees one device", alone and len(devices) == len(run.of("GPU_EMBED")), devices)
    equal(case)
    run = case.run("-resume", *OPTIONS)
    check("-resume submits nothing", run.code == 0 and run.tasks and not run.computed(), run.tasks)
    case.wrapper("pack-batches", '[[ $1 == --version ]] && exec "$real" "$@"\nexit 65\n')
    run = case.run(*OPTIONS, "--outdir", "out65")
    codes = {(task["exit"], task["attempt"]) for task in run.of("PACK_BATCHES") if task["status"] == "FAILED"}
    check("a job that ends with 65 is not tried again", run.code != 0 and codes == {("65", "1")}, run.tasks)
