"""The README tells the truth: its commands, chapters, files and papers exist."""

import json
import re
import shlex
import sys
import tomllib
from pathlib import Path

import pytest
import typer

from paclab import cli
from paclab.chapters import sizing

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
COMMANDS = [line.split("#")[0].strip() for block in re.findall(r"```bash\n(.*?)```", README, re.S)
            for line in block.splitlines() if line.startswith("paclab ")]


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_parse(command):
    tree = typer.main.get_command(cli.build())
    words = shlex.split(command)[1:]
    while hasattr(tree, "commands"):
        assert words[0] in tree.commands, f"{words[0]} is no command"
        tree = tree.commands[words.pop(0)]
    known = {option for parameter in tree.params for option in parameter.opts}
    assert {word.split("=")[0] for word in words if word.startswith("--")} <= known


@pytest.mark.parametrize("command", [command for command in COMMANDS if command.startswith("paclab train")])
def test_training_commands_run(command, tmp_path, monkeypatch):
    (tmp_path / "my.csv").write_text("sentence,label\n" + "".join(f"a film of number {i},{i % 2}\n" for i in range(90)))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PACLAB_LEDGER", str(tmp_path / "queries.jsonl"))
    monkeypatch.setattr(sys, "argv", [*shlex.split(command), *"--steps 1 --pool 60 --dev 10 --test 10".split()])
    cli.main()
    (path,) = (tmp_path / "runs").glob("*/run.json")
    run = json.loads(path.read_text())
    assert run["status"] == "complete" and run["private"] is True and not run["guarantee"].startswith("none")


def test_there_are_commands():
    assert len(COMMANDS) >= 5


def test_chapters_are_those_of_the_book():
    book = tomllib.loads((ROOT / "notebooks" / "book.toml").read_text())["chapter"]
    rows = dict(re.findall(r"^\| `(\d\d_\w+)` \| (.+?) \|$", README, re.M))
    assert rows == {name: entry["question"] for name, entry in book.items()}


def test_named_files_exist():
    tree = re.search(r"## The tree\n\n(.*?)\n\nArrows", README, re.S).group(1)
    for name in re.findall(r"[\w./]+\.(?:py|toml)\b", tree):
        assert list(ROOT.rglob(name)), name
    for link in re.findall(r"\]\(([^)#]+)\)", README):
        assert link.startswith("http") or (ROOT / link).exists(), link
    assert all(number in README for number in ("2605.06505", "2608.03277", "2609.05676", "2604.07238"))


def test_many_directions_cost_less_than_single_steps():
    """README's share, from the committed measurement (`benchmarks/directions.py`); nothing is timed here."""
    rows = json.loads((ROOT / "benchmarks" / "results" / "directions.json").read_text())["rows"]
    shares = {row["track"]: row["share_of_singles"] for row in rows if row["k"] == 64}
    assert set(shares) == {"ft", "lora"} and all(max(share.values()) <= 0.9 for share in shares.values())
    told = re.search(r"takes ([0-9.]+) times\s+as long as 64 single steps in full fine-tuning and ([0-9.]+) times with",
                     README).groups()
    assert [shares[track]["wall"] for track in ("ft", "lora")] == pytest.approx([float(x) for x in told], abs=0.01)


def test_the_formula_of_chapter_00_counts_three_times_what_the_embedded_model_needs():
    """As its text says: embedding tables are looked up, and the last layer is computed where it is read only."""
    counted = json.loads((ROOT / "benchmarks" / "results" / "step.json").read_text())
    flop = sizing.step_cost(counted["parameters"], counted["pool"], counted["tokens"] / counted["pool"]).flop
    assert 2.5 < flop / 1e9 / counted["gflop_needed"] < 4
    config = json.loads((ROOT / "data" / "model" / "config.json").read_text())
    tables = (config["vocab_size"] + config["n_positions"]) * config["n_embd"]
    assert 0.5 < tables / counted["parameters"] < 0.7
    multiplied = flop * (1 - tables / counted["parameters"]) / 1e9
    assert multiplied == pytest.approx(counted["gflop_plain"], rel=0.1)  # the rest is attention
    vocabulary, positions, width, layers = 50272, 2050, 2048, 24  # OPT-1.3B
    needed = 12 * width**2 * layers - 10 * width**2  # the last layer keeps keys and values everywhere
    assert needed / (needed + 10 * width**2 + (vocabulary + positions) * width) == pytest.approx(0.9, abs=0.02)
