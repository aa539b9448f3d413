"""Commands about the price of privacy in language learning (paper 4): lower, exact, upper."""

import json
from typing import Annotated, Any

import typer

from paclab.errors import InputError

N = Annotated[float, typer.Option(help="sample size, a whole number of strings up to 1e6")]
EPS = Annotated[float, typer.Option(help="privacy loss eps > 0")]
DELTA = Annotated[float | None, typer.Option(help="0 < delta < 1: adds the Gaussian mechanism")]
JSON = Annotated[bool, typer.Option("--json", help="print JSON (log10 of every number) instead of a table")]
SAMPLES = Annotated[int, typer.Option(help="draws of the Rao-Blackwell estimate where enumeration ends")]
SEED = Annotated[int, typer.Option(help="seed of these draws")]


def register(app: typer.Typer) -> None:
    """Add the commands to the tree."""
    group = typer.Typer(no_args_is_help=True, help="Price of privacy: lower bound, exact error, upper bound.")
    group.command("identify")(identify)
    group.command("generate")(generate)
    app.add_typer(group, name="rates")


def identify(
    n: N = 800,
    eps: EPS = 1.0,
    f: Annotated[float, typer.Option(help="horizon value f(n) >= 2: threshold 2/f, weight f^2")] = 6.0,
    alpha: Annotated[float, typer.Option(help="mass of a, in L_1 only")] = 0.1,
    beta: Annotated[float, typer.Option(help="mass of b, in L_2 only")] = 0.6,
    delta: DELTA = None,
    adjacency: Annotated[str, typer.Option(help="replace or add_remove")] = "replace",
    family: Annotated[str, typer.Option(help="two-atoms (alpha, beta) or another family")] = "two-atoms",
    samples: SAMPLES = 20_000,
    seed: SEED = 0,
    as_json: JSON = False,
) -> None:
    """Excess risk of identifying a language: which of L_1, L_2, ... fits the law best?"""
    from paclab.rates.report import identification_report

    rows = identification_report(n, eps, f, alpha, beta, delta, adjacency, family, samples, seed)
    _print(rows, as_json)


def generate(
    n: N = 400,
    eps: EPS = 1.0,
    masses: Annotated[str, typer.Option(help="the good language's window masses")] = "0.25,0.125,0.0625",
    bad: Annotated[int, typer.Option(help="number of bad languages")] = 9,
    g: Annotated[float | None, typer.Option(help="threshold; default floor(n p/2), p the least mass")] = None,
    delta: DELTA = None,
    family: Annotated[str, typer.Option(help="a family instead of masses, e.g. generation-example")] = "",
    window: Annotated[int | None, typer.Option(help="window W (h with --pairs) for --family, up to 100")] = None,
    pairs: Annotated[bool, typer.Option(help="search the window too, for --family")] = False,
    samples: SAMPLES = 20_000,
    seed: SEED = 0,
    as_json: JSON = False,
) -> None:
    """Failure probability of generating a valid new string."""
    from paclab.rates.report import family_generation_report, generation_report

    for name, given in (("window", window is not None), ("pairs", pairs)):
        if given and not family:
            raise InputError(name, "is for a family, and none is named", f"give `family`, or leave `{name}` out")
    if family:
        rows = family_generation_report(n, eps, family, window, g, pairs, delta, samples, seed)
    else:
        rows = generation_report(n, eps, _masses(masses), bad, g, delta)
    _print(rows, as_json)


def _masses(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise InputError("masses", f"cannot read {text!r}", "write numbers with commas: 0.25,0.125") from None


def _print(report: dict[str, Any], as_json: bool) -> None:
    from paclab.rates.logs import show

    if as_json:
        print(json.dumps(report, indent=1, default=str))
        return
    print(report["setting"])
    width = max(len(row["what"]) for row in report["rows"])
    for row in report["rows"]:
        value = "-" if row["log10"] is None else show(row["log10"])
        print(f"  {row['what']:<{width}}  {value:>11}  {row['note']}".rstrip())
    for note in report["notes"]:
        print(note)
