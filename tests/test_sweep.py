"""The hyper-parameter search: grids read as written, fair counts, the right winner, and a real sweep resumed."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from paclab import cli, sweep
from paclab.errors import InputError
from paclab.experiments import Cell
from paclab.finetune import Config

BASE = Config(study=True, method="mezo", steps=2, pool=50, dev=20)


def cell(config, loss, score=0.5):
    metrics = [{"step": 0, "dev_loss": 9.0, "dev_score": 0.0}, {"step": 2, "dev_loss": loss, "dev_score": score}]
    return Cell(config, {}, np.zeros(1), np.zeros(1), [], metrics, Path("."))


def file(tmp_path, text):
    path = tmp_path / "grid.toml"
    path.write_text(text)
    return path


def test_the_winner_has_the_best_mean_over_seeds_not_the_best_run():
    configs = [replace(BASE, lr=lr, seed=s) for lr in (1e-4, 1e-3, 1e-2) for s in (7, 8)]
    losses, scores = [0.5, 0.9, 0.6, 0.6, 0.7, 0.7], [0.1, 0.1, 0.2, 0.2, 0.4, 0.3]
    cells = [cell(c, *both) for c, *both in zip(configs, losses, scores, strict=True)]
    by_loss = sweep.pick(configs, cells, ("method",), "dev_loss")
    assert by_loss.best == {("mezo",): configs[2]}  # 0.6 on average; the single best run has 0.5
    assert by_loss.grid["best"].tolist() == ["", "best", ""]
    assert by_loss.grid["lr"].tolist() == [1e-4, 1e-3, 1e-2]
    assert by_loss.grid["dev_loss"].tolist() == pytest.approx([0.7, 0.6, 0.7])
    assert by_loss.grid["dev_loss s.e."].tolist() == pytest.approx([0.2, 0.0, 0.0])  # |0.5 - 0.9| / 2
    assert by_loss.grid["dev_loss before"].tolist() == [9.0] * 3
    by_score = sweep.pick(configs, cells, ("method",), "dev_score")
    assert by_score.best == {("mezo",): configs[4]}
    assert by_score.grid["edge"].tolist() == ["", "", "lr largest"] and by_loss.grid["edge"].tolist() == ["", "", ""]
    assert "public by declaration" in by_score.note() and "dev_score" in by_score.note()


def test_a_second_round_runs_the_best_on_more_seeds_and_forgets_a_lucky_run(monkeypatch):
    """Trial 1e-3 is lucky on the first seed; over three seeds 1e-2 is better; 1e-1 was third and is not run again."""
    losses = {(1e-4, 7): 0.9, (1e-3, 7): 0.1, (1e-2, 7): 0.3, (1e-1, 7): 0.4,
              (1e-3, 8): 0.8, (1e-3, 9): 0.9, (1e-2, 8): 0.3, (1e-2, 9): 0.3}
    asked = []

    def run(configs, root, **_):
        asked.append([(c.lr, c.seed) for c in configs])
        return [cell(c, losses[c.lr, c.seed]) for c in configs]

    monkeypatch.setattr(sweep, "run_trials", run)
    configs = [replace(BASE, lr=lr, seed=7) for lr in (1e-4, 1e-3, 1e-2, 1e-1)]
    once = sweep.tune(configs, ".")
    assert once.best["mezo",].lr == 1e-3 and "ran again" not in once.note()
    asked.clear()
    tuned = sweep.tune(configs, ".", finalists=2, again=[8, 9])
    assert asked[1] == [(1e-3, 8), (1e-3, 9), (1e-2, 8), (1e-2, 9)]
    assert tuned.best["mezo",] == configs[2] and "best 2 of each group ran again" in tuned.note()
    assert tuned.grid["seeds"].tolist() == [1, 3, 3, 1] and tuned.grid["best"].tolist() == ["", "", "best", ""]
    assert tuned.grid["dev_loss"].tolist() == pytest.approx([0.9, 0.6, 0.3, 0.4])
    losses[1e-2, 8] = losses[1e-2, 9] = 0.9  # now the third of the first round has the best mean, of one run
    assert sweep.tune(configs, ".", finalists=2, again=[8, 9]).best["mezo",] == configs[1]


@pytest.mark.parametrize("given, words", [
    ({"finalists": 2}, "finalists: 2 with 0 further seeds"), ({"again": [8]}, "finalists: 0 with 1 further seeds"),
    ({"finalists": -1, "again": [8]}, "finalists: -1"), ({"finalists": 1, "again": [0]}, "again: .* repeats a seed"),
    ({"finalists": 1, "again": [8, 8]}, "again: .* repeats a seed"),
])
def test_a_second_round_that_makes_no_sense_is_refused(given, words):
    with pytest.raises(InputError, match=words):
        sweep.tune([BASE, replace(BASE, lr=1.0)], ".", **given)


def test_every_group_has_its_own_winner_and_a_diverged_trial_never_wins():
    configs = [replace(BASE, method=m, lr=lr) for m in ("mezo", "sign") for lr in (1e-3, 1e-2)]
    cells = [cell(c, loss) for c, loss in zip(configs, [0.3, 0.2, float("nan"), 0.4], strict=True)]
    tuned = sweep.pick(configs, cells, ("method",), "dev_loss")
    assert tuned.best == {("mezo",): configs[1], ("sign",): configs[3]}
    assert tuned.grid["trials"].tolist() == [2] * 4 and len(tuned.grid) == 4
    with pytest.raises(InputError, match="lr: every trial of sign ended without a finite dev_loss"):
        sweep.pick(configs[2:3], cells[2:3], ("method",), "dev_loss")


def test_a_diverged_model_does_not_win_by_the_accuracy_of_its_one_answer(monkeypatch):
    """NaN weights answer every sentence alike, which may be right more often than a poor trial is."""
    configs = [replace(BASE, lr=lr) for lr in (1e-3, 1e-2, 1e-1)]
    cells = [cell(configs[0], 0.6, 0.50), cell(configs[1], float("nan"), 0.53), None]
    monkeypatch.setattr(sweep, "run_trials", lambda asked, root, **_: [
        cells[configs.index(replace(c, seed=0, test=configs[0].test))] for c in asked])
    for rounds in ({}, {"finalists": 2, "again": [8]}):
        tuned = sweep.tune(configs, ".", metric="dev_score", **rounds)
        assert tuned.best == {("mezo",): configs[0]}
    assert np.isnan(tuned.grid["dev_score"].iloc[2])  # it ended before its dev sentences


def test_a_real_trial_that_blows_up_is_lost_and_the_search_goes_on(tmp_path, monkeypatch, tiny_model):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    base = replace(BASE, model=str(tiny_model), source=str(tiny_model / "films.csv"), steps=3, pool=16, dev=6)
    tuned = sweep.tune([replace(base, lr=lr) for lr in (1e6, 1e-3)], tmp_path)
    assert tuned.best["mezo",].lr == 1e-3 and not np.isfinite(tuned.grid["dev_loss"].iloc[0])
    from paclab.experiments import run_cells

    with pytest.raises(InputError, match=r"loss: .*sentiment-mezo.*1 of 1 runs failed"):
        run_cells([replace(base, lr=1e6)], tmp_path)


def test_default_learning_rates_are_shown_as_numbers_and_ties_go_to_the_first():
    configs = [BASE, replace(BASE, lr=5.0), replace(BASE, lr=7.0)]
    tuned = sweep.pick(configs, [cell(c, 0.4) for c in configs], (), "dev_loss")
    assert tuned.best == {(): BASE} and tuned.grid["lr"].tolist() == [BASE.learning_rate(), 5.0, 7.0]


@pytest.mark.parametrize("configs, per, metric, words", [
    ([replace(BASE, study=False)] * 3, ["method"], "dev_loss", "study: each of the 3 trials on a private pool would"),
    ([], ["method"], "dev_loss", "grid: holds no trial"),
    ([BASE], ["metod"], "dev_loss", "did you mean 'method'"),
    ([BASE], ["seed"], "dev_loss", "per: 'seed'"),
    ([BASE], ["method"], "dev_los", "did you mean 'dev_loss'"),
    ([BASE, replace(BASE, lr=1.0, seed=1)], ["method"], "dev_loss", r"seeds \[1\], others on \[0\]"),
    ([BASE, replace(BASE, lr=1.0), replace(BASE, method="sign")], ["method"], "dev_loss",
     "sign has 1 trials and mezo has 2.*set trials = 1"),
])
def test_unfair_empty_or_private_searches_are_refused_in_one_line(configs, per, metric, words):
    with pytest.raises(InputError, match=words) as caught:
        sweep.check(configs, per, metric)
    assert "\n" not in str(caught.value)


def test_unequal_counts_may_be_allowed():
    sweep.check([BASE, replace(BASE, lr=1.0), replace(BASE, method="sign")], ["method"], "dev_loss", unequal=True)


def test_the_example_is_a_valid_grid(tmp_path):
    read = sweep.read_sweep(file(tmp_path, sweep.EXAMPLE))
    assert read.per == ("method", "epsilon") and read.metric == "dev_loss" and not read.unequal
    assert len(read.configs) == 4 * 6 * 2 and {c.seed for c in read.configs} == {1000, 1001}
    assert {(c.method, c.k) for c in read.configs} == {("dpzero", 1), ("dp-aggzo", 16)}
    assert all(c.study and c.steps == 40 and c.dev == 2000 for c in read.configs)


def test_the_cap_equalises_and_always_draws_the_same_trials(tmp_path):
    text = ("seeds = [3]\ntrials = 4\n[base]\nstudy = true\n"
            "[[grid]]\nmethod = ['mezo']\nlr = [1e-4, 2e-4, 3e-4, 4e-4, 5e-4]\nclip = [1, 2]\n"
            "[[grid]]\nmethod = ['sign']\nlr = [1e-4, 2e-4, 3e-4, 4e-4]\n")
    first, again = (sweep.read_sweep(file(tmp_path, text)).configs for _ in range(2))
    assert first == again and [c.method for c in first].count("mezo") == 4 == [c.method for c in first].count("sign")
    assert all(isinstance(c.clip, float) for c in first if c.method == "mezo")  # 1 is read as 1.0
    with pytest.raises(InputError, match="sign has 4 trials and mezo has 10"):
        sweep.read_sweep(file(tmp_path, text.replace("trials = 4\n", "")))
    assert len(sweep.read_sweep(file(tmp_path, text.replace("trials = 4", "unequal = true"))).configs) == 14


@pytest.mark.parametrize("text, words", [
    ("seeds = [1]\n[grid]\nlr = [1e-3;]\n", "not valid TOML.*line 3"),
    ("seeds = [1]\n[base]\nstudy = true\n[grid]\nlrr = [1.0]", "lrr: is no setting of a run; did you mean 'lr'"),
    ("seed = [1]\n[grid]\nlr = [1.0]", "sweep: 'seed' is unknown; did you mean 'seeds'"),
    ("steps = 3\n[grid]\nlr = [1.0]", r"settings of a run go under \[base\]"),
    ("seeds = [1]\n[base]\nstudy = true\n", "grid: is empty"),
    ("seeds = [1]\n[grid]\n", "grid: is empty"),
    ("seeds = [1]\n[grid]\nlr = []", "lr: .* is no list of values"),
    ("seeds = [1]\n[grid]\nlr = 1.0", "lr: 1.0 is no list of values"),
    ("seeds = [1]\n[grid]\nlr = ['big']", "lr: 'big' does not fit; give a number"),
    ("seeds = [1]\n[grid]\nk = [1.5]", "k: 1.5 does not fit; give a whole number"),
    ("seeds = [1]\n[grid]\nsteps = [true]", "steps: True does not fit"),
    ("seeds = [1]\n[grid]\nseed = [1, 2]", "seed: does not go under"),
    ("[base]\nstudy = true\n[grid]\nlr = [1.0]", "seeds: is missing"),
    ("seeds = [1, 1]\n[base]\nstudy = true\n[grid]\nlr = [1.0]", "seeds: holds a seed twice"),
    ("seeds = [-1]\n[grid]\nlr = [1.0]", "seeds: .* is no list"),
    ("seeds = [1]\ntrials = 0\n[grid]\nlr = [1.0]", "trials: 0 is no number"),
    ("seeds = [1]\nper = 'method'\n[grid]\nlr = [1.0]", "per: 'method' is no list"),
    ("seeds = [1]\ntrials = 2\nper = ['metod']\n[base]\nstudy = true\n[grid]\nlr = [1.0]", "did you mean 'method'"),
    ("seeds = [1]\nmetric = 5\n[base]\nstudy = true\n[grid]\nlr = [1.0]", "metric: 5 is unknown; choose one of"),
    ("seeds = [1]\nmetric = ['a']\n[base]\nstudy = true\n[grid]\nlr = [1.0]", r"metric: \['a'\] is unknown; choose"),
    ("seeds = [1]\nbase = 3\n[grid]\nlr = [1.0]", "base: 3 is no table"),
    ("seeds = [1]\nunequal = 'no'\n[grid]\nlr = [1.0]", "unequal: 'no' is not true or false"),
    ("seeds = [1]\n[grid]\nlr = [1.0]", "study: each of the 1 trials on a private pool"),
    ("seeds = [1]\n[base]\nstudy = true\n[grid]\nmethod = ['dpzero']\nepsilon = [2.0]",
     r"clip: dpzero bounds every record \(trial with .*'dpzero'"),
])
def test_a_faulty_file_is_told_in_one_line(tmp_path, text, words):
    with pytest.raises(InputError, match=words) as caught:
        sweep.read_sweep(file(tmp_path, text))
    assert "\n" not in str(caught.value)


def test_an_unreadable_file_is_told_in_one_line(tmp_path):
    with pytest.raises(InputError, match="sweep: cannot read"):
        sweep.read_sweep(tmp_path / "none.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not text"):
        sweep.read_sweep(tmp_path / "binary.toml")


def test_a_real_sweep_runs_resumes_and_writes_the_whole_grid(tmp_path, monkeypatch):
    app = cli.build("sweep")
    monkeypatch.setattr("paclab.cli.sweep._root", lambda: tmp_path)
    grid = file(tmp_path, "seeds = [5]\n[base]\nstudy = true\nmethod = 'mezo'\nsteps = 1\npool = 20\ndev = 30\n"
                          "[grid]\nlr = [1e-6, 1e6]\n")
    call = ["sweep", str(grid), "--out", str(tmp_path / "tables"), "--jobs", "1"]
    first = CliRunner().invoke(app, call)
    assert first.exit_code == 0, first.output
    assert "2 runs, 0 of them on disk already" in first.output and "public by declaration" in first.output
    table = pd.read_csv(tmp_path / "tables" / "grid.csv", keep_default_na=False)
    assert table["best"].tolist() == ["best", ""]  # one step of size 1e6 ruins the model
    assert "best" in (tmp_path / "tables" / "grid.tex").read_text()
    winners = json.loads((tmp_path / "tables" / "best.json").read_text())
    assert [w["group"] for w in winners] == [{"method": "mezo"}] and winners[0]["config"]["lr"] == 1e-6
    assert winners[0]["config"]["test"] is None and Config(**winners[0]["config"]).study
    runs = list((tmp_path / "runs" / "cells").glob("*/run.json"))
    assert [json.loads(path.read_text())["result"]["test_records"] for path in runs] == [1, 1]
    assert sorted("test_loss" in json.loads(path.read_text())["result"] for path in runs) == [False, True]
    again = CliRunner().invoke(app, call)
    assert "2 runs, 2 of them on disk already" in again.output


def test_the_command_counts_before_it_runs_and_prints_its_example(tmp_path):
    app = cli.build("sweep")
    counted = CliRunner().invoke(app, ["sweep", str(file(tmp_path, sweep.EXAMPLE)), "--dry-run"])
    assert "48 runs: 24 trials on seeds 1000, 1001" in counted.output
    assert CliRunner().invoke(app, ["sweep", "--example"]).output == sweep.EXAMPLE
    missing = CliRunner().invoke(app, ["sweep"])
    assert isinstance(missing.exception, InputError) and "--example" in str(missing.exception)
