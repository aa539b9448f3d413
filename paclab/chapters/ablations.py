"""Rows and settings of chapter 14: one setting of PACZero changed at a time, everything else held still.

Knows the studies, what each changes, and which published row stands for it. Reads finished cells for its tables
(`ablations_results`); draws nothing and trains nothing itself. Budgets are in nats, learning rates in units of the
method's tuned default.
"""

from typing import Any, NamedTuple

from paclab.errors import InputError
from paclab.finetune import Config
from paclab.notebook.book import Chapter, resolve
from paclab.releases import default_lr

HALVES = 128  # candidate halves of every row that does not vary them: every published ablation uses 128
BASE_MI = 0.33  # nats in all, of every MI row that does not vary them
PLATEAU = {"ft": "Appendix FT-plateau-adaptive (FT 1.3B SST-2)", "lora": "Table 2 (MI plateau, LoRA 1.3B SST-2)"}
BUDGETS = {1e-4: "MI 1e-4", 3e-4: "MI 3e-4", 5e-4: "MI 5e-4", 1e-3: "MI 1e-3", 2e-3: "MI 2e-3", 3e-3: "MI 3e-3",
           1e-2: "MI 1e-2", 3e-2: "MI 3e-2", 5e-2: "MI 5e-2", 0.07: "MI 0.07", 0.11: "MI 0.11", 0.20: "MI 0.20",
           0.33: "MI 0.33", 0.50: "MI 0.50", 0.68: "MI 0.68"}
PAPER_CLIP = {"lora": 25.0, "ft": 1000.0}
RATES = {("lora", 0.2): "LoRA, no clip, lr 2e-4", ("lora", 0.5): "LoRA, no clip, lr 5e-4",
         ("ft", 1.0): "FT, no clip, lr 1e-4"}  # published rates in units of that track's headline rate
CLIPPED_RATES = {("lora", 0.1): "LoRA, clip 25, lr 1e-4", ("lora", 0.5): "LoRA, clip 25, lr 5e-4",
                 ("lora", 1.0): "LoRA, clip 25, lr 1e-3", ("lora", 2.0): "LoRA, clip 25, lr 2e-3",
                 ("ft", 0.5): "FT, clip 1000, lr 5e-5", ("ft", 1.0): "FT, clip 1000, lr 1e-4",
                 ("ft", 5.0): "FT, clip 1000, lr 5e-4"}
MECHANISMS = {"mezo": ("raw_full", "pool mean"), "sign": ("quant_full", "sign of pool mean"),
              "raw-half": ("raw_half", "secret half's mean"),
              "quant-half": ("quant_half", "sign of secret half's mean"),
              "random-sign": ("random_sign", "coin, no data")}
SHORT = ("sign", "raw-half", "quant-half")  # mechanisms that the paper also runs for half the steps
STUDIES = {"plateau": "total budget", "mechanism": "what is released", "halves": "candidate halves M",
           "clip": "clip of a record's value", "rank": "rank of the adapters", "rate": "learning rate",
           "clipped-rate": "learning rate, at the paper's clips",
           "directions": "directions a step K", "ladder": "steps T"}
TRACKS_OF = {"clip": ("ft",), "rank": ("lora",), "ladder": ("ft",), "halves": ("ft",)}  # other studies: both
FEW = ("plateau", "directions")  # run with `few_seeds` seeds


class Variant(NamedTuple):
    """One row: what it changes, and the paper's key for it (table, row; empty: the paper has no such row)."""

    study: str
    track: str
    label: str
    setting: dict[str, Any]
    key: tuple[str, str] | None = None
    base: bool = False  # the row that the others of its study are compared with

    @property
    def name(self) -> tuple[str, str, str]:
        """The row's name in `Results.cells`."""
        return self.study, self.track, self.label


class Plan(NamedTuple):
    """What a profile runs."""

    studies: list[str]
    tracks: list[str]
    seeds: list[int]
    few: int  # seeds of the long studies
    steps: int
    pool: int
    held_out: int
    dev: int
    model: str
    budgets: list[float]
    clips: list[float]
    ranks: list[int]
    rates: list[float]
    directions: list[int]
    ladder: list[float]
    halves: list[int]

    def variants(self) -> list[Variant]:
        """Every row, in the order of the page."""
        made = []
        for study in self.studies:
            for track in self.tracks:
                if track in TRACKS_OF.get(study, self.tracks):
                    made += MAKE[study](self, track)
        return made

    def seeds_of(self, study: str) -> list[int]:
        """The seeds of a study's rows."""
        return self.seeds[: self.few] if study in FEW else self.seeds

    def runs(self) -> list[tuple[int, Variant]]:
        """(seed, row) of every row, seeds outermost: an interrupted run holds whole seeds."""
        return [(seed, v) for seed in self.seeds for v in self.variants() if seed in self.seeds_of(v.study)]


def plan_of(*, seed: int, seeds: int, few_seeds: int, **given: Any) -> Plan:
    """The plan that the chapter's parameters ask for; raises InputError for a setting that a study lacks."""
    if "plateau" not in given["studies"]:
        raise InputError("studies", "lack plateau, the one this chapter explains", "add it")
    if BASE_MI not in given["budgets"]:
        raise InputError("budgets", f"lack {BASE_MI} nats, the row that other studies vary", "add it")
    for name, middle in (("rates", 1.0), ("ladder", 1.0), ("directions", 1), ("halves", HALVES), ("ranks", 8)):
        if middle not in given[name]:
            raise InputError(name, f"lack {middle:g}, the row that the others are compared with", "add it")
    return Plan(seeds=[seed + i for i in range(seeds)], few=min(few_seeds, seeds), **given)


def desk_plan(chapter: Chapter) -> Plan:
    """The plan of the desk profile: every row."""
    _, values = resolve(chapter, {"profile": "desk"})
    return plan_of(**{name: value for name, value in values.items() if name not in ("profile", "out_dir")})


def config(plan: Plan, seed: int, variant: Variant) -> Config:
    """Settings of one run: the base of its study, and what the row changes."""
    return Config(**{"task": "sentiment", "steps": plan.steps, "pool": plan.pool, "candidates": HALVES,
                     "track": variant.track, "seed": seed, "model": plan.model, "dev": plan.dev,
                     "test": plan.held_out, "study": True} | variant.setting)


def settings(plan: Plan) -> list[Config]:
    """Settings of every training run of a plan, once each: several rows may show the same run."""
    return list(dict.fromkeys(config(plan, seed, variant) for seed, variant in plan.runs()))


# ---------------------------------------------------------------- the studies


def _spend(total: float = BASE_MI) -> dict[str, Any]:
    return {"method": "paczero-mi", "mi": total}


def _plateau(plan: Plan, track: str) -> list[Variant]:
    rows = [Variant("plateau", track, "0 nats (ZPL coin)", {"method": "paczero-zpl"}, base=True)]
    for total in plan.budgets:
        name = BUDGETS.get(total)
        rows.append(Variant("plateau", track, name or f"MI {total:g}", _spend(total), name and (PLATEAU[track], name)))
    return [*rows, Variant("plateau", track, "sign of pool mean", {"method": "sign"})]


def _mechanism(plan: Plan, track: str) -> list[Variant]:
    table = "Appendix ablation (mechanism decomposition)"
    rows = [Variant("mechanism", track, name, {"method": method},
                    (table, f"{paper}, T 2000") if track == "lora" else None, method == "sign")
            for method, (paper, name) in MECHANISMS.items()]
    rows += [Variant("mechanism", track, "PACZero-MI, 0.33 nats", _spend()),
             Variant("mechanism", track, "PACZero-ZPL, coin", {"method": "paczero-zpl"}),
             Variant("mechanism", track, "PACZero-ZPL, skip", {"method": "paczero-zpl", "on_disagreement": "skip"})]
    half = max(1, round(plan.steps / 2))
    return rows + [Variant("mechanism", track, f"{MECHANISMS[method][1]}, T = {half}",
                           {"method": method, "steps": half}, (table, f"{MECHANISMS[method][0]}, T 1000"))
                   for method in SHORT if track == "lora"]


def _halves(plan: Plan, track: str) -> list[Variant]:
    return [Variant("halves", track, f"M = {m}", {"method": "paczero-zpl", "candidates": m}, base=m == HALVES)
            for m in plan.halves]


def _clip(plan: Plan, track: str) -> list[Variant]:
    table, published = "Appendix clip-ablation-67b", (10, 25, 50)
    rows = [Variant("clip", track, "no clip", _spend(), base=True)]
    rows += [Variant("clip", track, f"clip {c:g}", _spend() | {"clip": c},
                     (table, f"clip {c:g}, MI 0.33") if c in published else None) for c in plan.clips]
    more = "clip 10, MI 0.68"
    return [*rows, Variant("clip", track, more, _spend(0.68) | {"clip": 10.0}, (table, more))]


def _rank(plan: Plan, track: str) -> list[Variant]:
    return [Variant("rank", track, f"rank {r}", _spend() | {"rank": r},
                    ("Appendix rank-ablation", f"rank {r}") if r in (4, 8, 16) else None, r == 8) for r in plan.ranks]


def _rate(plan: Plan, track: str) -> list[Variant]:
    return [_at_rate("rate", track, factor, None, RATES) for factor in plan.rates]


def _clipped_rate(plan: Plan, track: str) -> list[Variant]:
    """The paper's rates at the paper's clips, beside the tuned rate without one."""
    return [_at_rate("clipped-rate", track, 1.0, None, {})] + [
        _at_rate("clipped-rate", track, factor, PAPER_CLIP[track], CLIPPED_RATES)
        for of, factor in CLIPPED_RATES if of == track and factor in plan.rates]


def _at_rate(study: str, track: str, factor: float, clip: float | None, published: dict) -> Variant:
    setting = {"method": "paczero-zpl", "lr": None if factor == 1 else factor * default_lr("paczero-zpl", track)}
    label, row = f"rate x {factor:g}", published.get((track, factor))
    if clip:
        setting["clip"], label = clip, f"{label}, clip {clip:g}"
    return Variant(study, track, label, setting, row and ("Appendix zpl-lr-sweep", row), clip is None and factor == 1)


def _directions(plan: Plan, track: str) -> list[Variant]:
    """The same number of directions, to the nearest step: K at once, for T / K steps of K times the length."""
    rows = []
    for k in plan.directions:
        steps = max(1, round(plan.steps / k))
        lr = None if k == 1 else k * default_lr("paczero-mi", track)
        name = f"{'LoRA' if track == 'lora' else 'FT'}, K {k}"
        rows.append(Variant("directions", track, f"K = {k}, {steps} step{'s' * (steps > 1)}",
                            _spend() | {"k": k, "steps": steps, "lr": lr},
                            ("Appendix k-ablation", name) if k in (1, 4, 16) else None, k == 1))
    return rows


def _ladder(plan: Plan, track: str) -> list[Variant]:
    rows = []
    for factor in plan.ladder:
        steps = max(1, round(factor * plan.steps))
        published = ("Appendix zpl-ft-ladder", f"T {1000 * factor:g}") if factor in (1, 2, 3, 4, 5) else None
        rows.append(Variant("ladder", track, f"T = {steps}", {"method": "paczero-zpl", "steps": steps}, published,
                            factor == 1))
    return rows


MAKE = {"plateau": _plateau, "mechanism": _mechanism, "halves": _halves, "clip": _clip, "rank": _rank, "rate": _rate,
        "clipped-rate": _clipped_rate,
        "directions": _directions, "ladder": _ladder}


def left_out(plan: Plan, whole: Plan) -> str:
    """Which values, tracks and seeds of the desk plan this one lacks, one line a knob."""
    said = []
    for name in ("studies", "tracks", "budgets", "clips", "ranks", "rates", "directions", "ladder", "halves"):
        gone = [f"{x:g}" if isinstance(x, int | float) else x for x in getattr(whole, name)
                if x not in getattr(plan, name)]
        if gone:
            said.append(f"{name}: {', '.join(gone)}")
    if len(plan.seeds) < len(whole.seeds):
        said.append(f"seeds: {len(whole.seeds) - len(plan.seeds)} of {len(whole.seeds)}")
    return "Left out here, present in the desk profile:\n  " + "\n  ".join(said) if said else "Nothing left out."
