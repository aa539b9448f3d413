"""Does this machine work? One line per thing a chapter needs: OK, NOTE (works, but) or FAIL (with the fix).

Knows versions, folders, memory and devices. Does not know chapters; torch is imported for the device alone.
"""

import os
import shutil
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from paclab.notebook.provenance import free_memory_gb


class Finding(NamedTuple):
    """One checked thing: `level` is OK, NOTE or FAIL."""

    level: str
    what: str
    detail: str


def environment(root: Path) -> list[Finding]:
    """Every check of chapter 00, in the order in which a newcomer would ask."""
    return [_python(), *_packages(root), _kernel(root), _writable(root), _disk(root), _memory(), _data(root)]


def lines(findings: list[Finding]) -> str:
    """The findings as text, one line each."""
    return "\n".join(f"{f.level:<5}{f.what:<26}{f.detail}" for f in findings)


def device() -> tuple[str, str]:
    """The device that torch would compute on and the reason: cuda, mps or cpu."""
    import torch

    if torch.cuda.is_available():
        return "cuda", f"{torch.cuda.device_count()} accelerator(s) visible: {torch.cuda.get_device_name()}"
    if torch.backends.mps.is_available():
        return "mps", "Apple's Metal is available and CUDA is not"
    built = "this torch was built without CUDA" if torch.version.cuda is None else "no CUDA device is visible"
    return "cpu", f"{built}; {cores()} cores"


def cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    return Finding("OK", "Python", version)  # older ones cannot import this package


def _packages(root: Path) -> list[Finding]:
    from packaging.requirements import Requirement

    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    good, found = [], []
    for requirement in map(Requirement, project["dependencies"]):
        try:
            version = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            found.append(Finding("FAIL", requirement.name, "not installed; run `make setup`"))
            continue
        if requirement.specifier.contains(version, prereleases=True):
            good.append(f"{requirement.name} {version.partition('+')[0]}")
        else:
            fix = f"{version} does not fit {requirement.specifier}; run `make setup`"
            found.append(Finding("FAIL", requirement.name, fix))
    shown = [
        g for g in good if g.split()[0] in ("torch", "transformers", "numpy", "jupyterlab", "ipywidgets")
    ]
    return [*found, Finding("OK", f"{len(good)} packages", ", ".join(shown) + ", ...")]


def _kernel(root: Path) -> Finding:
    if Path(sys.prefix).resolve().is_relative_to(root.resolve()):
        return Finding("OK", "kernel", "runs in the project's own environment")
    return Finding(
        "NOTE", "kernel", "runs outside the project's .venv; fine if its packages are the ones above"
    )


def _writable(root: Path) -> Finding:
    place = root / "runs" if (root / "runs").is_dir() else root
    if os.access(place, os.W_OK):
        return Finding("OK", "runs/", "can be written")
    return Finding("FAIL", "runs/", "cannot be written; copy the project to a folder of yours")


def _disk(root: Path) -> Finding:
    free = shutil.disk_usage(root).free / 2**30
    level = "OK" if free > 2 else "NOTE"
    return Finding(
        level, "disk", f"{_round(free)} GB free" + ("" if free > 2 else "; the book needs about 2")
    )


def _memory() -> Finding:
    free = free_memory_gb()
    fine = free > 3
    hint = "" if fine else "; close other programs, or run one notebook at a time (--jobs 1)"
    return Finding("OK" if fine else "NOTE", "memory", f"{_round(free)} GB free{hint}")


def _data(root: Path) -> Finding:
    files = list((root / "data" / "model").glob("*.safetensors"))
    if files:
        return Finding(
            "OK", "embedded model", f"{files[0].stat().st_size / 1e6:.1f} MB of weights in data/model"
        )
    return Finding("NOTE", "embedded model", "not in data/model; `paclab pretrain` makes it in half an hour")


def _round(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"
