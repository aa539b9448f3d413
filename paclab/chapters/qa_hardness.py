"""How hard a task is for candidate halves, measured at the untrained model: signal per record, ties, free steps.

Knows recorded differences [T, N] of public pools. Trains nothing: the runs recorded here have a learning rate so small
that no weight moves. Differences of the F1 objective are in units of F1 over 2 mu, of the others in nats over 2 mu.

A pool of N records has t = mean sqrt(N) / sd. If a step's true mean is a normal number of snr times the records' sd,
E t^2 = 1 + N snr^2: the 1 is sampling noise and there at any signal. So snr^2 = (tau^2 - 1) / N does not depend on N
and measures a task's hardness for every pool at once. [our reading]
"""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from paclab.chapters import rows
from paclab.chapters.consensus_views import halves
from paclab.errors import InputError
from paclab.finetune import Config
from paclab.privacy import consensus

STILL = 1e-12  # a learning rate that moves no float32 weight of ordinary size
ANSWER_TOKENS = 10  # the longest answer of the embedded family has 7 tokens, and a line end
HALVES = 126


class Signal(NamedTuple):
    """One objective whose differences are recorded: task, track and the size of the nudge."""

    key: str
    name: str
    task: str
    mu: float = 1e-3


SIGNALS = {s.key: s for s in [
    Signal("sentiment", "sentiment", "sentiment"),
    Signal("lm", "free text", "lm"),
    Signal("qa-ce", "answers, cross-entropy", "qa-ce"),
    Signal("qa-f1", "answers, F1 (µ as published)", "qa"),
    Signal("qa-f1-wide", "answers, F1 (ten times µ)", "qa", 1e-2),
]}


def settings(*, signals: list[str], tracks: list[str], directions: int, pool: int, seed: int, seeds: int, model: str,
             **_: Any) -> dict[tuple[str, str], list[Config]]:
    """Settings of the recordings, by (signal, track): fresh directions at an untrained model; qa-f1 must be there."""
    if "qa-f1" not in signals:
        raise InputError("signals", "lack qa-f1, the objective that this chapter is about", "add it")

    def one(signal: Signal, track: str, i: int) -> Config:
        return Config(task=signal.task, method="sign", track=track, lr=STILL, steps=directions, pool=pool, mu=signal.mu,
                      model=model, seed=seed + i, dev=2, test=2, study=True,
                      max_new_tokens=ANSWER_TOKENS if signal.task == "qa" else None)

    return {(key, track): [one(SIGNALS[key], track, i) for i in range(seeds)] for track in tracks for key in signals}


# ---------------------------------------------------------------- hardness


def tau_squared(differences: np.ndarray) -> float:
    """Mean of t^2 over directions with any difference at all; 0 when every direction is all zero."""
    moved = differences[np.ptp(differences, axis=1) > 0]
    return float(np.mean(consensus.pool_t_statistic(moved) ** 2)) if len(moved) else 0.0


def snr(differences: np.ndarray) -> float:
    """Signal of one record in units of its noise: sqrt((tau^2 - 1) / N); 0 when tau is at most 1."""
    return float(np.sqrt(max(tau_squared(differences) - 1, 0.0) / differences.shape[1]))


def tau_at(signal: float, records: float) -> float:
    """tau of a pool of so many records: sqrt(1 + N snr^2)."""
    return float(np.sqrt(1 + records * signal**2))


def records_for(signal: float, tau: float) -> float:
    """Records that a pool needs to reach tau (> 1) at this signal per record; infinite without a signal."""
    return (tau**2 - 1) / signal**2 if signal > 0 else float("inf")


class Kinds(NamedTuple):
    """What the halves' votes of each direction are worth: shares of the directions; they sum to 1."""

    agreed: float  # all halves have a mean of the same sign, none is tied
    tied: float  # every half is tied: nothing is released
    by_coin: float  # all agree only because tied halves vote by a public coin
    split: float


def kinds(differences: np.ndarray, candidates: int = HALVES, seed: int = 0, tie: str = "coin") -> Kinds:
    """Classify directions by their votes; tie: coin (one public coin for all tied halves) or plus (the papers' +1)."""
    means = consensus.candidate_means(np.asarray(differences, dtype=np.float64),
                                      halves(differences.shape[1], candidates, seed=seed))
    votes = consensus.sign_votes(means)
    some = votes != 0
    coin = np.ones(len(votes), dtype=np.int8)
    if tie == "coin":
        coin = np.random.Generator(np.random.Philox(key=[seed, 15])).choice([-1, 1], size=len(votes)).astype(np.int8)
    filled = consensus.break_ties(votes, coin)
    agree = consensus.unanimity(filled) != 0
    none, all_ = ~some.any(axis=1), some.all(axis=1)
    if tie == "plus":
        none = np.zeros(len(votes), dtype=bool)  # an all-tied step is released as +1
    parts = agree & all_, none, agree & ~all_ & ~none, ~agree & ~none
    return Kinds(*(float(part.mean()) for part in parts))


def moved_share(differences: np.ndarray) -> float:
    """Share of records whose value a nudge moves at all."""
    return float(np.mean(differences != 0))


def hardness(recorded: dict[tuple[str, str], list[np.ndarray]], candidates: int) -> pd.DataFrame:
    """One line per signal and track: what moves, tau, signal per record, f counted and by the law."""
    lines = []
    for (key, track), arrays in recorded.items():
        parts = [kinds(a, candidates, seed) for seed, a in enumerate(arrays)]
        tau2, per_record = np.mean([tau_squared(a) for a in arrays]), np.mean([snr(a) for a in arrays])
        law = consensus.expected_free_fraction(max(np.sqrt(tau2), 1e-3), candidates, "complementary")
        lines.append({
            "objective": SIGNALS[key].name, "track": track, "µ": SIGNALS[key].mu,
            "directions": sum(len(a) for a in arrays), "N": arrays[0].shape[1],
            "records moved, %": 100 * np.mean([moved_share(a) for a in arrays]), "tau": np.sqrt(tau2),
            "tau ± seeds": rows.half_width(np.sqrt(tau_squared(a)) for a in arrays),
            "signal per record": per_record, "tau at N = 1000": tau_at(per_record, 1000),
            "records for tau = 2.9": records_for(per_record, 2.9), "f, untied": np.mean([p.agreed for p in parts]),
            "f ± seeds": rows.half_width(p.agreed for p in parts),
            "f by the law": law, "agreed by a tie's coin": np.mean([p.by_coin for p in parts]),
            "all tied": np.mean([p.tied for p in parts])})
    return pd.DataFrame(lines)


def by_size(arrays: list[np.ndarray], sizes: list[int], repeats: int, seed: int) -> np.ndarray:
    """Mean t^2 of random sub-pools of each size, over directions that move a record of them: float64 [sizes]."""
    out = []
    for size in sizes:
        found = []
        for i, array in enumerate(arrays):
            for k in range(repeats):
                rng = np.random.Generator(np.random.Philox(key=[seed + i, 1000 * size + k]))
                found.append(tau_squared(array[:, rng.permutation(array.shape[1])[:size]]))
        kept = [x for x in found if x > 0]
        out.append(np.mean(kept) if kept else np.nan)
    return np.array(out)


# ---------------------------------------------------------------- ties and the clip


def ties(recorded: dict[tuple[str, str], list[np.ndarray]], candidates: int) -> pd.DataFrame:
    """Directions by kind under both tie rules: the papers' sign(0) = +1 against one public coin for all tied halves."""
    lines = []
    for (key, track), arrays in recorded.items():
        for rule, name in (("coin", "public coin, all tied: no update"), ("plus", "sign(0) = +1, as published")):
            parts = np.mean([kinds(a, candidates, s, rule) for s, a in enumerate(arrays)], axis=0)
            lines.append({"objective": SIGNALS[key].name, "track": track, "tie rule": name,
                          "agreed, none tied": parts[0], "agreed with ties": parts[2], "all tied, no update": parts[1],
                          "split": parts[3], "f that would be reported": parts[0] + parts[1] + parts[2]})
    return pd.DataFrame(lines)


def clipped(arrays: list[np.ndarray], clips: list[float], candidates: int) -> pd.DataFrame:
    """The same directions at several clips; the clip `signs` keeps nothing but each record's sign."""
    lines = []
    for clip in [np.inf, *clips, 0.0]:
        cut = [np.sign(a) if clip == 0 else np.clip(a, -clip, clip) for a in map(np.float64, arrays)]
        moved = np.concatenate([np.abs(a[a != 0]) for a in arrays])
        same = [consensus.sign_votes(consensus.candidate_means(a, halves(a.shape[1], candidates)))
                == consensus.sign_votes(consensus.candidate_means(np.sign(b), halves(b.shape[1], candidates)))
                for a, b in zip(cut, arrays, strict=True)]
        lines.append({"clip": "none" if np.isinf(clip) else "signs only" if clip == 0 else f"{clip:g}",
                      "of the moved records, cut %": 100 * np.mean(moved > clip) if moved.size and clip else 100.0,
                      "tau": np.sqrt(np.mean([tau_squared(a) for a in cut])),
                      "halves that vote as the majority of signs, %": 100 * np.mean([s.mean() for s in same])})
    return pd.DataFrame(lines)
