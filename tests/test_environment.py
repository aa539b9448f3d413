"""environment.yml, pyproject.toml and constraints.txt say the same; no address of any index is in them."""

import re
import tomllib
from importlib import metadata
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TO_CONDA = {"torch": "pytorch"}
ENVIRONMENT = yaml.safe_load((ROOT / "environment.yml").read_text())


def conda_requirements() -> dict[str, Requirement]:
    """Name -> requirement of environment.yml, its pip section included."""
    lines = [d for d in ENVIRONMENT["dependencies"] if isinstance(d, str)]
    lines += [line for d in ENVIRONMENT["dependencies"] if isinstance(d, dict) for line in d["pip"]]
    found = {}
    for line in lines:
        if not line.startswith("-e"):
            requirement = Requirement(re.sub(r"(?<![=<>!~])=(?!=)", "==", line, count=1))
            assert requirement.name not in found, f"{requirement.name} twice"
            found[requirement.name] = requirement
    return found


def test_one_channel_and_paclab_itself():
    assert ENVIRONMENT["channels"] == ["conda-forge", "nodefaults"]
    pip = next(d for d in ENVIRONMENT["dependencies"] if isinstance(d, dict))["pip"]
    assert "-e ." in pip
    assert "pip" in ENVIRONMENT["dependencies"]


def test_every_dependency_has_the_same_bounds_in_both_files():
    conda = conda_requirements()
    for requirement in map(
        Requirement, [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["test"]]
    ):
        name = TO_CONDA.get(requirement.name, requirement.name)
        assert name in conda, f"environment.yml lacks {name}"
        assert conda[name].specifier == requirement.specifier, name


def test_environment_has_nothing_that_pyproject_lacks():
    names = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["test"]]
    known = {TO_CONDA.get(Requirement(n).name, Requirement(n).name) for n in names} | {"python", "pip"}
    assert set(conda_requirements()) <= known


def test_the_pinned_python_is_allowed():
    pinned = next(iter(conda_requirements()["python"].specifier)).version
    assert Version(pinned) in SpecifierSet(PROJECT["requires-python"])


def test_every_line_of_the_environment_says_what_it_is_for():
    for line in (ROOT / "environment.yml").read_text().splitlines():
        if re.match(r"\s+- (?!pip:)", line):
            assert "#" in line, line


def test_no_build_strings():
    for line in (d for d in ENVIRONMENT["dependencies"] if isinstance(d, str)):
        assert line.count("=") <= 2 and not re.search(r"=[a-z0-9]+_\d+$", line), line


def test_constraints_pin_every_dependency_within_its_bounds():
    text = (ROOT / "constraints.txt").read_text()
    assert "://" not in text and "/" not in re.sub(r"#.*", "", text) and "--" not in text
    pins = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, version = line.split("==")
            pins[name.lower().replace("_", "-")] = Version(version)
    for requirement in map(
        Requirement,
        [
            *PROJECT["dependencies"],
            *PROJECT["optional-dependencies"]["test"],
            *PROJECT["optional-dependencies"]["browser"],
        ],
    ):
        assert pins[requirement.name.lower().replace("_", "-")] in requirement.specifier, requirement.name
    assert pins["torch"] == Version("2.13.0")


def test_the_version_is_said_once():
    import paclab

    assert PROJECT["version"] == paclab.__version__ == metadata.version("paclab")
    assert f"version: {paclab.__version__}" in (ROOT / "CITATION.cff").read_text()


def test_make_targets_exist():
    text = (ROOT / "Makefile").read_text()
    for target in ("run", "test", "lab", "lint", "setup"):
        assert re.search(rf"^{target}:", text, re.M), target
    assert "make test" in (ROOT / ".ci" / "run").read_text()
