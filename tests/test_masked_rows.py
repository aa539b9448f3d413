"""The masked track on the shipped model: rows of a table, and one private run through the command line."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from paclab import models, tasks
from paclab.chapters.masked_rows import EPSILONS, masked_configs
from paclab.sources import rotten_tomatoes


def test_rows_cost_the_same_probes_on_the_masked_model():
    found = masked_configs(directions=16, probes=160, pool=500, seed=3, test=50)
    assert len(found) == 1 + 2 * len(EPSILONS) and {c.model for c in found.values()} == {"masked"}
    assert all(c.study and c.seed == 3 and c.test == 50 for c in found.values())
    for name, config in found.items():
        records = config.pool if config.method == "mezo" else 64 * config.k
        assert config.steps * records == pytest.approx(160 * 64, rel=0.05), name
    assert {c.epsilon for c in found.values() if c.method == "dp-aggzo"} == set(EPSILONS)


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
