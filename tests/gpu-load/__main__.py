"""Runs gpu-embed on the real libtorch for CUDA with nothing underneath it that computes, and reads what the device was told.

See tree.sh and device_log.py. Ends with 0 if every case is as it should be, with 1 if one is not.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

import device_log
from figures import MOST
from inputs import Inputs

ROOT = Path(__file__).parents[2]
EVERYTHING = ["--pool", "mean,max,std,bos", "--layers", "all", "--residues", "--logits", "--contacts"]
UNCACHED = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
# The files that an installation on this kind of machine has of each wheel: the last column of its table.
PINS = [line.split() for line in (ROOT / "scripts/wheels-libtorch.txt").read_text(encoding="utf-8").splitlines() if line[:1] != "#"]
INSTALLED = re.compile("|".join(kept for *_, wheel, kept in PINS if wheel.endswith(f"{os.uname().machine}.whl")))


@dataclass
class Run:
    """A run of gpu-embed that has ended, and what its processes told the device."""

    code: int
    said: str
    printed: str
    logs: list
    libraries: set
    out: Path


class Programs:
    def __init__(self, options):
        self.options = options

    def embed(self, name, batches, model, *more, environment=None):
        folder = self.options.work / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        out = folder / "embeddings.parquet"
        command = [self.options.tree / "run", self.options.gpu_embed, "--model", model, "--progress", "none", "--threads", "1"]
        command += [batches, "--out", out] if batches else []
        command += [] if "--device" in more else ["--device", "cuda"]
        own = os.environ | {"STAND_IN_LOG": str(folder), "LD_DEBUG": "files", "LD_DEBUG_OUTPUT": f"{folder}/loader"} | (environment or {})
        done = subprocess.run([*map(str, command), *more], env=own, capture_output=True, text=True, check=False, timeout=120)
        libraries = loaded(folder, self.options.tree)
        return Run(done.returncode, done.stderr.strip(), done.stdout.strip(), device_log.calls(folder), libraries, out)


    def plmkit(self, name, *more, environment=None):
        """plmkit on the proteins of test-data, in shards of a few."""
        folder = self.options.work / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        command = [self.options.tree / "run", self.options.programs / "plmkit", ROOT / "test-data/proteins.fasta", "--threads", "1"]
        command += ["--model", ROOT / "test-data/model-tiny", "--out", folder / "results", "--max-shard-tokens", "5000"]
        # Otherwise a process of its own measures the size.
        command += ["--max-batch-tokens=4096", *more]
        own = os.environ | {"STAND_IN_LOG": str(folder)} | (environment or {})
        done = subprocess.run([*map(str, command)], env=own, capture_output=True, text=True, check=False, timeout=120)
        return Run(done.returncode, done.stderr.strip(), done.stdout.strip(), device_log.calls(folder), set(), folder / "results")


def loaded(folder, tree):
    """The libraries of the wheels that processes have loaded, as their loader said, below the folder of the wheels. The driver is the
    machine's; it and the runtime are one file there, and have the name that is asked for first."""
    said = "".join(path.read_text(encoding="utf-8") for path in folder.glob("loader.*"))
    paths = {os.path.relpath(path, tree) for path in re.findall(r"calling init: (\S+)", said)}
    paths = {path for path in paths if path.startswith(("torch/", "nvidia/")) and not path.endswith("/libcuda.so.1")}
    return {path for path in paths if (tree / path).resolve().name != "libplmkit_absent.so"}


def whole(run, rows, columns=("mean_4",)):
    """Faults of a run that should have embedded so many sequences."""
    if run.code != 0:
        return [f"exit code {run.code}: {run.said[-400:]}"]
    faults = [fault for log in run.logs for fault in (*device_log.refused(log), *device_log.elsewhere(log), *device_log.races(log))]
    faults += [f"{library} is not in an installation" for library in run.libraries if not INSTALLED.search(library)]
    if not run.logs or "torch/lib/libtorch_cuda.so" not in run.libraries:
        faults.append("nothing was launched")
    file = pq.ParquetFile(run.out)
    if file.metadata.num_rows != rows:
        faults.append(f"{file.metadata.num_rows} rows; expected {rows}")
    faults += [f"no column {column}" for column in columns if column not in file.schema_arrow.names]
    return faults


def steady(run):
    """Faults of a run whose batches are all alike, once the first few are over."""
    faults = []
    for log in run.logs:
        if not device_log.steady(log):
            faults.append("too few batches")
        faults += [f"the host waits in the steady state: {call}" for call in device_log.stalls(log)]
        faults += [f"memory is taken in the steady state: {call}" for call in device_log.taken(log)]
    return faults


class Suite:
    def __init__(self, options):
        self.programs, self.inputs = Programs(options), Inputs(options)

    def way(self, dtype, kernels, name=""):
        """The usual run, in the steady state, within the figures."""
        options = ["--dtype", dtype, "--kernels", kernels]
        run = self.programs.embed(f"{dtype}-{kernels}", self.inputs.alike, self.inputs.model, *options)
        faults = whole(run, self.inputs.alike_rows) + steady(run)
        if faults:
            return faults, ""
        (log,) = run.logs
        found = device_log.figures(device_log.steady(log)[-1])
        limits = MOST[kernels][dtype]
        faults += [f"{found[what]} {what}; expected at most {most}" for what, most in limits.items() if found[what] > most]
        fewer = [f"{what} {most} could be {found[what]}" for what, most in limits.items() if found[what] < most]
        return faults, ", ".join([f"{count} {what}" for what, count in found.items()] + fewer)

    def everything(self, dtype):
        """All outputs, of batches that are alike."""
        run = self.programs.embed(f"all-{dtype}", self.inputs.alike, self.inputs.model, "--dtype", dtype, *EVERYTHING)
        columns = ["mean_0", "max_1", "std_2", "bos_4", "residues_4", "logits", "contacts"]
        return whole(run, self.inputs.alike_rows, columns) + steady(run), ""

    def memory(self, dtype, kernels):
        """Without libtorch's cache every tensor is memory of the device: it must not grow from batch to batch."""
        options = ["--dtype", dtype, "--kernels", kernels, *EVERYTHING]
        run = self.programs.embed(f"memory-{dtype}-{kernels}", self.inputs.alike, self.inputs.model, *options, environment=UNCACHED)
        faults, figure = whole(run, self.inputs.alike_rows), ""
        for log in run.logs:
            grown, over = device_log.growth(log)
            figure = f"{grown} bytes more after {over} batches"
            faults += [figure] if grown > 0 or over < 1 else []
        return faults, figure

    def natural(self, dtype, kernels):
        """Proteins of many lengths."""
        # The values mean nothing, and logits would be too far from those in f32.
        outputs = [option for option in EVERYTHING if dtype != "fp8" or option != "--logits"]
        options = ["--dtype", dtype, "--kernels", kernels, *outputs]
        run = self.programs.embed(f"natural-{dtype}-{kernels}", self.inputs.natural, self.inputs.model, *options)
        return whole(run, self.inputs.natural_rows), ""

    def windows(self):
        run = self.programs.embed("windows", self.inputs.windows, self.inputs.model, "--residues", "--pool", "mean,std")
        return whole(run, self.inputs.windows_rows, ["mean_4", "n_windows", "residues_4"]), ""

    def peptides(self, dtype, kernels):
        """More sequences in a batch than attention takes in a call."""
        options = ["--dtype", dtype, "--kernels", kernels]
        # libtorch pools one sequence after the other.
        options += ["--pool", "mean,max,std,bos", "--residues", "--logits"] if kernels == "auto" else []
        run = self.programs.embed(f"peptides-{dtype}-{kernels}", self.inputs.peptides, self.inputs.model, *options)
        return whole(run, self.inputs.peptides_rows), f"{self.inputs.peptides_rows} in a batch"

    def head(self, head_dim, dtype, kernels):
        """A head whose channels are no multiple of 8."""
        model = self.inputs.heads[head_dim]
        options = ["--dtype", dtype, "--kernels", kernels, "--pool", "mean", "--contacts", "--logits"]
        run = self.programs.embed(f"head-{head_dim}-{dtype}-{kernels}", self.inputs.natural, model, *options)
        return whole(run, self.inputs.natural_rows), ""

    def relative(self, name, dtype, kernels):
        """A model with other layers than ESM-2's."""
        options = ["--dtype", dtype, "--kernels", kernels, "--pool", "mean", "--residues"]
        # As for natural lengths.
        logits = [] if dtype == "fp8" else ["logits"]
        options += [f"--{option}" for option in logits]
        model = self.inputs.relatives[name]
        run = self.programs.embed(f"{name}-{dtype}-{kernels}", self.inputs.natural, model, *options)
        return whole(run, self.inputs.natural_rows, ["mean_4", "residues_4", *logits]), ""

    def probe(self):
        """A budget where memory ends."""
        environment = {"STAND_IN_MIB": "256"}
        run = self.programs.embed("probe", None, self.inputs.model, "--probe", environment=environment)
        refusals = sum(call[0] == "refuse" for log in run.logs for call in log)
        faults = [] if run.code == 0 and run.printed.isdigit() and refusals else [f"exit code {run.code}: {run.said[-400:]}"]
        return faults, f"{run.printed} tokens, memory was refused {refusals} times"

    def turing(self):
        """The oldest device that libtorch has code for: memory-efficient attention in f16."""
        environment = {"STAND_IN_CAPABILITY": "75"}
        run = self.programs.embed("turing", self.inputs.natural, self.inputs.model, *EVERYTHING, environment=environment)
        efficient = any("fmha_cutlassF_f16" in call[-1] for log in run.logs for call in log)
        return whole(run, self.inputs.natural_rows) + ([] if efficient else ["no memory-efficient attention"]), ""

    def in_8_bits(self, capability):
        """Three of four products of a layer are in fp8, by cuBLAS or CUTLASS."""
        environment = {"STAND_IN_CAPABILITY": capability}
        options = ["--dtype", "fp8", "--pool", "mean"]
        run = self.programs.embed(f"fp8-{capability}", self.inputs.alike, self.inputs.model, *options, environment=environment)
        faults = whole(run, self.inputs.alike_rows)
        names = [call[5] for call in device_log.steady(run.logs[0])[-1] if call[0] == "launch"] if not faults else []
        of_layers = {kernel: names.count(kernel) for kernel in ("add_layer_norm_e4m3_packets", "gelu_e4m3_packets")}
        layers = sum(name.split("::")[-1].startswith(device_log.ATTENTION) for name in names)
        if not faults and list(of_layers.values()) != [2 * layers, layers]:
            faults.append(f"in {layers} layers: {of_layers}")
        return faults, ""

    def memory_runs_out(self):
        """A batch that does not fit is computed in pieces that do."""
        run = self.programs.embed("tight", self.inputs.peptides, self.inputs.model, environment={"STAND_IN_MIB": "512"})
        refusals = sum(call[0] == "refuse" for log in run.logs for call in log)
        faults = whole(run, self.inputs.peptides_rows) + ([] if refusals else ["memory was never refused"])
        return faults, f"memory was refused {refusals} times"

    def not_finite(self):
        """A sequence whose values overflow is computed again in f32, and listed where they still do."""
        run = self.programs.embed("again", self.inputs.alike, self.inputs.model, "--inject", "not-finite=5")
        expected = "1 sequence could not be embedded"
        if run.code != 1 or expected not in run.said:
            return [f"exit code {run.code}: {run.said[-400:]}"], ""
        run.code = 0
        again = any("fmha_cutlassF_f32" in call[-1] for log in run.logs for call in log)
        return whole(run, self.inputs.alike_rows - 1) + ([] if again else ["nothing was computed in f32"]), ""

    def devices(self):
        """plmkit over two GPUs: a process for each, and shards for both."""
        run = self.programs.plmkit("devices", "--device", "all", environment={"STAND_IN_GPUS": "2"})
        used = sum(bool(log) for log in run.logs)
        # 1: values that mean nothing fail the validation.
        faults = [] if run.code in (0, 1) else [f"exit code {run.code}: {run.said[-400:]}"]
        return faults + ([] if used == 2 else [f"{used} processes used a device; expected 2"]), f"{used} processes"

    def cases(self):
        """Name and function of each."""
        ways = [(dtype, kernels) for kernels in ("auto", "libtorch") for dtype in ("f16", "bf16", "f32")] + [("fp8", "auto")]
        for way in ways:
            yield f"{way[0]}, kernels {way[1]}", lambda way=way: self.way(*way)
        for dtype in ("f16", "bf16", "f32", "fp8"):
            yield f"{dtype}, all outputs", lambda dtype=dtype: self.everything(dtype)
        for way in (("f16", "auto"), ("f32", "auto"), ("f16", "libtorch"), ("fp8", "auto"), ("fp8", "libtorch")):
            yield f"{way[0]}, kernels {way[1]}, memory", lambda way=way: self.memory(*way)
            yield f"{way[0]}, kernels {way[1]}, natural lengths", lambda way=way: self.natural(*way)
            for name in self.inputs.relatives:
                yield f"{way[0]}, kernels {way[1]}, {name}", lambda way=way, name=name: self.relative(name, *way)
            if way[0] == "fp8":
                continue
            yield f"{way[0]}, kernels {way[1]}, peptides", lambda way=way: self.peptides(*way)
            for head_dim in (10, 20):
                yield f"{way[0]}, kernels {way[1]}, heads of {head_dim}", lambda way=way, d=head_dim: self.head(d, *way)
        for capability in ("89", "90", "100"):
            yield f"fp8, compute capability {capability}", lambda capability=capability: self.in_8_bits(capability)
        yield "windows", self.windows
        yield "probe", self.probe
        yield "compute capability 7.5", self.turing
        yield "memory runs out", self.memory_runs_out
        yield "values that are not finite", self.not_finite
        yield "plmkit on two devices", self.devices


def arguments():
    parser = argparse.ArgumentParser(prog="gpu-load", description=__doc__.splitlines()[0])
    programs, work = ROOT / "target/release", ROOT / "target/gpu-load"
    parser.add_argument("--programs", type=Path, default=programs, help="folder of fasta-shard and pack-batches")
    parser.add_argument("--gpu-embed", type=Path, help="the program to run [default: PROGRAMS/gpu-embed]")
    parser.add_argument("--tree", type=Path, default=work / "tree", help="what tree.sh has made")
    parser.add_argument("--work", type=Path, default=work, help="folder for inputs, outputs and logs")
    parser.add_argument("--cases", default="", help="only those whose names have this in them")
    options = parser.parse_args()
    options.gpu_embed = options.gpu_embed or options.programs / "gpu-embed"
    return options


def main():
    options = arguments()
    suite = Suite(options)
    chosen = [(name, case) for name, case in suite.cases() if options.cases in name]
    failed = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for (name, _), (faults, figure) in zip(chosen, pool.map(lambda case: case[1](), chosen), strict=True):
            failed += bool(faults)
            print(f"{name:40}  {figure or 'ok' if not faults else 'FAILED'}", flush=True)
            for fault in dict.fromkeys(faults[:5]):
                print(f"    {fault}", flush=True)
    print(f"{len(chosen) - failed} of {len(chosen)} cases as they should be")
    return 1 if failed or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
