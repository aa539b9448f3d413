"""`paclab train`, `resume`, `verify`, `export`: one run, headless, with progress and time left."""

import dataclasses
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from paclab.errors import InputError
from paclab.finetune import Config
from paclab.releases import METHODS
from paclab.releases.recipes import recipe_of


class Meter:
    """A line of progress at most every few seconds: step, time left, and in study mode what the step cost."""

    def __init__(self, steps: int, study: bool, every: float = 5.0):
        self.steps, self.study, self.every = steps, study, every
        self.began = self.shown = time.monotonic()
        self.first: int | None = None

    def __call__(self, progress) -> None:
        now = time.monotonic()
        self.first = progress.t - 1 if self.first is None else self.first
        if now - self.shown < self.every and progress.t < self.steps:
            return
        self.shown = now
        rate = (now - self.began) / max(1, progress.t - self.first)
        text = f"step {progress.t}/{self.steps}  {rate:.2f} s/step  {rate * (self.steps - progress.t):.0f} s left"
        if self.study and "charged" in progress.info:
            free = sum(bit["free"] for bit in progress.info["bits"])
            text += f"  charged {progress.info['charged']:.3g} nats  free {free}/{len(progress.info['bits'])}"
        typer.echo(text)


def _report(run: dict, out: Path) -> None:
    if run["status"] != "complete":
        typer.echo(f"stopped after some steps; go on with: paclab resume {out}")
        return
    result, scored = run["result"], SCORES.get(run["config"]["task"], "score")
    kind = "private" if run["private"] else "NOT PRIVATE"
    kind = run["mode"] if run["config"]["study"] else f"{kind}, secrets from the operating system"
    typer.echo(f"{run['config']['method']} ({kind}), {run['steps_done']} steps, {result['test_records']} "
               "held-out records: "
               + (f"loss {result['test_loss']:.4f}" if "test_loss" in result else "diverged, the loss is no number")
               + (f", {scored} {result['test_score']:.4f}" if "test_score" in result else ""))
    typer.echo(_learnt(out / "metrics.jsonl", scored))
    typer.echo(f"guarantee: {run['guarantee']}")
    typer.echo(f"run folder: {out}")


def _learnt(metrics: Path, scored: str) -> str:
    """The public dev records before the first step and after the last."""
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    shown = [f"{word} {lines[0][key]:.4f} -> {lines[-1][key]:.4f}" for key, word in (
        ("dev_loss", "loss"), ("dev_score", scored)) if key in lines[0] and key in lines[-1]]
    return f"public dev records, untrained -> trained: {', '.join(shown) or 'no number'}"


def _carried_on(out: Path, work: Callable[[], dict]) -> dict:
    """The finished run; a keyboard interrupt says in one line how to go on."""
    try:
        return work()
    except KeyboardInterrupt:
        begun = (out / "run.json").exists()
        typer.echo("paclab: interrupted" + (f"; go on with: paclab resume {out}" if begun else ""), err=True)
        raise SystemExit(130) from None


SCORES = {"sentiment": "accuracy", "qa": "F1"}
RUN_FILES = {"run.json", "transcript.txt", "metrics.jsonl", "test.npy", "private", "secret"}
METHODS_HELP = "; ".join((
    "nats about the half: " + ", ".join(n for n in METHODS if n.startswith("paczero")),
    "epsilon for a record: " + ", ".join(n for n, m in METHODS.items() if m.differential),
    "NOT PRIVATE, for comparison: " + ", ".join(
        n for n, m in METHODS.items() if not (n.startswith("paczero") or m.differential))))
_DEFAULTS = {field.name: field.default for field in dataclasses.fields(Config)}


def with_clip(given: dict) -> Config:
    """Settings of a run; a method that promises epsilon gets the clip that was tuned with its learning rate."""
    method = METHODS.get(given["method"])
    if given["clip"] is None and method and method.differential:
        unclipped = Config(**{**given, "clip": 1.0})  # refuses what no clip can mend
        return dataclasses.replace(unclipped, clip=recipe_of(unclipped).clip)
    return Config(**given)


def train_command(
    out: Annotated[Path, typer.Option(help="folder of the new run")],
    task: Annotated[str, typer.Option(help="sentiment, qa (F1), qa-ce (answer cross-entropy), lm")] = "sentiment",
    method: Annotated[str, typer.Option(help=METHODS_HELP)] = "paczero-zpl",
    steps: Annotated[int, typer.Option(help="zeroth-order steps")] = _DEFAULTS["steps"],
    pool: Annotated[int, typer.Option(help="records N in the pool")] = _DEFAULTS["pool"],
    candidates: Annotated[int, typer.Option(help="candidate halves M, even")] = _DEFAULTS["candidates"],
    lr: Annotated[float | None, typer.Option(help="learning rate; default: tuned on the shipped models for method, "
                                                  "track and, with an epsilon, --k and --clip")] = None,
    clip: Annotated[float | None, typer.Option(help="bound on a record's projected gradient (dp-aggzo, geodpzo: "
                                                    "on its mean vector; dp-zo: on its loss difference); default: "
                                                    "none, with an epsilon the one tuned with --lr")] = None,
    mi: Annotated[float | None, typer.Option(help="total budget in nats (paczero-mi, paczero-rr)")] = None,
    epsilon: Annotated[float | None, typer.Option(help="promise of the whole run (DP methods)")] = None,
    delta: Annotated[float, typer.Option(help="delta of that promise")] = _DEFAULTS["delta"],
    sampling: Annotated[float | None, typer.Option(help="Poisson rate of a record; default: 64 / pool")] = None,
    accountant: Annotated[str, typer.Option(help="pld, rdp or rdp-published")] = "pld",
    adjacency: Annotated[str, typer.Option(help="add-remove or replace-one")] = "add-remove",
    noise: Annotated[str, typer.Option(help="gaussian, or laplace for pure epsilon (dp-zo)")] = "gaussian",
    normaliser: Annotated[str, typer.Option(help="expected batch, or private (noisy count)")] = "expected",
    rule: Annotated[str, typer.Option(help="plain, fixed (--factor), sage (our reading of the abstract), sage-oracle "
                                                    "(its twin that sees the signal: not private)")] = "plain",
    gain: Annotated[str, typer.Option(help="wiener, linear or sqrt (sage, our reading)")] = "wiener",
    tracking: Annotated[float | None, typer.Option(help="decay of the tracked energy (sage, our reading)")] = None,
    warmup: Annotated[int | None, typer.Option(help="steps before the reference is frozen (sage, our reading)")] = None,
    reference: Annotated[str, typer.Option(help="what rho is compared with: that at the `end` of the warm-up, or its "
                                                "`mean` over the last half (sage, our reading)")] = "end",
    alpha_min: Annotated[float, typer.Option(help="smallest factor (sage, our reading)")] = _DEFAULTS["alpha_min"],
    factor: Annotated[float | None, typer.Option(help="the constant factor of --rule fixed")] = None,
    k: Annotated[int, typer.Option(help="directions, and released values, a step")] = 1,
    track: Annotated[str, typer.Option(help="ft (all weights) or lora (q and v)")] = "ft",
    model: Annotated[str, typer.Option(help="embedded, masked, a folder, or hub:NAME")] = "embedded",
    source: Annotated[str, typer.Option(help="embedded, a file (see above), files:DIR, or hub:NAME")] = "embedded",
    seed: Annotated[int, typer.Option(help="public seed of the split; with --study, of everything")] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda")] = "auto",
    mu: Annotated[float, typer.Option(help="probe radius")] = _DEFAULTS["mu"],
    schedule: Annotated[str, typer.Option(help="linear or constant learning rate")] = "linear",
    budget: Annotated[str, typer.Option(help="adaptive or uniform split of --mi over steps")] = "adaptive",
    on_disagreement: Annotated[str, typer.Option(help="coin, skip or majority (paczero-zpl)")] = "coin",
    compat: Annotated[str | None, typer.Option(help="paczero: the published rules where they differ")] = None,
    dev: Annotated[int, typer.Option(help="public held-out records for the curve")] = _DEFAULTS["dev"],
    test: Annotated[int | None, typer.Option(help="held-out test records; default: all there are")] = None,
    eval_every: Annotated[int, typer.Option(help="steps between scores on the dev records; 0: ends only")] = 0,
    max_new_tokens: Annotated[int | None, typer.Option(help="longest generated answer (qa)")] = None,
    study: Annotated[bool, typer.Option(help="reproducible, not private: secrets derive from --seed")] = False,
) -> None:
    """Fine-tune a language model; a private method lets only signs, or clipped and noised numbers, out.

    A file for --source holds a record a row: .csv, .jsonl, .json (a list of objects), .parquet or, for lm, .txt
    (a paragraph a line); all but Parquet also with .gz. Columns of the tasks:

    sentiment: sentence, label (0 or 1)

    qa and qa-ce: context, question, answers (one text, or a JSON list of texts)

    lm: text

    Records are shuffled by --seed: first come --pool, then --dev, then --test of them.
    """
    from paclab import finetune, models

    if out.is_dir() and {path.name for path in out.iterdir()} - RUN_FILES:
        raise InputError("out", f"{out} is not empty", "name a new folder")
    given = {name: value for name, value in locals().items() if name in _DEFAULTS}
    config = with_clip(given)
    chosen = models.choose_device(device)
    typer.echo(f"device: {chosen.device} ({chosen.reason})")
    if study:
        typer.echo("study mode: reproducible, not private")
    if rule.startswith("sage"):
        typer.echo(f"rule: {rule}, our reading of the abstract of arXiv 2608.03277; its text was not available")
    if mi is not None and mi > math.log(candidates):
        typer.echo(f"paclab: note: --mi {mi:g} is more than the secret index holds, log {candidates} = "
                   f"{math.log(candidates):.3f} nats: the rest of it protects nothing and buys nothing", err=True)
    _report(_carried_on(out, lambda: finetune.start(config, out, device=device, watch=Meter(steps, study))), out)


def resume_command(folder: Annotated[Path, typer.Argument(help="folder of a run that was stopped")]) -> None:
    """Go on with a run after a kill at any point, to the identical result."""
    from paclab import finetune

    finetune.refuse_unbegun(folder)
    _, run, config = finetune.read_run(folder)
    if run["status"] == "complete":
        typer.echo(f"{folder} is finished already ({run['steps_done']} steps): nothing to do")
        return
    _report(_carried_on(folder, lambda: finetune.resume(folder, watch=Meter(config.steps, config.study))), folder)


def export_command(
    folder: Annotated[Path, typer.Argument(help="folder of a finished run")],
    to: Annotated[Path, typer.Option(help="new folder for the model, or for the peft adapter of a lora run")],
) -> None:
    """Write the trained model from the run's public files: a model folder, or a peft adapter."""
    from paclab import finetune

    typer.echo(f"written: {finetune.export(folder, to)}")


def verify_command(
    folder: Annotated[Path, typer.Argument(help="folder of a run")],
    pool: Annotated[bool, typer.Option(help="also recompute votes, values and charges from the pool")] = False,
    json_output: Annotated[bool, typer.Option("--json", help="print the findings as JSON")] = False,
) -> None:
    """Rebuild the weights from the public transcript, compare hashes, and check the public arithmetic."""
    from paclab.verify import verify

    findings = verify(folder, pool=pool)
    for finding in findings:
        if not json_output:
            typer.echo(f"{'OK  ' if finding.ok else 'FAIL'} {finding.text}")
    if json_output:
        typer.echo(json.dumps([finding._asdict() for finding in findings], indent=1))
    if not all(finding.ok for finding in findings):
        raise typer.Exit(1)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("train")(train_command)
    app.command("resume")(resume_command)
    app.command("export")(export_command)
    app.command("verify")(verify_command)
