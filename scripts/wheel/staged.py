"""Puts the programs of a staged installation, and what belongs to them, into a wheel."""

import os
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Staged(BuildHookInterface):
    def initialize(self, version, build_data):
        staged = Path(os.environ["PLMKIT_STAGED"])
        programs = self.config["programs"]
        # The oldest glibc that the programs run with; nothing in them depends on a version of Python.
        build_data["tag"] = "py3-none-manylinux_2_28_x86_64"
        build_data["pure_python"] = False
        build_data["shared_scripts"] = {str(staged / "bin" / program): program for program in programs}
        # Man pages and completions are named after their program.
        names = {*programs, *self.config.get("also", [])}
        build_data["shared_data"] = {
            str(file): str(file.relative_to(staged))
            for file in sorted(staged.glob("share/**/*"))
            if file.is_file() and file.name.split(".")[0].removeprefix("_") in names
        }
