"""Independent pieces of work side by side, each on one thread, so that no number depends on the thread count."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import torch


def side_by_side(work: Callable, items: list, device: torch.device, most: int | None = None) -> Iterator:
    """`work(item)` for every item, in order; on a CPU each on one thread, `most` or as many at a time as torch may use.

    One thread an item is faster than all threads on each, and the numbers no longer depend on their count.
    """
    before = torch.get_num_threads()
    if device.type != "cpu" or before < 2:
        return map(work, items)
    threads = min(before, len(items), most or before)
    if threads < 2:
        torch.set_num_threads(1)
        try:
            return iter([work(item) for item in items])
        finally:
            torch.set_num_threads(before)
    ready = threading.Barrier(threads + 1)

    def alone() -> None:
        torch.get_num_threads()  # lets torch adopt the process's count now rather than after the next line
        torch.set_num_threads(1)  # this thread's own share
        ready.wait()

    with ThreadPoolExecutor(threads) as pool:
        starts = [pool.submit(alone) for _ in range(threads)]
        ready.wait()
        torch.set_num_threads(before)
        for start in starts:
            start.result()
        return iter(list(pool.map(work, items)))
