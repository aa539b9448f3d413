"""The README tells the truth: its commands, chapters, files and papers exist."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest
import typer

from paclab import cli

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
