"""Checks a recipe that containers/conda/recipe.sh wrote, and runs the tests of `plmkit` with the programs of this build.

    python conda.py FOLDER

conda-build is on no index that pip knows. The recipe is rendered with its Jinja functions standing for themselves; dependencies are
parsed by rattler, and what Bioconda's linter asks for is asked for here.
"""

import hashlib
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path

import jinja2
import yaml
from rattler import MatchSpec

ROOT = Path(__file__).resolve().parents[2]
CARGO = tomllib.loads((ROOT / "Cargo.toml").read_text())
VERSION = CARGO["workspace"]["package"]["version"]


def render(path):
    """The recipe as conda-build reads it on Linux."""
    functions = {
        "compiler": lambda language: f"compiler_{language}",
        "stdlib": lambda language: f"stdlib_{language}",
        "pin_subpackage": lambda name, exact=False, max_pin=None: f"{name} =={VERSION}" if exact else f"{name} >={VERSION},<{max_pin}",
    }
    lines = [line for line in path.read_text().splitlines() if not line.endswith("# [not linux]")]
    return yaml.safe_load(jinja2.Environment(undefined=jinja2.StrictUndefined).from_string("\n".join(lines)).render(functions))


def names(specs):
    return [MatchSpec(spec, strict=True).name.normalized for spec in specs]


def check_package(recipe, files):
    assert recipe["package"]["version"] == VERSION, recipe["package"]
    assert recipe["build"]["number"] == 0 and "requirements" not in recipe and "run_exports" not in recipe["build"]
    about = recipe["about"]
    assert len(about["summary"]) <= 120 and about["home"] == CARGO["workspace"]["package"]["repository"]
    assert about["license"] == CARGO["workspace"]["package"]["license"]
    # install.sh makes that one.
    assert set(about["license_file"]) - set(files) == {"THIRDPARTY.yml"}, about["license_file"]


def check_output(output):
    """What one package is built of."""
    name, requirements = output["name"], output["requirements"]
    build = names(requirements["build"])
    assert {"compiler-c", "stdlib-c", "compiler-rust", "cargo-bundle-licenses"} <= {one.replace("_", "-") for one in build}, build
    assert not [one for part in ("host", "run") for one in names(requirements.get(part, [])) if one.startswith(("compiler", "stdlib"))]
    names(requirements.get("run_constrained", []))
    # An own `about` would take the place of the recipe's, with its licences.
    assert "about" not in output
    assert names(output["build"]["run_exports"]) == [name]


def run_tests(output, sources):
    """The commands of its test, in a folder that has its source files and nothing else."""
    with tempfile.TemporaryDirectory() as folder:
        for source in output["test"]["source_files"]:
            (Path(folder) / source).parent.mkdir(parents=True, exist_ok=True)
            (Path(folder) / source).symlink_to((sources / source).resolve(strict=True))
        path = f"{ROOT / 'target/release'}:{os.environ['PATH']}"
        commands = "\n".join(["set -e", *output["test"]["commands"]])
        done = subprocess.run(["bash", "-c", commands], cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        print(f"conda: {output['name']}: {len(output['test']['commands'])} commands of its test passed")


def check_libtorch(output):
    """Its libtorch is the one that all else is built with."""
    pinned = re.search(r" torch-(\d+[.]\d+)[.]", (ROOT / "scripts/wheels-libtorch.txt").read_text()).group(1)
    (spec,) = [spec for spec in output["requirements"]["host"] if spec.startswith("libtorch ")]
    assert MatchSpec(spec, strict=True).version == f"{pinned}.*", spec


def check_workflows(packages):
    """The packages that the workflows name."""
    workflows = ROOT / "workflows"
    environments = [path for path in (*workflows.rglob("environment*.yml"), *workflows.rglob("envs/*.yaml")) if "plmkit" in path.read_text()]
    assert environments
    for path in environments:
        for spec in yaml.safe_load(path.read_text())["dependencies"]:
            spec = MatchSpec(spec.split("::")[-1])
            if spec.name.normalized.startswith("plmkit"):
                assert spec.name.normalized in packages, f"{path}: {spec}"
                assert VERSION.startswith(str(spec.version).strip("=.*")), f"{path}: {spec}"
    return len(environments)


def main(folder):
    recipe = render(folder / "plmkit-split/meta.yaml")
    # The name of its folder, and of no package.
    assert recipe["package"]["name"] == "plmkit-split"
    tarball = folder / recipe["source"]["url"].rsplit("/", 1)[1]
    assert hashlib.sha256(tarball.read_bytes()).hexdigest() == recipe["source"]["sha256"]
    with tempfile.TemporaryDirectory() as unpacked, tarfile.open(tarball) as archive:
        archive.extractall(unpacked, filter="data")
        sources = Path(unpacked) / f"plmkit-{VERSION}"
        files = [str(path.relative_to(sources)) for path in sources.rglob("*")]
        check_package(recipe, files)
        packages = {output["name"]: output for output in recipe["outputs"]}
        assert set(packages) == {"plmkit", "plmkit-cuda"}
        for output in packages.values():
            check_output(output)
        run_tests(packages["plmkit"], sources)
        tested = {command.split()[0] for command in packages["plmkit"]["test"]["commands"] if command.endswith("--version")}
        assert tested == {program["name"] for program in CARGO["bin"]}, tested
        check_libtorch(packages["plmkit-cuda"])
    print(f"conda: {check_workflows(packages)} environments of workflows name these packages")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
