"""Worker processes that start fast and never outlive the process that started them; knows nothing of what they do."""

import contextlib
import ctypes
import multiprocessing
import os
import sys
import threading
from concurrent.futures import ProcessPoolExecutor

HEAVY = ("torch", "transformers.modeling_utils", "transformers.models.auto.modeling_auto")  # seconds of importing


def leave_with_parent() -> None:
    """End this worker when the process that started it is gone, however it went: an initialiser for process pools."""
    parent = multiprocessing.parent_process()
    threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()


def pool(workers: int, preload: tuple[str, ...] = ()) -> ProcessPoolExecutor:
    """A pool of fresh processes that see this process's environment and leave with it.

    On Linux they are forked from a server that imported the heavy libraries and `preload` once, so only the first pool
    of a process waits for them; the server runs none of the caller's code and holds none of its secrets.
    """
    if sys.platform == "linux":
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([*HEAVY, *preload])
    else:
        context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(workers, mp_context=context, initializer=_begin, initargs=(dict(os.environ),))


def release_memory() -> None:
    """Give freed memory back to the system: glibc keeps the fragments of many model runs, some 20 MB of each."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # another C library
            ctypes.CDLL(None).malloc_trim(0)


def _begin(environment: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)  # the server's may be older
    if "numpy.random" in sys.modules:  # forked workers would share its global state
        sys.modules["numpy.random"].seed()
    leave_with_parent()
