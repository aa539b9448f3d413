"""What experiment chapters share: recipes, paired rows, and published rows beside ours."""

from pathlib import Path

import numpy as np
import pandas as pd

from paclab.chapters import rows
from paclab.experiments import Cell
from paclab.finetune import Config


def cell(score, seed=0):
    score = np.asarray(score, dtype=float)
    return Cell(Config(seed=seed, study=True), {}, 1 - score, score, [], [], Path("."))


def reference(score):
    score = np.asarray(score, dtype=float)
    return rows.Reference(1 - score, score, 0.5, np.arange(len(score)) % 2, score)


def test_given_settings_win_over_the_recipe():
    made = rows.dp_config("dp-aggzo", 2.0, k=4, track="lora", steps=7, pool=100, lr=0.5, clip=3.0)
    assert (made.lr, made.clip, made.steps, made.study, made.epsilon) == (0.5, 3.0, 7, True, 2.0)


def test_steps_are_traded_for_directions():
    assert [rows.equal_steps(625, k) for k in (1, 4, 16, 64, 4096)] == [625, 156, 39, 10, 1]


def test_rows_are_paired_on_the_same_sentences():
    zero = [reference([0, 0, 1, 1]), reference([1, 0, 0, 1])]
    cells = [cell([1, 0, 1, 1]), cell([1, 0, 1, 1], 1)]
    table = rows.frame({"ours": cells}, zero).set_index("row")
    assert table.loc["zero-shot", "accuracy, %"] == 50
    assert table.loc["ours", "accuracy, %"] == 75 and table.loc["ours", "over zero-shot, points"] == 25
    assert table.loc["ours", "gain ± seeds"] == 0 and table.loc["ours", "held-out loss"] == 0.25
    assert rows.behind(cells, cells).mean == 0 and rows.behind(cells[:1], cells[1:]).seeds != 0


def test_published_rows_name_why_they_were_not_run():
    published = pd.DataFrame({"paper": "p", "table": "T", "row": ["a", "b", "c"], "column": ["x", "x", "big x"],
                              "value": [1.0, 2.0, 3.0], "unit": "", "half_width": np.nan, "tolerance": 0.5, "note": "",
                              "source": ""})
    ours = pd.DataFrame({"table": ["T"], "row": ["b"], "column": ["x"], "value": [2.2], "seeds": [5]})
    shown = rows.beside(ours, published, "desk", {"big": "needs a larger machine"}).set_index("row")
    assert shown.loc["b", "status"] == "match" and shown.loc["a", "status"] == "not run"
    assert shown.loc["c", "status"] == "not run (needs a larger machine)" and shown.loc["b", "ours"] == 2.2
    assert list(shown["status"])[-1] == "match"
