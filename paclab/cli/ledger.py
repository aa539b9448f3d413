"""`paclab ledger`: how often each universe of records was queried, and what that adds up to."""

import json
from pathlib import Path
from typing import Annotated

import typer

from paclab.errors import InputError


def ledger_command(
    pool: Annotated[Path | None, typer.Option(help="folder of a run: only the universe it used")] = None,
    file: Annotated[Path | None, typer.Option(help="ledger file; default: PACLAB_LEDGER, else the user's")] = None,
    json_output: Annotated[bool, typer.Option("--json", help="print totals and queries as JSON")] = False,
) -> None:
    """Show how often each universe was queried, by what, and the composed totals."""
    from paclab import ledger

    path = file or ledger.place()
    if path is None:
        raise InputError("file", f"the ledger is switched off by {ledger.VARIABLE}", "name a ledger file")
    key, queries = ledger.read(path)
    wanted = {q["universe"] for q in queries} if pool is None else {_universe_of(pool, key)}
    groups = {name: [q for q in queries if q["universe"] == name] for name in sorted(wanted)}
    if json_output:
        typer.echo(json.dumps({name: {"total": ledger.total(group)._asdict(), "queries": group}
                               for name, group in groups.items()}, indent=1))
        return
    if not groups:
        typer.echo(f"no universe was queried yet ({path})")
    for name, group in groups.items():
        _show(name, group, ledger.total(group))


def _universe_of(folder: Path, key: str) -> str:
    from paclab import finetune, ledger, tasks
    from paclab.sources import load_splits

    _, _, config = finetune.read_run(folder)
    splits = load_splits(tasks.source_task(config.task), config.source, seed=config.seed, pool=config.pool,
                         dev=config.dev, test=config.test)
    return ledger.universe(splits.pool, key or "00")


def _show(name: str, queries: list[dict], total) -> None:
    times = f"{total.queries} time{'s' if total.queries != 1 else ''}"
    typer.echo(f"universe {name[:12]} ({queries[0]['records'] if queries else 0} records) was queried {times}")
    for q in queries:
        cost = (f"epsilon {q['epsilon']:g} at delta {q['delta']:g}, {q['adjacency']}" if "epsilon" in q else
                f"{q['nats']:g} nats{' (nominal)' if q['nominal'] else ''}" if "nats" in q else "no promise")
        typer.echo(f"  {q['time']}  {q['method']:<12} {cost:<44} {q['steps']} steps  {q['run']}")
    if any("nats" in q for q in queries):
        typer.echo(f"  nats: at most {total.largest_nats:g} about any one secret half (each run draws its own), "
                   f"{total.sum_nats:g} about all of them together")
        for line in _beside_nats(total):
            typer.echo(f"  nats: {line}")
    for adjacency, sums in total.epsilons.items():
        typer.echo(f"  epsilon ({adjacency}): {sums['basic']:.4g} by adding up, {sums['composed']:.4g} composed, at "
                   f"delta {sums['delta']:.3g} (composed: if no run's settings depended on an earlier result)")
    if total.outside_epsilon and any("epsilon" in q for q in queries):
        typer.echo("  epsilon: none holds for a record of this pool, since no finite epsilon bounds what was released "
                   f"by {_counted(total.outside_epsilon)}")
    if total.without_promise:
        typer.echo(f"  {total.without_promise} of them without a promise: the totals do not bound what is known")


def _beside_nats(total) -> list[str]:
    """What the nats leave out, each in one line."""
    from paclab.releases import METHODS

    halves = {name: n for name, n in total.outside_nats.items() if name in METHODS and METHODS[name].candidates}
    pools = {name: n for name, n in total.outside_nats.items() if name not in halves}
    lines = [f"{total.nominal} of these budgets nominal: the published noise calibration can spend several times its "
             "target"] if total.nominal else []
    if halves:
        lines.append(f"each of {_counted(halves)} tells its own half without a bound, in no total here")
    if pools:
        lines.append(f"{_counted(pools)} looked at the whole pool, at no half: nothing about a half is added, and what "
                     "is told of its records is not counted here")
    return lines


def _counted(runs: dict[str, int]) -> str:
    return ", ".join(f"{method} ({n} run{'s' if n != 1 else ''})" for method, n in runs.items())


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("ledger")(ledger_command)
