"""Workers end with the process that started them, even when it is killed, and see its environment."""

import os
import signal
import subprocess
import sys
import time

import pytest

from paclab import processes
from paclab.errors import InputError

SPAWN = """
import multiprocessing, os, time
from concurrent.futures import ProcessPoolExecutor
from paclab.processes import leave_with_parent

if __name__ == "__main__":
    pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"), initializer=leave_with_parent)
    print(pool.submit(os.getpid).result(), flush=True)
    pool.submit(time.sleep, 600)
    time.sleep(600)
"""
POOL = """
import os, time
from paclab.processes import pool

if __name__ == "__main__":
    workers = pool(1)
    print(workers.submit(os.getpid).result(), workers.submit(os.getppid).result(), flush=True)
    workers.submit(time.sleep, 600)
    time.sleep(600)
"""


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as handle:
        return handle.read().rsplit(")", 1)[1].split()[0] != "Z"


@pytest.mark.parametrize("code", [SPAWN, POOL])
def test_a_killed_parent_takes_its_workers_along(tmp_path, code):
    script = tmp_path / "parent.py"
    script.write_text(code)
    parent = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    started = [pid for pid in map(int, parent.stdout.readline().split()) if pid != parent.pid]
    assert started and all(map(alive, started))
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    end = time.monotonic() + 30
    while any(map(alive, started)) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(map(alive, started))


def test_every_pool_has_the_environment_of_its_own_time(monkeypatch):
    for value in ("first", "second"):
        monkeypatch.setenv("PACLAB_TEST_POOL", value)
        with processes.pool(1) as pool:
            assert pool.submit(os.getenv, "PACLAB_TEST_POOL").result() == value
    monkeypatch.delenv("PACLAB_TEST_POOL")
    with processes.pool(1) as pool:
        assert pool.submit(os.getenv, "PACLAB_TEST_POOL").result() is None


def test_workers_share_no_random_state():
    with processes.pool(2) as pool:
        found = list(pool.map(_draws, range(2)))
    assert found[0][0] != found[1][0]  # two processes
    assert all(one != other for one, other in zip(found[0][1], found[1][1], strict=True))


def _draws(_: int) -> tuple[int, tuple[float, float, float]]:
    import random
    import secrets

    import numpy as np

    time.sleep(0.5)  # so that both workers take one
    return os.getpid(), (random.random(), float(np.random.random()), secrets.randbits(64))  # noqa: NPY002


def test_a_worker_with_other_sources_than_its_parent_does_nothing(tmp_path):
    """The fork server read the package once; a cell must never be kept under the hash of code that did not make it."""
    from paclab import experiments

    config = experiments.Config(method="mezo", steps=2, study=True)
    with pytest.raises(InputError, match=r"code: the package's sources changed.*start it again"):
        experiments._work(config, tmp_path / "cell", False, "another hash")
    assert not (tmp_path / "cell").exists()
