"""The book's machinery on small books: parameters, artefacts, lint, and the runner with real kernels."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from paclab.cli.book import parse_settings
from paclab.errors import InputError
from paclab.notebook import cell, widgets
from paclab.notebook.book import load_book, resolve
from paclab.notebook.cell import ChapterFailed, begin, given_parameters
from paclab.notebook.grid import read_grid
from paclab.notebook.lint import lint_chapter
from paclab.notebook.publish import read_manifest
from paclab.notebook.runner import SHIPPED_MODELS, check_models, make_job, read_ledger, run_book, run_tasks, status
from paclab.notebook.worker import clean_paths

TOC = """
[chapter.10_toy]
question = "What is a line?"
artefacts = ["line.png", "numbers.csv"]
minutes = {quick = 0.1, desk = 1}
[chapter.10_toy.parameters]
n = {quick = 5, desk = 50, help = "points", min = 2, max = 1000}
slope = {quick = 0.5, min = 0}
flag = {quick = true}
sizes = {quick = [1, 2], min = 1}
mode = {quick = "up", choices = ["up", "down"]}

[chapter.20_red]
question = "What does a failing check do?"
artefacts = []
minutes = {quick = 0.1}

[chapter.21_gap]
question = "What if an artefact is missing?"
artefacts = ["ghost.csv"]
minutes = {quick = 0.1}

[chapter.22_dead]
question = "What if the kernel dies?"
artefacts = []
minutes = {quick = 0.1}

[chapter.23_silent]
question = "What if nobody stamps?"
artefacts = []
minutes = {quick = 0.1}
"""
PARAMETERS = "profile = None\nseed = None\nout_dir = None"
TOY = [
    PARAMETERS + "\nn = None  # points\nslope = None\nflag = None\nsizes = None\nmode = None",
    "from paclab.notebook import begin\nrun = begin('10_toy', globals())\np = run.params",
    "import matplotlib.pyplot as plt\nfig, ax = plt.subplots()\nax.plot([run.seed, p.n], [0, p.slope])\n"
    "run.figure(fig, 'line', caption='A line')",
    "run.table([{'n': p.n, 'y': p.slope / 3, 'seed': run.seed}], 'numbers', caption='Numbers')",
    "print(p.flag, p.sizes, p.mode)\nrun.stamp()",
]


def short(name: str, *body: str) -> list[str]:
    return [PARAMETERS, f"from paclab.notebook import begin\nrun = begin({name!r}, globals())", *body]


def notebook(cells: list[str]) -> dict:
    """A bare notebook of code cells, the first of them tagged `parameters`."""
    made = [
        {
            "cell_type": "code",
            "id": f"c{i}",
            "metadata": {"tags": ["parameters"]} if i == 0 else {},
            "source": text,
            "outputs": [],
            "execution_count": None,
        }
        for i, text in enumerate(cells)
    ]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return {"cells": made, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def write(root: Path, name: str, cells: list[str]) -> None:
    (root / "notebooks" / f"{name}.ipynb").write_text(json.dumps(notebook(cells)))


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """A project with one good and four bad chapters; begin finds it through PACLAB_ROOT."""
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "data").mkdir()
    (tmp_path / "notebooks" / "book.toml").write_text(TOC)
    write(tmp_path, "10_toy", TOY)
    write(tmp_path, "20_red", short("20_red", "run.check('two is three', 2 == 3, '2')\nrun.stamp()"))
    write(tmp_path, "21_gap", short("21_gap", "run.stamp()"))
    write(tmp_path, "22_dead", short("22_dead", "import os\nos._exit(9)", "run.stamp()"))
    write(tmp_path, "23_silent", short("23_silent", "1 + 1"))
    monkeypatch.setenv("PACLAB_ROOT", str(tmp_path))
    return load_book(tmp_path)


def names(**given):
    return {"profile": None, "seed": None, "out_dir": None, **given}


# ---- parameters ----


def test_profile_fills_what_is_not_given(toy):
    profile, values = resolve(toy.chapter("10"), names(n=None, slope=2))
    assert profile == "quick" and values["n"] == 5 and values["slope"] == 2.0
    assert resolve(toy.chapter("10"), {"profile": "desk"})[1]["n"] == 50
    assert resolve(toy.chapter("10"), {"profile": "desk"})[1]["slope"] == 0.5, "desk falls back on quick"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"nn": 3}, "did you mean 'n'"),
        ({"n": "3"}, "must be a whole number"),
        ({"n": 3.0}, "write 3"),
        ({"n": True}, "must be a whole number"),
        ({"n": 1}, "between 2 and 1000"),
        ({"slope": float("nan")}, "out of range"),
        ({"flag": "true"}, "papermill's -p"),
        ({"flag": 1}, "true or false"),
        ({"sizes": "[1,2]"}, "must be a list"),
        ({"sizes": [1, 2.5]}, "every item"),
        ({"sizes": []}, "empty"),
        ({"sizes": [0]}, "at least 1"),
        ({"mode": "sideways"}, "up, down"),
        ({"profile": "paper"}, "quick, desk"),
        ({"profile": "quik"}, "quick, desk, paper"),
        ({"seed": -1}, "between 0"),
    ],
)
def test_wrong_parameters_are_named_with_the_fix(toy, given, says):
    with pytest.raises(InputError) as caught:
        resolve(toy.chapter("10_toy"), given)
    assert caught.value.parameter in given and says in str(caught.value) and "\n" not in str(caught.value)


def test_only_the_parameters_cell_and_the_injected_one_count():
    cells = ["", TOY[0], "# Parameters\nn = 7\n", "from paclab.notebook import begin", "n = 99", "k = 3"]
    assert given_parameters({"In": cells, "n": 99}) == {
        **names(),
        "n": 7,
        "slope": None,
        "flag": None,
        "sizes": None,
        "mode": None,
    }
    again = [*cells, TOY[0]]
    assert given_parameters({"In": again})["n"] is None, (
        "running the parameters cell again forgets the injection"
    )
    with pytest.raises(InputError, match="not a literal"):
        given_parameters({"In": ["", PARAMETERS + "\nn = 2 * 3"]})
    with pytest.raises(InputError, match="no parameters cell"):
        given_parameters({"In": ["", "import os"]})


def test_settings_of_the_command_line_are_toml():
    assert parse_settings(["lr=1e-3", "n=3", "flag=true", "xs=[1, 2]", "mode=up"]) == {
        "lr": 1e-3,
        "n": 3,
        "flag": True,
        "xs": [1, 2],
        "mode": "up",
    }
    with pytest.raises(InputError, match="no value"):
        parse_settings(["lr"])
    with pytest.raises(InputError, match="--profile"):
        parse_settings(["profile=desk"])


def test_book_toml_mistakes_are_named(toy):
    path = toy.root / "notebooks" / "book.toml"
    path.write_text(TOC.replace("minutes = {quick = 0.1, desk", "minuts = {quick = 0.1, desk"))
    with pytest.raises(InputError, match="minutes"):
        load_book(toy.root)
    path.write_text(TOC.replace("n = {quick = 5", "n = {quick = 1"))
    with pytest.raises(InputError, match="out of range"):
        load_book(toy.root)
    with pytest.raises(InputError, match="20_red"):
        toy.chapter("2")


def test_grid_is_the_product_and_is_checked(toy, tmp_path):
    path = tmp_path / "grid.toml"
    path.write_text('chapter = "10_toy"\nseeds = [0, 1]\n[parameters]\nslope = [0.1, 0.2, 0.3]\n')
    tasks = read_grid(toy, path)
    assert len(tasks) == 6 and {t[1]["seed"] for t in tasks} == {0, 1}
    path.write_text('chapter = "10_toy"\n[parameters]\nslop = [0.1]\n')
    with pytest.raises(InputError, match="slope"):
        read_grid(toy, path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('chapter = ["10_toy"]', "chapter: ['10_toy'] does not fit"),
        ("chapter = 10", "chapter: 10 does not fit"),
        ('chapter = "10_toy"\nprofile = ["quick"]', "profile: ['quick'] does not fit"),
        ('chapter = "10_toy"\nparameters = 3', "parameters: 3 does not fit"),
        ('chapter = "10_toy"\nseeds = 3', "seed: must be a list"),
    ],
)
def test_a_faulty_grid_is_told_in_one_line(toy, tmp_path, text, says):
    (tmp_path / "grid.toml").write_text(text)
    with pytest.raises(InputError) as caught:
        read_grid(toy, tmp_path / "grid.toml")
    assert str(caught.value).startswith(says) and "\n" not in str(caught.value)


# ---- a run without a kernel ----


def plain_run(toy, **given):
    return begin("10_toy", names(**given))


def draw_line():
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots()
    ax.plot([0, 1])
    return figure


def test_artefact_folder_tells_changed_parameters_apart(toy, tmp_path):
    assert plain_run(toy).out == toy.root / "runs" / "quick" / "10_toy"
    assert plain_run(toy, seed=0, n=5).out.name == "10_toy", "the profile's own value changes nothing"
    changed = plain_run(toy, seed=3)
    assert changed.seed == 3 and changed.out.name.startswith("10_toy-") and changed.params.seed == 3
    assert plain_run(toy, out_dir=str(tmp_path / "elsewhere")).out == tmp_path / "elsewhere"


def test_a_live_notebook_leaves_headless_results_alone(toy, monkeypatch):
    monkeypatch.setenv("PACLAB_HEADLESS", "0")
    assert plain_run(toy).out == toy.root / "runs" / "interactive" / "10_toy"


def test_stamp_is_green_only_with_every_artefact_and_check(toy):
    run = plain_run(toy)
    with pytest.raises(ChapterFailed, match=r"line\.png was not written"):
        run.stamp()
    run.figure(draw_line(), "line")
    run.table([{"x": 1.0}], "numbers")
    run.stamp()
    record = json.loads((run.out / "run.json").read_text())
    assert record["green"] and record["artefacts"]["numbers.tex"] and not record["missing"]
    run.check("one is two", 1 == 2)
    with pytest.raises(ChapterFailed, match="one is two"):
        run.stamp()
    assert not json.loads((run.out / "run.json").read_text())["green"]


def test_a_leftover_artefact_of_an_earlier_run_is_not_enough(toy):
    run = plain_run(toy)
    run.figure(draw_line(), "line")
    run.table([{"x": 1.0}], "numbers")
    later = plain_run(toy)
    later.table([{"x": 1.0}], "numbers")
    assert (later.out / "line.png").exists()
    with pytest.raises(ChapterFailed, match=r"line\.png"):
        later.stamp()


def test_figures_and_tables_repeat_bit_for_bit_and_carry_their_source(toy):
    from PIL import Image

    contents = []
    for _ in range(2):
        run = plain_run(toy)
        run.study()
        run.figure(draw_line(), "line", caption="A line")
        run.table([{"x": 1 / 3}], "numbers", caption="x")
        contents.append([(run.out / n).read_bytes() for n in ("line.png", "numbers.csv", "numbers.tex")])
    assert contents[0] == contents[1] and len(contents[0][0]) < 300_000
    with Image.open(run.out / "line.png") as image:
        kept = image.info
    assert cell.STUDY in kept["Comment"] and json.loads(kept["Source"])["parameters"]["n"] == 5
    assert contents[0][1].decode() == f'x,profile,study\n0.3333333333,quick,"{cell.STUDY}"\n'
    import matplotlib.pyplot as plt

    assert not plt.get_fignums(), "every figure is closed"


def test_artefact_names_stay_in_their_folder(toy):
    with pytest.raises(InputError, match="plain artefact name"):
        plain_run(toy).table([{"x": 1}], "../numbers")


# ---- explorers and progress ----


def test_an_explorers_figure_is_never_drawn_by_another_thread(monkeypatch):
    """The inline backend draws all figures that pyplot knows, on any message, in the thread that got it."""
    import matplotlib.pyplot as plt

    from paclab.notebook import plots

    seen = []

    def draw(a):
        figure = plt.figure()
        seen.append(("interactive while made", plt.isinteractive()))
        return figure

    image = plots.png_image

    def watched(figure, **options):
        seen.append(("known while drawn", plt.fignum_exists(figure.number)))
        return image(figure, **options)

    monkeypatch.setattr(plots, "png_image", watched)
    with plt.ion():
        widgets._show(draw, None, {"a": 1})
        assert plt.isinteractive()
    assert seen == [("interactive while made", False), ("known while drawn", False)]


def test_explorer_redraws_when_a_slider_moves():
    from ipywidgets import IntSlider

    seen = []

    def draw(a, b):
        seen.append((a, b))
        return draw_line()

    slider = IntSlider(value=1, min=0, max=5, description="a, units")
    box = widgets.explorer(draw, lambda a, b: {"sum": a + b}, "300px", {"a": slider, "b": (0.0, 2.0, 0.5)})
    slider.value = 4
    slider.value = 99
    assert [a for a, _ in seen] == [1, 4, 5], "values are clamped to the range"
    assert slider.continuous_update is False and box.children[-1].layout.min_height == "300px"
    import matplotlib.pyplot as plt

    assert not plt.get_fignums()


def test_headless_follows_the_variable_and_the_kernel(monkeypatch):
    monkeypatch.setenv("PACLAB_HEADLESS", "0")
    assert not widgets.headless()
    monkeypatch.setenv("PACLAB_HEADLESS", "1")
    assert widgets.headless()
    monkeypatch.delenv("PACLAB_HEADLESS")
    for allowed in (True, False):
        shell = SimpleNamespace(kernel=SimpleNamespace(_allow_stdin=allowed))
        monkeypatch.setattr("IPython.get_ipython", lambda shell=shell: shell)
        assert widgets.headless() is not allowed


def test_progress_is_sparse_and_knows_the_time_left(monkeypatch, capsys):
    ticks = iter(range(10_000))
    monkeypatch.setattr(widgets, "time", SimpleNamespace(monotonic=lambda: float(next(ticks))))
    assert list(widgets.progress(range(100), label="steps")) == list(range(100))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 10 and lines[4].startswith("steps: 50/100 (50 %)") and lines[-1].endswith("0 s left")


def test_paths_are_scrubbed():
    home = Path.home()
    text = (
        f'"{home}/secret/x.py" and /tmp/ipykernel_123/77.py and /some/project/paclab/a.py and /some/projector'
    )
    out = clean_paths(text, Path("/some/project"))
    assert "ipykernel" not in out and "./paclab/a.py" in out and "/some/projector" in out
    assert len(home.parts) < 2 or str(home) not in out


# ---- lint ----


def good_chapter() -> dict:
    """A chapter with nothing to complain about."""

    def prose(text):
        return {"cell_type": "markdown", "metadata": {}, "source": text}

    made = notebook(TOY)
    code = made["cells"]
    cells = [prose("# What is a line?"), prose("## Parameters"), code[0], code[1], code[2], code[3]]
    cells += [prose(f"Prose {i}, see [the table of contents](book.toml).") for i in range(8)]
    cells += [prose("## Takeaways"), code[4]]
    made["cells"] = [dict(c, id=f"cell-{i}") for i, c in enumerate(cells)]
    return made


def findings(toy, made) -> list[str]:
    (toy.root / "notebooks" / "10_toy.ipynb").write_text(json.dumps(made))
    return lint_chapter(toy, toy.chapter("10_toy"))


def test_a_good_chapter_is_clean(toy):
    assert findings(toy, good_chapter()) == []


def edit(i, text):
    def change(made):
        made["cells"][i]["source"] = text

    return change


def put(i, **values):
    def change(made):
        made["cells"][i].update(values)

    return change


LONG = "def f():\n" + "    x = 1\n" * 12


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (edit(0, "# A statement"), "asks a question"),
        (put(4, outputs=[{"output_type": "stream", "name": "stdout", "text": "x"}]), "stores outputs"),
        (put(4, execution_count=3), "stores outputs"),
        (put(4, id="cell-0"), "unique ids"),
        (put(4, metadata={"tags": ["parameters"]}), "tag `parameters`"),
        (put(4, metadata={"tags": ["injected-parameters"]}), "injected"),
        (lambda made: made["metadata"]["kernelspec"].update(name="mine"), "kernel 'mine'"),
        (edit(1, "nothing"), "Markdown cell"),
        (edit(2, TOY[0] + "\nextra = None"), "extra is not in book.toml"),
        (edit(2, PARAMETERS), "parameter n of book.toml is not there"),
        (edit(2, TOY[0].replace("n = None", "n = 2 * 3")), "not a literal"),
        (edit(2, TOY[0].replace("n = None", "n = 6")), "hides the profiles"),
        (edit(3, TOY[1].replace("10_toy", "11_toy")), "begin"),
        (edit(4, TOY[2].replace("'line'", "name")), "declared artefact line.png"),
        (edit(4, TOY[2] + "\n!pip install x"), "shell"),
        (edit(4, TOY[2] + "\n" + "\n".join(f"x{i} = 1" for i in range(12))), "lines of code"),
        (edit(5, TOY[3] + "\n" + LONG), "over 12 lines"),
        (edit(5, TOY[3] + "\nopen('/home/me/x')"), "/home/me"),
        (edit(6, "[gone](missing.md)"), "does not exist"),
        (edit(14, "## The end"), "takeaways"),
        (edit(15, "print(p.flag, p.sizes, p.mode)"), "run.stamp()"),
        (edit(15, "print(p.flag, p.sizes)\nrun.stamp()"), "parameter mode is never read"),
        (lambda made: made["cells"].__delitem__(slice(6, 12)), "cells; a chapter has"),
    ],
)
def test_lint_finds(toy, change, says):
    made = good_chapter()
    change(made)
    found = findings(toy, made)
    assert any(says in line for line in found), found


# ---- the runner, with real kernels ----


def test_a_run_with_a_folder_of_its_own_leaves_the_chapters_copy_and_ledger_alone(toy, tmp_path):
    chapter, place = toy.chapter("10"), str(tmp_path / "anywhere" / "run")
    given = [{}, {"seed": 3}, {"out_dir": place}, {"seed": 3, "out_dir": place}]
    jobs = [make_job(toy, chapter, {"profile": "quick", **g}, 1) for g in given]
    names = [job.executed.stem for job in jobs]
    assert len(set(names)) == 4 and names[0] == "10_toy" and names[2] == "10_toy-elsewhere"
    assert names[3] == f"{names[1]}-elsewhere" and jobs[3].folder == tmp_path / "anywhere" / "run"


def test_wrong_input_stops_before_any_kernel_starts(toy):
    for given in ({"nn": 3}, {"n": "3"}):
        with pytest.raises(InputError):
            run_book(toy, ["10"], given=given)
    with pytest.raises(InputError, match="jobs"):
        run_book(toy, ["10"], jobs=0)
    assert not (toy.root / "runs").exists()


@pytest.mark.parametrize("place", ["taken", "taken/below"])
def test_a_folder_that_cannot_be_made_stops_before_any_kernel_starts(toy, tmp_path, place):
    (tmp_path / "taken").write_text("")
    with pytest.raises(InputError, match="out_dir: cannot make") as caught:
        run_book(toy, ["10"], given={"out_dir": str(tmp_path / place)})
    assert "\n" not in str(caught.value) and not (toy.root / "runs").exists()


@pytest.mark.parametrize("value", ["foo", "", ["embedded", "foo"]])
def test_a_mistyped_model_is_refused_and_others_are_left_to_the_loader(tmp_path, value):
    from paclab.models import SHIPPED

    with pytest.raises(InputError, match="model: no model"):
        check_models("model", value, tmp_path)
    assert set(SHIPPED_MODELS) == set(SHIPPED)
    (tmp_path / "mine").mkdir()
    for model in ("embedded", "masked", "mine", "hub:gpt2", "owner/name", None, ["masked", "mine"]):
        check_models("model", model, tmp_path)


@pytest.mark.slow
def test_runner_skips_what_is_up_to_date_and_mends_what_is_published(toy):
    said: list[str] = []
    first = run_book(toy, ["10"], say=said.append)
    assert [o.status for o in first] == ["OK"], first
    assert read_ledger(toy.root, "quick")["10_toy"]["peak_mb"] > 10
    assert status(toy, toy.chapter("10"), "quick") == "up to date"
    entry = read_manifest(toy.root, "quick")["10_toy"]
    assert set(entry["artefacts"]) == {"line.png", "numbers.csv", "numbers.tex"}
    manifest = (toy.root / "figures" / "quick" / "MANIFEST.json").read_text()
    executed = (toy.root / "runs" / "quick" / "executed" / "10_toy.ipynb").read_text()
    for text in (manifest, executed):
        assert str(toy.root) not in text

    published = toy.root / "figures" / "quick" / "10_toy" / "numbers.csv"
    good = published.read_bytes()
    published.write_text("tampered")
    assert [o.status for o in run_book(toy, ["10"], say=said.append)] == ["up to date"]
    assert published.read_bytes() == good, "a damaged copy is mended from the run"

    artefact = toy.root / "runs" / "quick" / "10_toy" / "numbers.csv"
    artefact.write_text("tampered")
    assert status(toy, toy.chapter("10"), "quick") == "stale"
    artefact.write_bytes(good)
    write(toy.root, "10_toy", [*TOY[:-1], "print(1)", TOY[-1]])
    assert status(toy, toy.chapter("10"), "quick") == "stale", "an edited notebook is stale"


@pytest.mark.slow
def test_bad_chapters_are_red_side_by_side_each_with_its_reason(toy):
    said: list[str] = []
    outcomes = run_book(toy, ["20", "21", "22", "23"], jobs=3, say=said.append)
    stories = {o.label: " ".join(o.story) for o in outcomes}
    assert {o.status for o in outcomes} == {"RED"}
    assert "two is three" in stories["20_red"] and "cell" in stories["20_red"]
    assert "ghost.csv" in stories["21_gap"]
    assert (
        "kernel died" in stories["22_dead"]
        and "import os" in stories["22_dead"]
        and "GB" in stories["22_dead"]
    )
    assert "run.stamp()" in stories["23_silent"]
    assert not read_manifest(toy.root, "quick"), "nothing red is published"
    assert (toy.root / "runs" / "quick" / "executed" / "20_red.ipynb").exists(), (
        "the partial notebook is kept"
    )


@pytest.mark.slow
def test_bare_papermill_from_anywhere_gives_the_same_bytes(toy, tmp_path):
    chapter = toy.chapter("10")
    ours = run_tasks(toy, [(chapter, {"profile": "quick", "seed": 3})], say=lambda line: None)
    assert ours[0].status == "OK" and not read_manifest(toy.root, "quick"), (
        "changed parameters are not published"
    )
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    command = [
        sys.executable,
        "-m",
        "papermill",
        str(toy.notebook(chapter)),
        "out.ipynb",
        "--no-progress-bar",
    ]
    environment = {k: v for k, v in os.environ.items() if k != "PACLAB_HEADLESS"}
    done = subprocess.run(
        [*command, "-p", "seed", "3", "-p", "out_dir", "here"],
        cwd=elsewhere,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    folder = next((toy.root / "runs" / "quick").glob("10_toy-*"))
    for name in ("line.png", "numbers.csv", "numbers.tex"):
        assert (folder / name).read_bytes() == (elsewhere / "here" / name).read_bytes(), name

    wrong = subprocess.run(
        [*command, "-p", "sed", "3"], cwd=elsewhere, env=environment, capture_output=True, text=True
    )
    assert wrong.returncode != 0 and "did you mean 'seed'" in wrong.stderr
