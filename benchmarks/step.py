"""How close is one zeroth-order step to the machine's matrix-multiply rate?

    python benchmarks/step.py [--threads 2] [--out benchmarks/results/step.json]

Work is counted, not assumed: one multiply-add per weight of every linear map and real token, and the products inside
causal attention, twice a step (plus and minus). "Plain" work is what a forward pass of all positions needs; "needed"
work leaves out the last block's parts at positions that nobody reads, which the scorer skips. The ceiling is measured
in the same process: float32 products of the model's own shapes (weighted by their work) and of 2048 x 2048 squares.
The plain loop is what one would write first: tokenise once, batches of 32 in file order, padded left, all positions'
logits.
"""

import argparse
import json
import platform
import statistics
import time

import numpy as np
import torch

from paclab import models, prompts, tasks
from paclab.files import write_json
from paclab.sources import load_splits
from paclab.zo.directions import Directions
from paclab.zo.probe import Weights, differences


def seconds(work, repeats: int = 5) -> float:
    """Median wall time of `work()` after one warm-up."""
    work()
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def linear_shapes(module) -> list[tuple[int, int]]:
    """Shapes of the linear maps inside the decoder's blocks."""
    return [tuple(m.weight.shape) for name, m in module.named_modules()
            if getattr(m, "weight", None) is not None and m.weight.dim() == 2
            and not isinstance(m, torch.nn.Embedding) and "head" not in name]


def matmul_rate(shapes, tokens: int = 4096) -> float:
    """FLOP/s of float32 products [tokens, a] @ [a, b], weighted by work."""
    total = sum(2 * tokens * a * b for a, b in shapes)
    pairs = [(torch.randn(tokens, a), torch.randn(a, b)) for a, b in shapes]
    return total / seconds(lambda: [x @ w for x, w in pairs], 15)


def forward_work(model, scorer, batches) -> tuple[float, float]:
    """FLOP of one forward pass over these batches: of all positions, and without those that nobody reads."""
    shapes = linear_shapes(model.module)
    tokens, rows = sum(int(b.lengths.sum()) for b in batches), sum(len(b.lengths) for b in batches)
    narrowed = sum(p.numel() for part in scorer.narrow.block.children() if part._forward_pre_hooks
                   for p in part.parameters() if p.dim() == 2)
    lengths = torch.cat([b.lengths for b in batches]).double()
    attention = 2 * len(scorer.narrow.stack) * model.module.config.hidden_size * float(
        (lengths * (lengths + 1) / 2).sum())
    plain = 2 * (tokens * sum(a * b for a, b in shapes) + attention)
    return plain, plain - 2 * narrowed * (tokens - rows)


def plain_loop(model, records):
    """A first version of the losses: everything a library gives by default."""
    texts = [prompts.sentiment(r["sentence"]) for r in records]
    columns = [tasks.encode(model, word)[-1] for word in prompts.SENTIMENT_WORDS]
    labels = torch.tensor([r["label"] for r in records])
    model.tokenizer.padding_side = "left"
    batches = [model.tokenizer(texts[i:i + 32], return_tensors="pt", padding=True) for i in range(0, len(texts), 32)]

    @torch.no_grad()
    def losses() -> np.ndarray:
        logits = torch.cat([model.module(**b).logits[:, -1, columns] for b in batches])
        return torch.nn.functional.cross_entropy(logits.double(), labels, reduction="none").numpy()

    return losses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--pool", type=int, default=1000)
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--out", default=None)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    model = models.load(args.model, "cpu")
    records = load_splits("sentiment", pool=args.pool, dev=0, test=0).pool
    objective = tasks.objective("sentiment", model, records)
    tokens = sum(int(b.lengths.sum()) for b in objective.batches)
    padded = sum(b.ids.numel() for b in objective.batches)
    shapes = linear_shapes(model.module)
    objective.losses()  # proves what may be skipped
    plain_work, work = (2 * flop for flop in forward_work(model, objective.scorer, objective.batches))
    weights, directions = Weights(models.trainable(model.module)), Directions(1)
    plain = plain_loop(model, records)
    step_at = iter(range(10**6))

    def step(losses):
        return lambda: differences(losses, weights, directions, next(step_at), 0, 1e-3)

    ours, theirs = seconds(step(objective.losses)), seconds(step(plain), 3)
    draw = seconds(lambda: [directions.normal(next(step_at), 0, n, t.shape) for n, t in weights.live.items()])
    big = torch.randn(2048, 2048)
    own, square = matmul_rate(shapes), 2 * 2048**3 / seconds(lambda: big @ big, 9)
    row = {
        "seconds_per_step": ours, "seconds_per_step_plain_loop": theirs, "speedup": theirs / ours,
        "seconds_for_directions": draw, "tokens": tokens, "padding_share": 1 - tokens / padded,
        "gflop_plain": plain_work / 1e9, "gflop_needed": work / 1e9, "gflops_needed": work / ours / 1e9,
        "matmul_gflops_own_shapes": own / 1e9,
        "matmul_gflops_square": square / 1e9, "share_of_own_shapes": work / ours / own,
        "share_of_square": work / ours / square, "plain_work_share_of_own_shapes": plain_work / ours / own,
        "plain_loop_share_of_own_shapes": plain_work / theirs / own,
        "threads": args.threads, "pool": args.pool, "parameters": weights.count, "torch": torch.__version__,
        "python": platform.python_version(), "processor": platform.machine()}
    print(json.dumps(row, indent=1))
    if args.out:
        write_json(args.out, row)


if __name__ == "__main__":
    main()
