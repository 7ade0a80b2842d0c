"""Puts a staged installation into a wheel: the programs with their pages and the module, or the library for GPUs."""

import os
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Staged(BuildHookInterface):
    def initialize(self, version, build_data):
        staged = Path(os.environ["PLMKIT_STAGED"])
        # What `make dist` builds runs with the glibc that the tag names and newer ones; nothing in it depends on a version of Python.
        build_data["tag"] = f"py3-none-{os.environ['PLATFORM']}"
        build_data["pure_python"] = False
        if self.metadata.name == "plmkit-cuda":
            library = staged / "lib/plmkit/libplmkit_cuda.so"
            build_data["force_include"] = {str(library): f"plmkit_cuda/{library.name}"}
            return
        build_data["shared_scripts"] = {str(program): program.name for program in sorted(staged.glob("bin/*"))}
        build_data["shared_data"] = {
            str(file): str(file.relative_to(staged)) for file in sorted(staged.glob("share/**/*")) if file.is_file() and "doc" not in file.parts
        }
