"""The command line as a person meets it: every mistake one line in the words that were typed, never a traceback."""

import math
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from paclab import cli, finetune
from paclab.cli import messages
from paclab.errors import InputError
from paclab.finetune import Config
from paclab.sources import COLUMNS

SMALL = {"pool": 40, "candidates": 8, "steps": 4, "dev": 20, "test": 60}
PROGRAM = [sys.executable, "-c", "from paclab.cli import main; main()"]
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
FLAGS = ["--pool", "40", "--candidates", "8", "--dev", "20", "--test", "60", "--study"]


def paclab(monkeypatch, capsys, *words: object) -> tuple[int, str, str]:
    """Exit status, standard output and standard error of a command."""
    monkeypatch.setattr(sys, "argv", ["paclab", *map(str, words)])
    status = 0
    try:
        cli.main()
    except SystemExit as stop:
        status = stop.code
    out, err = capsys.readouterr()
    return status, out, err


UNREADABLE = [
    (["train", "--out", "x", "--pool", "12x"],
     "--pool: '12x' is not a whole number; give --pool NUMBER: records N in the pool"),
    (["train", "--out", "x", "--steps", "1e3"], "--steps: '1e3' is not a whole number; give --steps NUMBER"),
    (["train", "--out", "x", "--lr", ""], "--lr: '' is not a number; give --lr NUMBER: learning rate"),
    (["rates", "identify", "--eps", "abc"], "--eps: 'abc' is not a number; give --eps NUMBER: privacy loss"),
    (["train"], "--out: is missing; give --out PATH: folder of the new run"),
    (["resume"], "FOLDER: is missing; give FOLDER: folder of a run that was stopped"),
    (["export", "x"], "--to: is missing; give --to PATH: new folder for the model"),
    (["train", "--out"], "--out: has no value; write a value after it"),
    (["train", "--study=yes", "--out", "x"], "--study: takes no value; leave the value out"),
    (["train", "--poool", "3", "--out", "x"], "--poool: paclab train has no such option; did you mean '--pool'?"),
    (["train", "--out", "x", "--zzz", "1"], "--zzz: paclab train has no such option; see `paclab train --help`"),
    (["verify", "x", "--jsn"], "--jsn: paclab verify has no such option; did you mean '--json'?"),
    (["trian"], "trian: paclab has no such command; did you mean 'train'?"),
    (["zzz"], "zzz: paclab has no such command; choose one of: calibrate, export, "),
    (["rates", "idntify"], "idntify: paclab rates has no such command; did you mean 'identify'?"),
    (["resume", "a", "b"], "b: paclab resume does not know what this is for; see `paclab resume --help`"),
    (["run", "--jobs", "2.5"], "--jobs: '2.5' is not a whole number; give --jobs NUMBER: notebooks side by side"),
    (["run", "--profile", "quik"], "--profile: 'quik' is not a profile; choose one of: quick, desk, paper"),
    (["run", "13", "--set", "seed"], "--set: 'seed' has no value; write --set name=value"),
    (["report", "--status", "mach"], "--status: 'mach' is no status; did you mean 'match'?"),
    (["risk"], "--mi: needs exactly one of --mi and --epsilon; give --mi 0.33, say, or --epsilon 2"),
    (["risk", "--mi", "nan"], "--mi: must be zero or more, got nan; give a number from 0 up"),
    (["calibrate", "--epsilon", "0", "--steps", "9"], "--epsilon: 0.0 is no promise; give a finite number above 0"),
    (["calibrate", "--epsilon", "2", "--steps", "0"], "--steps: 0 is not positive; give a whole number of at least 1"),
    (["calibrate", "--epsilon", "2", "--steps", "9", "--delta", "1"], "--delta: 1.0 is not in (0, 1); use 1e-5"),
    (["calibrate", "--epsilon", "2", "--steps", "9", "--sampling", "0"], "--sampling: 0.0 is no Poisson rate"),
    (["calibrate", "--epsilon", "2"], "--steps: is missing; give --steps NUMBER"),
    (["pretrain", "--out", "x", "--width", "wide"], "--width: 'wide' is not a whole number; give --width NUMBER"),
    (["train", "--out", "x", "--method", "paczero-rr", "--on-disagreement", "skip"],
     "--on-disagreement: paczero-rr answers a split vote with its own channel; "
     "give --method paczero-zpl, or leave --on-disagreement coin"),
    (["verify", "nowhere"], "FOLDER: no readable run.json in nowhere; name the folder that `paclab train` wrote"),
]


@pytest.mark.parametrize(("words", "message"), UNREADABLE, ids=[" ".join(words) for words, _ in UNREADABLE])
def test_a_mistake_is_one_line_in_the_words_that_were_typed(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    status, out, err = paclab(monkeypatch, capsys, *words)
    assert (status, out) == (2, "") and err.startswith(f"paclab: {message}") and err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_one_text_serves_notebooks_and_commands():
    import typer

    train = messages.leaf(typer.main.get_command(cli.build()), ["train", "--out", "x"])
    error = InputError("on_disagreement", "`lr` and k=2, study=True or `paclab resume` with M=4",
                       "leave `eval_every` out; see folder=x")
    assert messages.input_line(error, train) == (
        "--on-disagreement: --lr and --k 2, --study or `paclab resume` with M=4; leave --eval-every out; see --out x")
    assert str(error).startswith("on_disagreement: `lr` and k=2")
    assert messages.input_line(InputError("folder", "a", "b"), train) == "--out: a; b"
    assert messages.input_line(InputError("loss", "a\nb", "c"), train) == "loss: a b; c"


def test_a_broken_file_system_is_one_line_and_a_bug_is_not(monkeypatch, capsys):
    def fail(error):
        def command(*_, **__):
            raise error

        monkeypatch.setattr(cli.typer.main, "get_command", lambda _: type("C", (), {"main": command})())

    fail(PermissionError(13, "Permission denied", "/some/file"))
    status, _, err = paclab(monkeypatch, capsys, "list")
    assert status == 2 and err == ("paclab: /some/file: Permission denied; check that file, its folder and the free "
                                   "space\n")
    fail(OSError(28, "No space left on device"))
    assert paclab(monkeypatch, capsys, "list")[2].startswith("paclab: disk: No space left on device; ")
    fail(OSError("a bug"))
    with pytest.raises(OSError, match="a bug"):
        cli.main()


def test_the_help_of_train_says_what_a_file_must_hold(monkeypatch, capsys):
    status, out, _ = paclab(monkeypatch, capsys, "train", "--help")
    text = " ".join(out.split())
    assert status == 0 and all(f"{', '.join(columns)}" in text for columns in COLUMNS.values())
    assert all(ending in text for ending in (".csv", ".jsonl", ".json", ".parquet", ".txt", ".gz"))


def test_a_finished_run_says_so(tmp_path, monkeypatch, capsys):
    finetune.start(Config(**SMALL, study=True), tmp_path / "run", device="cpu")
    before = {p: p.read_bytes() for p in sorted(tmp_path.rglob("*")) if p.is_file()}
    status, out, err = paclab(monkeypatch, capsys, "resume", tmp_path / "run")
    assert (status, err) == (0, "") and out == f"{tmp_path / 'run'} is finished already (4 steps): nothing to do\n"
    assert before == {p: p.read_bytes() for p in sorted(tmp_path.rglob("*")) if p.is_file()}


@pytest.mark.parametrize(("mi", "noted"), [(math.log(8) - 0.01, False), (math.log(8) + 0.01, True)])
def test_a_budget_above_what_the_index_holds_is_noted(mi, noted, tmp_path, monkeypatch, capsys):
    status, _, err = paclab(monkeypatch, capsys, "train", *FLAGS, "--steps", 1, "--method", "paczero-rr", "--mi", mi,
                            "--out", tmp_path / "run")
    assert status == 0 and (err.count("\n") == 1 and "log 8 = 2.079 nats" in err if noted else err == "")


def test_a_run_on_a_local_file_and_model_is_verified_and_resumed_from_another_folder(tmp_path, monkeypatch, capsys):
    import shutil

    from paclab.models import shipped

    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir(), there.mkdir()
    (here / "films.csv").write_text("sentence,label\n" + "".join(
        f"film number {i} is {'fine' if i % 2 else 'poor'},{i % 2}\n" for i in range(140)))
    shutil.copytree(shipped("embedded"), here / "model")
    monkeypatch.chdir(here)
    words = ["--source", "films.csv", "--model", "model", "--steps", 2]
    assert paclab(monkeypatch, capsys, "train", *FLAGS, *words, "--out", "run")[0] == 0
    finetune.start(Config(**SMALL, study=True, source="films.csv"), "stopped", device="cpu", stop_at=1)
    monkeypatch.chdir(there)
    status, out, _ = paclab(monkeypatch, capsys, "verify", "../here/run", "--pool")
    assert status == 0 and "FAIL" not in out
    status, out, _ = paclab(monkeypatch, capsys, "resume", "../here/stopped")
    assert status == 0 and "4 steps" in out


def test_a_cell_on_a_local_file_is_named_by_its_contents(tmp_path, monkeypatch):
    from paclab.experiments import cell_name

    monkeypatch.chdir(tmp_path)
    names = []
    for place, text in (("a", "x"), ("b", "x"), ("a", "y")):
        (tmp_path / place).mkdir(exist_ok=True)
        (tmp_path / place / "films.csv").write_text(text)
        names.append(cell_name(Config(**SMALL, study=True, source=f"{place}/films.csv")))
    assert names[0] == names[1] != names[2]


# --- a full disk, and two processes on one folder


TINY = Config(pool=16, candidates=4, steps=16, dev=6, test=10, method="paczero-mi", mi=0.4, study=True)
TINY_FLAGS = ["--pool", "16", "--candidates", "4", "--steps", "16", "--dev", "6", "--test", "10", "--method",
              "paczero-mi", "--mi", "0.4", "--study", "--device", "cpu"]
FILES = ("run.json", "transcript.txt", "metrics.jsonl", "test.npy", "private/ledger.jsonl")


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory) -> dict[str, bytes]:
    """The public and private results of an undisturbed run."""
    folder = tmp_path_factory.mktemp("unbroken") / "run"
    finetune.start(TINY, folder, device="cpu")
    return {name: (folder / name).read_bytes() for name in FILES}


def results(folder: Path) -> dict[str, bytes]:
    """The same files of another run."""
    return {name: (folder / name).read_bytes() for name in FILES}


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 64 KiB; needs root and the right to mount."""
    place = tmp_path / "disk"
    place.mkdir()
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)],
                                      capture_output=True).returncode:
        pytest.skip("a small file system can only be mounted by root")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.mark.parametrize(("room", "began"), [(4, False), (12, False), (28, True)])
def test_a_full_disk_is_one_line_and_the_run_goes_on_afterwards(room, began, small_disk, unbroken, monkeypatch, capsys):
    """The disk is full at once, while a run begins, or after some steps: no traceback, no lost step."""
    (small_disk / "ballast").write_bytes(b"0" * (64 - room) * 1024)
    run = small_disk / "run"
    status, _, err = paclab(monkeypatch, capsys, "train", *TINY_FLAGS, "--out", run)
    assert status == 2 and err.count("\n") == 1 and err.startswith("paclab: --out: cannot write ")
    assert "No space left on device" in err
    (small_disk / "ballast").unlink()
    assert (run / "run.json").exists() == began  # a run that could not even begin leaves its folder free
    if began:
        assert 0 < (run / "transcript.txt").read_text().count("\n") < 16 and "go on with `paclab resume`" in err
    words = ["resume", run] if began else ["train", *TINY_FLAGS, "--out", run]
    assert paclab(monkeypatch, capsys, *words)[::2] == (0, "")
    assert results(run) == unbroken


def test_a_file_size_limit_stops_a_run_in_one_line_and_it_goes_on_without(tmp_path, unbroken):
    """The same without root: no file may grow over 4,000 bytes, so the private ledger stops after some steps."""
    done = subprocess.run([*PROGRAM, "train", *TINY_FLAGS, "--out", str(tmp_path / "run")], env=ENVIRONMENT, text=True,
                          capture_output=True,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4000, resource.RLIM_INFINITY)))
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "cannot write" in done.stderr
    assert 0 < (tmp_path / "run" / "transcript.txt").read_text().count("\n") < 16
    finetune.resume(tmp_path / "run")
    assert results(tmp_path / "run") == unbroken


def test_of_two_commands_begun_together_one_wins_and_the_other_is_told(tmp_path, unbroken):
    command = [*PROGRAM, "train", *TINY_FLAGS, "--out", str(tmp_path / "run")]
    processes = [subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                  text=True) for _ in range(2)]
    errors = [p.communicate()[1] for p in processes]
    (won, nothing), (lost, told) = sorted(zip([p.returncode for p in processes], errors, strict=True))
    assert (won, nothing, lost) == (0, "", 2) and told.count("\n") == 1
    assert "is being trained by another process; wait for it" in told or "already holds a run" in told
    assert results(tmp_path / "run") == unbroken


def test_a_run_in_progress_turns_others_away_and_says_how_to_go_on_when_interrupted(tmp_path, monkeypatch, capsys):
    run = tmp_path / "run"
    words = ["train", *TINY_FLAGS, "--steps", "100000", "--schedule", "constant", "--out", str(run)]
    process = subprocess.Popen([*PROGRAM, *words], env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                               text=True,  # tests in the background of a shell inherit an ignored SIGINT
                               preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    limit = time.monotonic() + 300
    while not (run / "transcript.txt").exists() and process.poll() is None and time.monotonic() < limit:
        time.sleep(0.05)
    status, _, err = paclab(monkeypatch, capsys, "resume", run)
    assert status == 2 and err == f"paclab: FOLDER: {run} is being trained by another process; wait for it\n"
    status, _, err = paclab(monkeypatch, capsys, *words)
    assert status == 2 and err.startswith(f"paclab: --out: {run} already holds a run (run.json)")
    process.send_signal(signal.SIGINT)
    try:
        told = process.communicate(timeout=120)[1]
    finally:
        process.kill()
    assert process.returncode == 130 and told == f"paclab: interrupted; go on with: paclab resume {run}\n"
