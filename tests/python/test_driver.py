"""What scripts/libtorch.sh says of a machine's NVIDIA driver, before it fetches anything."""

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts/libtorch.sh"
CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {}  Tue Mar  5 22:23:56 UTC 2024\nGCC version:  gcc version 12.2.0\n"
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  {}  Release Build  (dvs-builder@U22)\n"


def said(file, path=os.environ["PATH"]):
    done = subprocess.run([SCRIPT, "driver", file], env={"PATH": path}, capture_output=True, text=True, check=True)
    return done.stderr


@pytest.mark.parametrize("module", [CLOSED, OPEN])
@pytest.mark.parametrize(
    ("release", "words"),
    [
        ("580.65.06", "NVIDIA driver 580.65.06: new enough"),
        ("1000.1", "NVIDIA driver 1000.1: new enough"),
        ("550.54.15", "warning: NVIDIA driver 550.54.15 is too old for CUDA 13: expected 580"),
        ("575.57.08", "warning: NVIDIA driver 575.57.08 is too old"),
    ],
)
def test_the_kernel_module_tells_its_release(tmp_path, module, release, words):
    file = tmp_path / "version"
    file.write_text(module.format(release))
    assert said(file).startswith(f"libtorch: {words}")


def test_nvidia_smi_tells_it_where_the_module_does_not(tmp_path):
    smi = tmp_path / "nvidia-smi"
    for script, words in [("echo 550.54.15; echo 550.54.15", "warning: NVIDIA driver 550.54.15 "), ("echo failed; exit 9", "no NVIDIA driver here")]:
        smi.write_text(f"#!/bin/sh\n{script}\n")
        smi.chmod(0o755)
        assert said(tmp_path / "none", f"{tmp_path}:{os.environ['PATH']}").startswith(f"libtorch: {words}")
