"""Secret randomness: a keyed generator seeded by the operating system, kept apart from everything public.

Draw number (purpose, step, k) is a pure function of the secret key (SHAKE-256), so a step that is repeated after
a crash meets the same noise and the same coin and can never show a second value. The key is never derived from,
nor written beside, the public direction key.
"""

import hashlib
import json
import secrets
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.special import ndtri

from paclab.errors import InputError
from paclab.files import PRIVATE_FILE, private_dir, write_json

REPRODUCIBLE = "reproducible, not private"
KEY_BYTES = 32


@dataclass(frozen=True)
class Secret:
    """A secret key; `reproducible` marks one that was derived from a seed and therefore hides nothing."""

    key: bytes
    reproducible: bool = False

    def __repr__(self) -> str:
        return f"Secret(<hidden>, reproducible={self.reproducible})"

    @classmethod
    def fresh(cls) -> "Secret":
        """A key from the operating system's generator."""
        return cls(secrets.token_bytes(KEY_BYTES))

    @classmethod
    def from_seed(cls, seed: int) -> "Secret":
        """A key anyone can rebuild from `seed`: for studies of public pools only."""
        return cls(hashlib.sha256(f"paclab study secret {seed}".encode()).digest(), reproducible=True)

    def _words(self, purpose: str, step: int, k: int, count: int) -> np.ndarray:
        label = f"{purpose}/{step}/{k}".encode()
        return np.frombuffer(hashlib.shake_256(self.key + label).digest(8 * count), dtype="<u8")

    def uniform(self, purpose: str, step: int, k: int = 0, count: int = 1) -> np.ndarray:
        """Uniforms in the open interval (0, 1): float64 [count], 52 random bits each."""
        return ((self._words(purpose, step, k, count) >> 12).astype(np.float64) + 0.5) * 2.0**-52

    def normal(self, purpose: str, step: int, k: int = 0, count: int = 1) -> np.ndarray:
        """Standard normals by inversion: float64 [count]."""
        return ndtri(self.uniform(purpose, step, k, count))

    def coin(self, purpose: str, step: int, k: int = 0) -> int:
        """A fair sign, +1 or -1."""
        return 1 if int(self._words(purpose, step, k, 1)[0]) & 1 else -1

    def index(self, count: int) -> int:
        """The secret candidate's index: uniform on 0..count-1 up to a bias below 2**-120."""
        digest = hashlib.shake_256(self.key + b"secret index").digest(32)
        return int.from_bytes(digest, "little") % count

    def save(self, folder: Path, bound_to: str) -> None:
        """Write the key into a folder of its own (mode 0700, file 0600), with a hash of all that a run depends on."""
        record = {"key": self.key.hex(), "reproducible": self.reproducible, "bound_to": bound_to}
        write_json(private_dir(folder) / "secret.json", record, PRIVATE_FILE)

    @classmethod
    def load(cls, folder: Path) -> tuple["Secret", str]:
        """Read the key that `save` wrote, and the hash it is bound to: under other inputs it must never be used."""
        try:
            record = json.loads((Path(folder) / "secret.json").read_text())
            key = bytes.fromhex(record["key"])
            if len(key) != KEY_BYTES:
                raise ValueError
            return cls(key, bool(record["reproducible"])), str(record["bound_to"])
        except (OSError, ValueError, KeyError, TypeError):
            raise InputError("secret", f"no readable secret in {folder}", "resume only runs whose secret "
                             "folder is intact; a lost secret cannot be drawn again") from None
