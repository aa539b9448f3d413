"""The language-model part of chapter 10: slices of a real loss, backpropagation beside two-point steps.

Knows tasks, models and the engine. Its pools are public: it shows losses of training records (study mode). Does
not know any release beyond the two non-private ones whose finished runs it is given.
"""

import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch

from paclab import finetune, tasks
from paclab.models import LanguageModel, trainable
from paclab.notebook import plots
from paclab.sources import load_splits
from paclab.zo import transcript
from paclab.zo.directions import Directions
from paclab.zo.probe import Weights, differences

BACKPROP_FORWARDS = 3  # a backward pass costs about two forward passes


# ---------------------------------------------------------------- one direction of a real loss


def slices(model: LanguageModel, records: list[dict], scales: np.ndarray, count: int, key: int) -> np.ndarray:
    """Mean loss at theta + s z for each scale s and `count` random directions: [count, scales], nats."""
    objective, weights = tasks.objective("sentiment", model, records), Weights(trainable(model.module))
    directions = Directions(key, tuple(weights.live))
    out = np.empty((count, len(scales)))
    for k in range(count):
        for i, scale in enumerate(scales):
            weights.perturb(directions, 0, k, float(scale))
            out[k, i] = objective.losses().mean()
    weights.restore()
    return out


def slice_figure(scales: np.ndarray, losses: np.ndarray, mu: float, pair: np.ndarray) -> Any:
    """Left: mean loss along random directions. Right: the two points that a step measures, and their slope.

    pair [count, 2]: mean loss at theta - mu z and theta + mu z.
    """
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9.8, 3.9))
    middle = losses[:, len(scales) // 2]
    for k, row in enumerate(losses):
        left.plot(1e3 * scales, row, **plots.line(k, 4), label=f"direction {k + 1}")
        ends = np.array([-mu, mu])
        right.plot(1e3 * ends, 1e3 * (pair[k] - middle[k]), **plots.line(k), label=f"direction {k + 1}")
    left.axvspan(-1e3 * mu, 1e3 * mu, color=plots.INK, alpha=0.35, linewidth=0)
    left.set(xlabel="s, in thousandths (dark: ±μ)", ylabel="mean loss at θ + s z, nats")
    left.legend()
    right.axhline(0, color=plots.INK, linewidth=0.8)
    right.set(xlabel="s, in thousandths", ylabel="change of the mean loss,\nthousandths of a nat")
    return figure


def restored_exactly(model: LanguageModel, records: list[dict], probes: int, key: int, mu: float = 1e-3) -> bool:
    """Whether every weight is bit-identical after `probes` two-point probes without an update."""
    weights = Weights(trainable(model.module))
    before = {name: tensor.clone() for name, tensor in weights.live.items()}
    objective = tasks.objective("sentiment", model, records)
    for t in range(probes):
        differences(objective.losses, weights, Directions(key, tuple(weights.live)), t, 0, mu)
    return all(torch.equal(before[name], tensor) for name, tensor in weights.live.items())


# ---------------------------------------------------------------- backpropagation


class Loss(NamedTuple):
    """A differentiable mean loss over records, batch by batch: the same number as the task's mean."""

    objective: tasks.Choice
    model: LanguageModel

    def backward(self) -> float:
        """Accumulate the gradient of the mean loss into the parameters; returns the loss, nats."""
        total, records = 0.0, len(self.objective.labels)
        for batch in self.objective.batches:
            loss = self.batch(batch) / records
            loss.backward()
            total += float(loss.detach())
        return total

    def batch(self, batch) -> torch.Tensor:
        """Summed loss of one micro-batch."""
        states = self.objective.scorer.decoder(input_ids=batch.ids, use_cache=False)[0]
        picked = states[torch.arange(len(batch.rows)), batch.last]
        head = self.model.module.get_output_embeddings().weight
        logits = torch.nn.functional.linear(picked, head[self.objective.columns])
        return torch.nn.functional.cross_entropy(logits, self.objective.labels[batch.rows], reduction="sum")


def differentiable(model: LanguageModel, records: list[dict]) -> Loss:
    """The sentiment loss with gradients switched on for every parameter of `model`."""
    model.module.requires_grad_(True)
    return Loss(tasks.objective("sentiment", model, records), model)


def slope_check(model: LanguageModel, records: list[dict], count: int, key: int, mu: float) -> pd.DataFrame:
    """Two-point slope of the mean loss beside the exact one, grad . z by backpropagation, for random z."""
    loss = differentiable(model, records)
    loss.backward()
    gradient = {name: tensor.grad for name, tensor in model.module.named_parameters()}
    length = math.sqrt(sum(float(g.double().square().sum()) for g in gradient.values()))
    model.module.requires_grad_(False)
    weights = Weights(trainable(model.module))
    directions = Directions(key, tuple(weights.live))
    rows = []
    for k in range(count):
        exact = sum(float((gradient[n].double() * directions.normal(0, k, n, g.shape).double()).sum())
                    for n, g in gradient.items())
        g = differences(loss.objective.losses, weights, directions, 0, k, mu)
        rows.append({"direction": k + 1, "two-point": float(g.mean()), "backpropagation": exact,
                     "one record's sd": float(g.std())})
    frame = pd.DataFrame(rows)
    model.module.zero_grad(set_to_none=True)
    return frame.assign(error=(frame["two-point"] - frame["backpropagation"]).abs() / length)


def backpropagate(model: LanguageModel, pool: list[dict], dev: list[dict], steps: int, lr: float,
                  watch: Callable | None = None) -> pd.DataFrame:
    """AdamW on the whole pool (linear decay): dev loss and accuracy against forward-pass equivalents.

    A step is counted as three forward passes over the pool: one forward, and a backward worth two. `seconds` of all
    cores are those of the steps alone, without loading and scoring.
    """
    loss = differentiable(model, pool)
    held_out = tasks.objective("sentiment", model, dev)
    optimiser = torch.optim.AdamW(model.module.parameters(), lr=lr, weight_decay=0.0)
    rows, seconds = [_scored(held_out, 0, 0.0)], 0.0
    for t in range(steps):
        start = time.process_time()
        for group in optimiser.param_groups:
            group["lr"] = lr * (1 - t / steps)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        seconds += time.process_time() - start
        rows.append(_scored(held_out, BACKPROP_FORWARDS * (t + 1), seconds))
        if watch:
            watch(t + 1)
    model.module.requires_grad_(False)
    return pd.DataFrame(rows)


def _scored(objective, forwards: int, seconds: float) -> dict:
    outcome = objective.outcome()
    return {"forwards": forwards, "seconds": seconds, "dev_loss": float(outcome.loss.mean()),
            "dev_score": float(outcome.score.mean())}


# ---------------------------------------------------------------- finished runs


def curves(cells: list) -> pd.DataFrame:
    """Dev loss and accuracy of finished two-point runs against forward passes over the pool (2 K a step)."""
    return pd.DataFrame([{"method": cell.config.method, "seed": cell.config.seed, "step": line["step"],
                          "forwards": 2 * cell.config.k * line["step"], "dev_loss": line["dev_loss"],
                          "dev_score": line["dev_score"]} for cell in cells for line in cell.metrics])


def gain_table(cells: list, zero_shot: dict[int, tasks.Outcome]) -> pd.DataFrame:
    """Held-out accuracy and loss by method, and the paired gain over the untrained model with its 95 % interval.

    zero_shot: outcome of the untrained model on each seed's held-out records, in the cells' order of records.
    """
    first = next(iter(zero_shot.values()))
    rows = [{"method": "zero-shot", "seeds": len(zero_shot), "accuracy, %": 100 * np.mean(
        [z.score.mean() for z in zero_shot.values()]), "loss, nats": np.mean(
        [z.loss.mean() for z in zero_shot.values()]), "held-out records": len(first.score)}]
    for method in dict.fromkeys(cell.config.method for cell in cells):
        own = [cell for cell in cells if cell.config.method == method]
        gains = [100 * (cell.score - zero_shot[cell.config.seed].score) for cell in own]
        half = 1.96 * math.sqrt(sum(g.var(ddof=1) / len(g) for g in gains)) / len(gains)
        rows.append({"method": method, "seeds": len(own),
                     "accuracy, %": 100 * np.mean([cell.score.mean() for cell in own]),
                     "loss, nats": np.mean([cell.loss.mean() for cell in own]),
                     "gain, points": np.mean([g.mean() for g in gains]), "gain, half width": half,
                     "held-out records": len(own[0].score)})
    return pd.DataFrame(rows)


def pool_losses(cell) -> tuple[float, float]:
    """Mean loss of a run's own (public) pool before its first step and after its last, by replaying its transcript."""
    config = cell.config
    splits = load_splits(tasks.source_task(config.task), config.source, seed=config.seed, pool=config.pool,
                         dev=config.dev, test=config.test)
    model, weights, directions = finetune.base(config, cell.run["keys"], "cpu")
    objective = tasks.objective(config.task, model, splits.pool, bos=config.bos, padding=config.padding)
    before = float(objective.losses().mean())
    transcript.replay(weights, directions, finetune.transcript_lines(cell.folder))
    return before, float(objective.losses().mean())


def training_figure(found: pd.DataFrame, backprop: pd.DataFrame) -> Any:
    """Change of dev loss and accuracy since step 0 against forward-pass equivalents: mean and range over seeds."""
    import matplotlib.pyplot as plt

    starts = found[found["step"] == 0].set_index(["method", "seed"])
    keys = list(zip(found["method"], found["seed"], strict=True))
    found = found.assign(**{c: found[c].to_numpy() - starts.loc[keys, c].to_numpy() for c in ("dev_loss", "dev_score")})
    backprop = backprop.assign(**{c: backprop[c] - backprop[c].iloc[0] for c in ("dev_loss", "dev_score")})

    figure, axes = plt.subplots(1, 2, figsize=(9.8, 4.0))
    for ax, column, factor in ((axes[0], "dev_loss", 1), (axes[1], "dev_score", 100)):
        for i, (method, part) in enumerate(found.groupby("method", sort=False)):
            by = part.groupby("forwards")[column]
            x = np.array(sorted(by.groups))
            plots.band(ax, x, factor * by.min(), factor * by.mean(), factor * by.max(), index=i,
                       label=f"{method}, two-point")
        ax.plot(backprop["forwards"], factor * backprop[column], label="AdamW, backpropagation", **plots.line(5))
        ax.axhline(0, color=plots.INK, linewidth=0.8)
        ax.set(xlabel="forward passes over the pool (backward = 2)")
    axes[0].set(ylabel="change of the dev loss, nats")
    axes[1].set(ylabel="change of the dev accuracy, points")
    axes[0].legend(loc="upper right", bbox_to_anchor=(1.0, 0.95))
    return figure


def paper_rows(table: pd.DataFrame, model: str) -> pd.DataFrame:
    """Our MeZO and zero-shot accuracies keyed as the paper's rows; another model on other text, and so labelled."""
    keys = {"mezo": ("Table 1", "FT / non-private / MeZO"), "zero-shot": ("Controls", "zero-shot")}
    kept = table[table["method"].isin(keys)]
    reason = f"{model} model, 0.9 M parameters, movie sentences" if model == "embedded" else "other model and text"
    return pd.DataFrame([{"table": keys[row["method"]][0], "row": keys[row["method"]][1], "column": "SST-2 1.3B",
                          "value": row["accuracy, %"], "seeds": row["seeds"], "reason": reason}
                         for row in kept.to_dict("records")])
