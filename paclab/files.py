"""Files that are either whole or absent: atomic writes, durable appends, private folders."""

import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from paclab.errors import InputError

PRIVATE_FILE, PRIVATE_DIR = 0o600, 0o700


def write_atomic(path: Path | str, data: bytes | str, mode: int = 0o644) -> None:
    """Write `data` so that a reader or a crash sees the old file or the new one, never a part."""
    path = Path(path)
    payload = data.encode() if isinstance(data, str) else data
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fd, scratch = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise InputError("out", f"cannot write {path} ({error.strerror})", "choose a writable folder") from None
    try:
        os.fchmod(fd, mode)
        with os.fdopen(fd, "wb") as handle:
            handle.write(payload)
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(scratch, path)
    except BaseException as error:
        Path(scratch).unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise InputError("folder", f"cannot write {path} ({error.strerror})",
                             "free some space and repeat: nothing was lost") from None
        raise


def write_json(path: Path | str, value: Any, mode: int = 0o644) -> None:
    """Write `value` as sorted, indented JSON, atomically; not-a-number is refused rather than written."""
    write_atomic(path, json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n", mode)


def private_dir(path: Path | str) -> Path:
    """Create a folder that only its owner may enter (mode 0700)."""
    path = Path(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(PRIVATE_DIR)
        if not (path / ".gitignore").exists():
            write_atomic(path / ".gitignore", "*\n", PRIVATE_FILE)  # never by `git add .`
    except OSError as error:
        raise InputError("out", f"cannot create {path} ({error.strerror})", "choose a writable folder") from None
    return path


def sha256_file(path: Path | str) -> str:
    """Hexadecimal SHA-256 of a file's bytes."""
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def sha256_json(value: Any) -> str:
    """Hexadecimal SHA-256 of a value's canonical JSON: the name of a cached computation."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, allow_nan=False).encode()).hexdigest()
