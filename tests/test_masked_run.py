"""The masked track on the shipped model: one private run through the command line."""

import json

import numpy as np
from typer.testing import CliRunner

from paclab import models, tasks
from paclab.sources import rotten_tomatoes


def test_a_private_run_of_the_shipped_model_through_the_command_line(tmp_path):
    from paclab.cli import build

    run, exported = tmp_path / "run", tmp_path / "model"
    train = ["train", "--model", "masked", "--method", "dp-aggzo", "--epsilon", "2", "--k", "2", "--steps", "3",
             "--pool", "100", "--dev", "10", "--test", "40", "--clip", "5", "--lr", "1e-3", "--out", str(run)]
    for command in (train, ["verify", str(run)], ["resume", str(run)], ["export", str(run), "--to", str(exported)]):
        done = CliRunner().invoke(build(), command)
        assert done.exit_code == 0, done.output
    assert json.loads((run / "run.json").read_text())["status"] == "complete"
    model = models.load(str(exported), "cpu")
    records = rotten_tomatoes()[:40]
    before = tasks.objective("sentiment", models.load("masked", "cpu"), records).losses()
    after = tasks.objective("sentiment", model, records).losses()
    assert model.masked and 0 < np.abs(after - before).max() < 1
