"""Where a result comes from: hashes of what went in, versions, time and memory.

Knows files, packages and the machine's load. Does not know notebooks' contents or privacy. Nothing here names
a machine, a user or a folder outside the project.
"""

import hashlib
import json
import os
import platform
import resource
import subprocess
import sys
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

from paclab.files import sha256_file, sha256_json

PACKAGES = ("torch", "transformers", "tokenizers", "numpy", "scipy", "dp-accounting", "pandas", "matplotlib")


def notebook_hash(path: Path) -> str:
    """SHA-256 of a notebook's cells (kind, tags, source): outputs and metadata do not count."""
    cells = json.loads(path.read_text())["cells"]
    kept = [(c["cell_type"], c.get("metadata", {}).get("tags", []), "".join(c["source"])) for c in cells]
    return sha256_json(kept)


def tree_hash(folder: Path, pattern: str = "*") -> str:
    """SHA-256 over names and contents of the matching files under `folder`, hidden ones aside."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob(pattern)):
        parts = path.relative_to(folder).parts
        if path.is_file() and not any(p.startswith((".", "__pycache__")) for p in parts):
            digest.update(f"{'/'.join(parts)}\0{sha256_file(path)}\n".encode())
    return digest.hexdigest()


def package_hash() -> str:
    """SHA-256 of the package's own source: any change to it makes every chapter stale."""
    return tree_hash(Path(__file__).resolve().parents[1], "*.py")


@lru_cache
def versions() -> dict[str, str]:
    """Python's minor version and the versions of paclab and of the packages that numbers depend on."""
    found = {"python": ".".join(platform.python_version_tuple()[:2])}
    for name in ("paclab", *PACKAGES):
        try:
            found[name] = metadata.version(name).partition("+")[0]
        except metadata.PackageNotFoundError:
            found[name] = "absent"
    return found


def run_key(notebook: Path, params: dict[str, Any], root: Path, inputs: list[str]) -> str:
    """Name of a run: equal keys mean equal notebook, parameters, package, data, inputs and versions."""
    kept = {name: value for name, value in params.items() if name != "out_dir"}
    return sha256_json(
        {
            "notebook": notebook_hash(notebook),
            "params": kept,
            "package": package_hash(),
            "data": tree_hash(root / "data"),
            "inputs": inputs,
            "versions": versions(),
        }
    )


def peak_memory_mb() -> float:
    """Largest resident memory of this process or of one of its children so far, in MiB."""
    scale = 1024 if sys.platform != "darwin" else 1024 * 1024
    peaks = [resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return round(max(peaks) / scale, 1)


def free_memory_gb() -> float:
    """Memory that a new process could take now, in GiB."""
    import psutil

    return psutil.virtual_memory().available / 2**30


def device_name() -> str:
    """The accelerator that torch sees in this process, or `cpu`; torch is not imported for it."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return "cpu"
    return f"{torch.cuda.device_count()} x {torch.cuda.get_device_name()}"


def commit(root: Path) -> dict[str, Any]:
    """The checked-out commit and whether the tree differs from it; empty outside a checkout."""

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", "-C", str(root), *words], capture_output=True, text=True, timeout=20, check=True
        ).stdout.strip()

    try:
        return {"commit": git("rev-parse", "HEAD"), "dirty": bool(git("status", "--porcelain"))}
    except (OSError, subprocess.SubprocessError):
        return {}


def thread_caps() -> dict[str, str]:
    """Thread limits that the environment sets; they may change the last digits of a sum."""
    return {name: os.environ[name] for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS") if name in os.environ}
