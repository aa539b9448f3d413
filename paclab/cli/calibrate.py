"""`paclab calibrate`: the noise that a promise takes, by accountant, and what the published noise really costs."""

from typing import Annotated

import typer

from paclab.privacy import dp
from paclab.privacy.budget import stated


def register(app: typer.Typer) -> None:
    """Add the command `calibrate`."""
    app.command("calibrate")(calibrate)


def calibrate(
    epsilon: Annotated[float, typer.Option(help="promise of the whole run")],
    steps: Annotated[int, typer.Option(help="steps T, one Gaussian release of bounded norm each")],
    sampling: Annotated[float, typer.Option(help="Poisson rate of a record in a step")] = 0.064,
    delta: Annotated[float, typer.Option(help="delta of the promise")] = 1e-5,
    adjacency: Annotated[str, typer.Option(help="add-remove or replace-one")] = "add-remove",
) -> None:
    """Turn a target epsilon into a noise multiplier (noise over clip), certified by each accountant."""
    dp.check(epsilon, delta, sampling, steps, adjacency=adjacency)
    known = dp.ACCOUNTANTS if adjacency == "add-remove" else ("pld",)  # the Renyi rules know add-remove only
    found = {name: dp.noise_multiplier(epsilon, sampling, steps, delta, name, adjacency) for name in known}
    typer.echo(f"noise over clip for ({epsilon:g}, {delta:g})-DP: {steps} steps, sampling {sampling:g}, {adjacency}")
    for name, noise in found.items():
        spent = dp.epsilon(noise, sampling, steps, delta, "pld", adjacency)
        typer.echo(f"{name:<14} {stated(noise):>8}   spends at most {stated(spent)} by pld")
    if adjacency != "add-remove":
        typer.echo("rdp and rdp-published know add-remove only")
    else:
        typer.echo(f"pld saves {100 * (1 - found['pld'] / found['rdp-published']):.1f} % of the published rule's noise")
