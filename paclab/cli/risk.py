"""`paclab risk`: what a budget means to an attacker, printed as a small card."""

from typing import Annotated

import typer

from paclab.errors import InputError
from paclab.privacy.budget import stated
from paclab.privacy.risk import RiskCard, risk_card


def register(app: typer.Typer) -> None:
    """Add the command `risk`."""
    app.command("risk")(risk)


def risk(
    mi: Annotated[float | None, typer.Option(help="mutual information of the whole run, in nats")] = None,
    epsilon: Annotated[float | None, typer.Option(help="a DP epsilon, instead of --mi")] = None,
    delta: Annotated[float | None, typer.Option(help="its delta (default 0; Gaussian row 1e-5)")] = None,
    prior: Annotated[float, typer.Option(help="success of the best guess before any release (--mi)")] = 0.5,
) -> None:
    """Price a privacy budget: attack success, advantage, matched epsilon, and what is (not) protected."""
    if epsilon is not None and prior != 0.5:
        raise InputError("prior", "an epsilon is priced as one record's bit, at prior 1/2",
                         "leave it out, or give `mi` in place of epsilon")
    typer.echo(render(risk_card(mi, epsilon, delta, prior), promised="nats" if epsilon is None else "epsilon"))


PROTECTS = {
    "nats": (
        "Protected: which of the M public candidate halves was used, hence whether a pool record lies in it.",
        "Not protected: membership in the pool itself. Every pool record is read at every step.",
        "Attacker: knows pool, candidates and algorithm, sees every release, lacks only the secret index.",
    ),
    "epsilon": (
        "Protected: whether any one record took part, for every pool and every record (one record more or less, or",
        "replaced, as the run's adjacency says).",
        "Not protected: what many records have in common, or what follows without the record.",
        "Attacker: knows the algorithm and every other record, sees every release, lacks only this one record's bit.",
    ),
}


def render(card: RiskCard, promised: str = "nats") -> str:
    """The card as text, numbers with units; `promised` says what the guarantee was given in, nats or epsilon."""
    stated_epsilon = "infinite (no privacy)" if card.epsilon == float("inf") else stated(card.epsilon)
    information, epsilon = (
        ("mutual information", f"{card.mi:.6g} nats  (all releases of the run together)"),
        ("matched epsilon, bound", f"{stated_epsilon}  (delta {card.delta:g}, prior 1/2; equal bound, not attack)"),
    ) if promised == "nats" else (
        ("matched nats, bound", f"{card.mi:.6g} nats  (about one record's bit; equal bound at prior 1/2, not attack)"),
        ("epsilon", f"{stated_epsilon}  (delta {card.delta:g}; all releases of the run together)"),
    )
    rows = [
        information,
        ("prior", f"{card.prior:.6g}  (best guess before any release)"),
        ("attack success, bound", f"at most {stated(card.success)}  (no attack can exceed it)"),
        ("advantage, bound", f"at most {stated(card.advantage)}  ((success - prior) / (1 - prior))"),
        epsilon,
        ("Gaussian DP, attack", _gaussian(card)),
    ]
    width = max(len(name) for name, _ in rows)
    lines = [f"{name:<{width}}  {value}" for name, value in rows]
    return "\n".join([*lines, "", *PROTECTS[promised]])


def _gaussian(card: RiskCard) -> str:
    if card.gaussian_success is None:
        return "-  (epsilon is infinite)"
    at = f"delta {card.gaussian_delta:g}"
    if card.gaussian_success == 0.5:
        return "0.5  (epsilon 0)"
    return f"{card.gaussian_success:.5f}  (best attack, exactly Gaussian at this epsilon, {at})"
