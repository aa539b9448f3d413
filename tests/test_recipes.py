"""Tuned learning rates and clips: the law between them, and where they are the defaults."""

import json
import math
import sys

import pytest

from paclab import cli
from paclab.chapters.rows import dp_config
from paclab.errors import InputError
from paclab.finetune import Config
from paclab.releases import recipes


def test_the_clip_of_a_vector_shrinks_with_its_length():
    one, many = recipes.recipe("dp-aggzo", "ft", 1), recipes.recipe("dp-aggzo", "ft", 16)
    assert many.clip * math.sqrt(16) == pytest.approx(one.clip) == recipes.BETA_CLIP["ft"]
    assert recipes.recipe("dp-zo", "ft", 1).clip == pytest.approx(one.clip * 2e-3)  # in units of a loss difference


def test_untuned_rates_follow_the_best_step_of_the_second_order_formula():
    from paclab.rates import training

    def best(k):
        return training.best_lr(training.zeroth_order_step(1.0, 3.0, 100.0, recipes.EFFECTIVE_RANK, k))

    ratios = [recipes.recipe("dp-aggzo", "masked", k).lr / recipes.MASKED_LR for k in (1, 4, 16, 256)]
    assert ratios == pytest.approx([best(k) / best(1) for k in (1, 4, 16, 256)])


def test_a_tuned_rate_wins(monkeypatch):
    monkeypatch.setitem(recipes.TUNED_LR, ("lora", 4), 0.123)
    made = dp_config("dp-aggzo", 2.0, k=4, track="lora", steps=7, pool=100)
    assert (made.lr, made.steps, made.study, made.epsilon) == (0.123, 7, True, 2.0)


@pytest.mark.parametrize(("method", "k", "model", "track"), [
    ("dp-aggzo", 16, "masked", "masked"), ("dpzero", 1, "embedded", "ft"), ("geodpzo-lc", 4, "embedded", "ft")])
def test_the_command_trains_with_the_clip_that_belongs_to_the_rate(method, k, model, track, tmp_path, monkeypatch):
    words = ["--method", method, "--k", str(k), "--model", model, "--epsilon", "2", "--steps", "1", "--pool", "40",
             "--dev", "10", "--test", "10", "--study", "--out", str(tmp_path / "run")]
    monkeypatch.setattr(sys, "argv", ["paclab", "train", *words])
    cli.main()
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    wanted = recipes.recipe(method, track, k)
    assert (run["learning_rate"], run["config"]["clip"]) == wanted
    assert run["guarantee"].startswith("none, reproducible, not private") and run["private"] is False


def test_a_missing_clip_is_refused_with_the_tuned_one_in_the_hint():
    with pytest.raises(InputError, match=r"clip: dp-zo bounds every record; give clip=0\.06"):
        Config(method="dp-zo", epsilon=1.0)
