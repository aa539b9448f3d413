"""What do K directions of one step share? One K = 64 step against 64 steps of one direction at the same batch.

    python benchmarks/directions.py [--threads 2] [--k 64] [--repeats 3] [--out benchmarks/results/directions.json]

A step is whole: batch, probes, release, both durable lines, update (dp-aggzo, an expected batch of 64 of 1,000).
"Plain" is the same K-direction step by the plain loop: the model's own tensors, one direction after another. Repeats
are interleaved and minima are taken, of wall time and of CPU time; on a machine that others use, the CPU time of one
thread is the number to read. Work is counted: FLOP of the forward passes (benchmarks/step.py), and bytes of the
directions and weights (a direction is written once and read three times: two signs, one update). Ceilings are
measured in the same process and the same way: products of the model's own shapes, a copy too large for the caches.
"""

import argparse
import json
import os
import platform
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import torch
from step import forward_work, linear_shapes

from paclab import finetune
from paclab.files import write_json
from paclab.finetune import Config
from paclab.releases.secret import Secret
from paclab.zo import transcript
from paclab.zo.train import Job, probe
from paclab.zo.update import Follower

SINGLES = 16  # single steps in a repeat; their mean stands for one


class Time(NamedTuple):
    wall: float
    cpu: float


def clock(work) -> Time:
    """Wall and CPU seconds of `work()`."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return Time(time.perf_counter() - wall, time.process_time() - cpu)


def least(times: list[Time], share: int = 1) -> Time:
    """Minima over repeats, a `share`-th of each."""
    return Time(min(t.wall for t in times) / share, min(t.cpu for t in times) / share)


def job_of(track: str, k: int) -> tuple[Job, finetune.Prepared]:
    """A dp-aggzo run whose every step meets the same batch."""
    config = Config(method="dp-aggzo", k=k, epsilon=6.0, clip=10.0, steps=10**6, accountant="rdp", track=track,
                    study=True, dev=10, test=10)
    prepared = finetune.prepare(config, Secret.from_seed(0), device="cpu")
    batch = prepared.job.release.select(0)
    return prepared.job._replace(release=prepared.job.release._replace(select=lambda t: batch)), prepared


class Stepper:
    """Whole steps of a job, one after another, with durable lines in a folder of their own."""

    def __init__(self, job: Job, folder: Path):
        self.job, self.folder, self.t = job, folder, 0
        self.private, self.follower = job.release.init(), Follower(job.weights, job.directions, job.rule)

    def __call__(self) -> None:
        self.private, released, info = self.job.release.step(self.private, self.t, probe(self.job, self.t))
        transcript.append(self.folder / "ledger", json.dumps(info) + "\n", 0o600)
        transcript.append(self.folder / "transcript", transcript.Line(self.t, 1e-9, released.values).text())
        self.follower.apply(self.t, 1e-9, released.values)
        self.t += 1


def ceilings(module, repeats: int) -> tuple[float, float]:
    """FLOP/s of the model's own products, and bytes/s of a copy (read and write); per CPU second of one thread."""
    shapes, tokens = linear_shapes(module), 1024
    pairs = [(torch.randn(tokens, a), torch.randn(a, b)) for a, b in shapes]
    big, other = torch.randn(1 << 25), torch.empty(1 << 25)
    products = least([clock(lambda: [x @ w for x, w in pairs]) for _ in range(5 * repeats)])
    copies = least([clock(lambda: other.copy_(big)) for _ in range(3 * repeats)])
    return sum(2 * tokens * a * b for a, b in shapes) / products.cpu, 2 * 4 * len(big) / copies.cpu


def measure(track: str, k: int, repeats: int, scratch: Path) -> dict:
    """All three ways, interleaved."""
    (many, prepared), (one, _) = job_of(track, k), job_of(track, 1)
    steppers = {name: Stepper(job, scratch / f"{track}-{name}") for name, job in {
        "shared": many, "plain": many._replace(copies=None, stacked=None), "single": one}.items()}
    times: dict[str, list[Time]] = {name: [] for name in steppers}
    for stepper in steppers.values():
        stepper.folder.mkdir()
    steppers["single"]()  # one warm-up; a K-direction step is its own
    for _ in range(repeats):
        for name, stepper in steppers.items():
            times[name].append(clock(stepper if name != "single" else lambda s=stepper: [s() for _ in range(SINGLES)]))
    shared, plain, single = least(times["shared"]), least(times["plain"]), least(times["single"], SINGLES)
    objective = prepared.job.losses.__self__
    batches = objective.scorer.batches([objective.rows[i] for i in many.release.select(0)])
    objective.losses(many.release.select(0))
    flop = 2 * k * forward_work(prepared.model, objective.scorer, batches)[1]
    moved = k * many.weights.count * 4 * (1 + 2 * 3 + 3)  # draw; master, z, live for two signs; update in place
    matmul, copy = ceilings(prepared.model.module, repeats)
    return {"track": track, "k": k, "records": len(many.release.select(0)), "parameters": many.weights.count,
            "shared": shared._asdict(), "plain": plain._asdict(), "single": single._asdict(),
            "share_of_singles": {name: getattr(shared, name) / (k * getattr(single, name)) for name in Time._fields},
            "share_of_plain": {name: getattr(shared, name) / getattr(plain, name) for name in Time._fields},
            "gflop": flop / 1e9, "gbytes": moved / 1e9, "ceiling_gflops": matmul / 1e9, "ceiling_gbytes": copy / 1e9,
            "share_of_ceiling": (flop / matmul + moved / copy) / shared.cpu}


def line(row: dict) -> str:
    """One Markdown line of a row."""
    return (f"| {row['track']} | {row['k']} | {row['records']} | {row['shared']['wall']:.2f} / "
            f"{row['shared']['cpu']:.2f} | {row['k'] * row['single']['wall']:.2f} / "
            f"{row['k'] * row['single']['cpu']:.2f} | {row['share_of_singles']['wall']:.2f} / "
            f"{row['share_of_singles']['cpu']:.2f} | {row['share_of_ceiling']:.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--k", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", default=None)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    with tempfile.TemporaryDirectory() as scratch:
        rows = [measure(track, args.k, args.repeats, Path(scratch)) for track in ("ft", "lora")]
    print("| track | K | records | K-step s (wall / CPU) | K single steps s | ratio | of ceiling |")
    print("|---|---|---|---|---|---|---|", *map(line, rows), sep="\n")
    load = os.getloadavg()[0]
    if load > args.threads + 0.5:
        print(f"others used this machine (load {load:.1f}): read the CPU seconds")
    if args.out:
        write_json(args.out, {"rows": rows, "threads": args.threads, "cores": os.cpu_count(), "repeats": args.repeats,
                              "load": load, "torch": torch.__version__, "python": platform.python_version(),
                              "processor": platform.machine()})


if __name__ == "__main__":
    main()
