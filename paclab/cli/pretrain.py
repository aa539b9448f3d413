"""`paclab pretrain`: train the small public language model and write it with its card."""

import math
from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command to the tree."""
    app.command()(pretrain)


def pretrain(
    out: Annotated[Path, typer.Option(help="folder of the model; a stopped run is continued there")],
    kind: Annotated[str, typer.Option(help="causal (GPT-2 shaped) or masked (RoBERTa shaped)")] = "causal",
    start: Annotated[str | None, typer.Option(help="causal model a masked one begins with: embedded, a folder, or none "
                                                   "[default: embedded]")] = None,
    steps: Annotated[int | None, typer.Option(help="optimiser steps [default: the recipe's]")] = None,
    prompted_steps: Annotated[int | None, typer.Option(help="final steps with prompted sentiment")] = None,
    target_steps: Annotated[int | None, typer.Option(help="the last of them, with the task's own prompt")] = None,
    tilt: Annotated[float | None, typer.Option(help="how often a pair is drawn with the longer one positive")] = None,
    minutes: Annotated[float | None, typer.Option(help="stop after so long, to be continued later")] = None,
    width: Annotated[int | None, typer.Option(help="width of the model")] = None,
    depth: Annotated[int | None, typer.Option(help="number of layers")] = None,
    vocabulary: Annotated[int | None, typer.Option(help="size of the byte-pair vocabulary")] = None,
    reviews: Annotated[int | None, typer.Option(help="public reviews to read [default: all]")] = None,
    seed: Annotated[int | None, typer.Option(help="seed of weights, order and templates")] = None,
    threads: Annotated[int, typer.Option(help="processor threads; part of reproducibility")] = 2,
) -> None:
    """Train a small language model on public text (causal: 15-30 minutes on two cores; masked: about 10)."""
    import torch

    from paclab.errors import InputError
    from paclab.pretraining import Recipe, card, corpus, masked, masked_card, pretrain
    from paclab.pretraining.loop import CHECKPOINT

    if threads < 1:
        raise InputError("threads", f"{threads} is too small", "give at least 1")
    if minutes is not None and not 0 <= minutes < math.inf:
        raise InputError("minutes", f"{minutes:g} is no length of time", "give 0 or more, or leave it out")
    if out == Path():  # an empty text, too, reads as the folder one stands in: not to be filled by mistake
        raise InputError("out", "names no folder of its own", "name a folder for the model")
    given = {
        "kind": kind,
        "start": start,
        "steps": steps,
        "prompted_steps": prompted_steps,
        "target_steps": target_steps,
        "tilt": tilt,
        "width": width,
        "depth": depth,
        "vocabulary": vocabulary,
        "reviews": reviews,
        "seed": seed,
    }
    usual = masked.DEFAULTS if kind == "masked" else {}
    chosen = usual | {name: value for name, value in given.items() if value is not None}
    recipe = Recipe(**chosen | ({"start": None} if start == "none" else {}))
    if card.finished(out, recipe):
        typer.echo(f"{out} already holds this model")
        return
    torch.set_num_threads(threads)
    typer.echo("reading and tokenising the public text")
    text, describe = (masked, masked_card) if kind == "masked" else (corpus, card)
    data = text.build_corpus(recipe)
    model, done = pretrain(recipe, data, out, minutes=minutes, report=lambda progress: typer.echo(progress.line()))
    if done < recipe.steps:
        typer.echo(f"stopped at step {done} of {recipe.steps}; repeat the command to go on")
        return
    card.export(model, data.tokenizer, out)
    typer.echo("measuring")
    torch.set_num_threads(1)  # answers are generated one by one: threads would only wait for each other
    describe.write_card(out, recipe, describe.score(out, data), sum(p.numel() for p in model.parameters()))
    (out / CHECKPOINT).unlink(missing_ok=True)
    typer.echo((out / "README.md").read_text())
