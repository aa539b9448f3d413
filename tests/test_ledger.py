"""The curator's ledger: charged whole at the start, private, and clear about what adds up."""

import json
import stat
import sys
from multiprocessing.pool import ThreadPool
from types import SimpleNamespace

import pytest

from paclab import cli, finetune, ledger
from paclab.errors import InputError
from paclab.finetune import Config
from paclab.privacy import dp

SMALL = {"pool": 40, "candidates": 8, "steps": 2, "dev": 10, "test": 10}
RECORDS = [{"sentence": f"film {i}", "label": i % 2} for i in range(40)]
PRIVATE = SimpleNamespace(private=True, public={"sampling": 0.3, "noise_multiplier": 4.0})


def dp_config(**options):
    return Config(**SMALL | {"method": "dpzero", "epsilon": 2.0, "clip": 1.0, "accountant": "rdp-published"} | options)


@pytest.fixture
def file(tmp_path, monkeypatch):
    path = tmp_path / "state" / "queries.jsonl"
    monkeypatch.setenv(ledger.VARIABLE, str(path))
    return path


def test_default_place(monkeypatch, tmp_path):
    monkeypatch.delenv(ledger.VARIABLE)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert ledger.place() == tmp_path / "paclab" / "queries.jsonl"
    monkeypatch.delenv("XDG_STATE_HOME")
    assert ledger.place().parts[-4:] == (".local", "state", "paclab", "queries.jsonl")
    monkeypatch.setenv(ledger.VARIABLE, "")  # as good as unset: only a word switches it off
    assert ledger.place().parts[-4:] == (".local", "state", "paclab", "queries.jsonl")
    monkeypatch.setenv(ledger.VARIABLE, "off")
    assert ledger.place() is None


def test_a_killed_run_is_charged_whole_and_a_resumed_one_not_again(file, tmp_path):
    finetune.start(Config(**SMALL, method="paczero-rr", mi=0.3), tmp_path / "run", device="cpu", stop_at=1)
    key, queries = ledger.read(file)
    assert [(q["method"], q["nats"], q["steps"]) for q in queries] == [("paczero-rr", 0.3, 2)]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    finetune.resume(tmp_path / "run")
    finetune.start(Config(**SMALL, study=True), tmp_path / "study", device="cpu")
    assert ledger.read(file) == (key, queries)
    public = (tmp_path / "run" / "run.json").read_text()
    assert key not in public and queries[0]["universe"] not in public


def dies(*args, **options):
    raise KeyboardInterrupt


def test_the_charge_is_written_before_the_first_probe(file, tmp_path, monkeypatch):
    monkeypatch.setattr(finetune, "train", dies)
    with pytest.raises(KeyboardInterrupt):
        finetune.start(dp_config(), tmp_path / "run", device="cpu")
    assert ledger.read(file)[1][0]["epsilon"] == 2.0


def test_a_run_killed_before_its_charge_is_charged_when_it_is_resumed(file, tmp_path, monkeypatch):
    with monkeypatch.context() as kill, pytest.raises(KeyboardInterrupt):
        kill.setattr(ledger, "charge", dies)
        finetune.start(Config(**SMALL), tmp_path / "run", device="cpu")
    assert (tmp_path / "run" / "run.json").exists() and not file.exists()
    file.mkdir(parents=True)  # a ledger that cannot be written: the run neither goes on nor is lost
    with pytest.raises(InputError, match="cannot be counted"):
        finetune.resume(tmp_path / "run")
    assert not (tmp_path / "run" / "transcript.txt").exists()
    file.rmdir()
    assert finetune.resume(tmp_path / "run")["status"] == "complete"
    assert [q["method"] for q in ledger.read(file)[1]] == ["paczero-zpl"]


def test_a_run_that_cannot_be_counted_does_not_begin(file, tmp_path, monkeypatch, capsys):
    file.mkdir(parents=True)
    words = ["train", "--device", "cpu", *(f"--{name}={value}" for name, value in SMALL.items())]
    monkeypatch.setattr(sys, "argv", ["paclab", *words, "--out", str(tmp_path / "run")])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    error = capsys.readouterr().err
    assert stop.value.code == 2 and error.startswith("paclab: PACLAB_LEDGER: this run cannot be counted in ")
    assert "PACLAB_LEDGER=off" in error and error.count("\n") == 1
    assert not {"run.json", "transcript.txt"} & {p.name for p in (tmp_path / "run").iterdir()}
    monkeypatch.setenv(ledger.VARIABLE, "off")
    cli.main()  # the folder is still free
    assert "run folder" in capsys.readouterr().out


def test_a_run_killed_before_it_began_is_begun_again(file, tmp_path, monkeypatch, capsys):
    with monkeypatch.context() as kill, pytest.raises(KeyboardInterrupt):
        kill.setattr(finetune, "write_atomic", dies)
        finetune.start(Config(**SMALL), tmp_path / "run", device="cpu")
    secret = tmp_path / "run" / "secret" / "secret.json"
    before = secret.read_text()
    monkeypatch.setattr(sys, "argv", ["paclab", "resume", str(tmp_path / "run")])
    with pytest.raises(SystemExit):
        cli.main()
    error = capsys.readouterr().err
    assert "nothing was drawn; begin it again with `paclab train`" in error and error.count("\n") == 1
    assert finetune.start(Config(**SMALL), tmp_path / "run", device="cpu")["status"] == "complete"
    assert secret.read_text() != before and len(ledger.read(file)[1]) == 1


def test_universes_are_named_by_their_records_under_a_key():
    name = ledger.universe(RECORDS, "ab" * 32)
    assert name == ledger.universe(RECORDS[::-1], "ab" * 32)
    assert name != ledger.universe(RECORDS[1:], "ab" * 32) != ledger.universe(RECORDS, "cd" * 32)


def charged(config, run, private=PRIVATE):
    return ledger.charge(config, private, RECORDS, "x", {"directions": run})


def test_many_writers_and_a_torn_line_leave_every_charge(file):
    with ThreadPool(8) as pool:
        assert all(pool.map(lambda i: charged(dp_config(), i % 24), range(48)))  # each run asks twice
    assert len(ledger.read(file)[1]) == 24
    with open(file, "a") as handle:
        handle.write('{"universe": "torn')
    assert len(ledger.read(file)[1]) == 24 and charged(dp_config(), 24) and charged(dp_config(), 7)
    assert len(ledger.read(file)[1]) == 25 and len({q["universe"] for q in ledger.read(file)[1]}) == 1


def entries(*options):
    return [ledger.query(dp_config(**option), PRIVATE, "x") for option in options]


def test_epsilons_compose_and_nats_do_not():
    two = ledger.total(entries({}, {}))
    sums = two.epsilons["add-remove"]
    assert sums["basic"] == 4.0 and sums["delta"] == 2e-5
    assert sums["composed"] == pytest.approx(dp.epsilon(4.0, 0.3, 4, 2e-5), rel=1e-3)  # 2 runs of 2 steps
    pac = [{"method": "paczero-rr", "private": True, "nats": n} for n in (0.1, 0.3, 0.0)]
    both = ledger.total([*pac, *entries({}), {"method": "mezo", "private": False}])
    assert (both.queries, both.largest_nats, both.sum_nats, both.without_promise) == (5, 0.3, pytest.approx(0.4), 1)
    assert both.outside_nats == {"dpzero": 1, "mezo": 1}


def test_no_epsilon_holds_after_a_run_that_none_bounds():
    """PACZero's unanimous signs are a fixed function of the pool; a coin that looks at no record is bounded by all."""
    coin = {"method": "random-sign", "private": True, "nats": 0.0}
    assert ledger.total([*entries({}), coin]).epsilons["add-remove"]["basic"] == 2.0
    for private, method in ((True, "paczero-zpl"), (True, "paczero-mi"), (False, "mezo"), (False, "quant-half")):
        run = {"method": method, "private": private} | ({"nats": 0.0} if private else {})
        both = ledger.total([*entries({}), coin, run])
        assert both.epsilons == {} and both.outside_epsilon == {method: 1}


def test_promises_under_two_adjacencies_compose_under_each():
    """Both are (2, 1e-5), q = 0.064, T = 1000: under replace-one the first alone is 4.253, and the two 4.693."""
    noise = (4.143474343983381, 8.067261562907852)
    plain, replaced = [entry | {"multiplier": multiplier, "sampling": 0.064, "steps": 1000} for entry, multiplier
                       in zip(entries({}, {"adjacency": "replace-one"}), noise, strict=True)]
    both = ledger.total([plain, replaced])
    assert {name: sums["delta"] for name, sums in both.epsilons.items()} == {"add-remove": 2e-5, "replace-one": 2e-5}
    assert both.epsilons["add-remove"]["composed"] == pytest.approx(2.171, abs=1e-3)
    assert both.epsilons["replace-one"]["composed"] == pytest.approx(4.693, abs=1e-3)
    assert both.epsilons["replace-one"]["basic"] == pytest.approx(4.253 + 2, abs=1e-3)
    assert both.epsilons["add-remove"]["basic"] > 2.171
    assert ledger.total([plain]).epsilons.keys() == {"add-remove"}


def test_replace_one_and_pure_runs_have_their_own_totals():
    replaced = ledger.total(entries({"adjacency": "replace-one"}, {"adjacency": "replace-one"}, {}))
    for name, sums in replaced.epsilons.items():
        assert sums["composed"] == pytest.approx(dp.epsilon(4.0, 0.3, 6, sums["delta"], "pld", name), rel=1e-3)
    assert set(replaced.epsilons) == set(dp.ADJACENCIES)
    laplace = {"method": "dp-zo", "noise": "laplace"}
    pure = ledger.total(entries(*[laplace] * 3))
    assert pure.epsilons["add-remove"] == {"basic": 6.0, "delta": 0.0, "composed": 6.0}
    mixed = ledger.total(entries(laplace, {"adjacency": "replace-one"})).epsilons["replace-one"]
    pure = dp.laplace_epsilon(4.0, 0.3, 2, adjacency="replace-one")
    assert mixed["basic"] == pytest.approx(2.0 + pure) and mixed["composed"] > pure


def test_an_uncertified_promise_counts_by_its_noise():
    """The published factor 2 under replace-one promises what pld does not certify: 4.0 of noise cost more than 0.1."""
    said = ledger.total([entry | {"epsilon": 0.1} for entry in entries({"adjacency": "replace-one"})])
    assert said.epsilons["replace-one"]["basic"] == dp.epsilon(4.0, 0.3, 2, 1e-5, "pld", "replace-one") > 0.1


def test_mixed_noise_composes_below_the_sum():
    runs = [dp.Run(4.0, 0.3, 2), dp.Run(3.0, 0.1, 50, "laplace")]
    whole = dp.composed_epsilon(runs, 1e-5)
    assert whole <= dp.epsilon(4.0, 0.3, 2, 5e-6) + dp.laplace_epsilon(3.0, 0.1, 50, 5e-6)
    assert whole >= dp.epsilon(4.0, 0.3, 2, 1e-5)


def test_the_command(file, tmp_path, monkeypatch, capsys):
    def paclab(*words):
        monkeypatch.setattr(sys, "argv", ["paclab", "ledger", *words])
        cli.main()
        return capsys.readouterr().out

    assert "no universe was queried yet" in paclab()
    for name, config in (("a", Config(**SMALL)), ("b", dp_config()), ("c", dp_config(seed=5))):
        finetune.start(config, tmp_path / name, device="cpu", stop_at=1)
    whole, one = paclab(), paclab("--pool", str(tmp_path / "b"))
    assert whole.count("was queried") == 2 and one.count("was queried 2 times") == 1
    assert "each run draws its own" in one and "nats: dpzero (1 run) looked at the whole pool" in one
    assert "epsilon: none holds" in one and "bounds what was released by paczero-zpl (1 run)\n" in one
    assert "by adding up" not in one and "epsilon (add-remove): 2 by adding up" in paclab("--pool", str(tmp_path / "c"))
    shown = json.loads(paclab("--json", "--pool", str(tmp_path / "c")))
    assert [group["total"]["queries"] for group in shown.values()] == [1]


def test_a_file_that_is_no_ledger_is_one_line(tmp_path):
    (tmp_path / "notes").write_text("hello\n")
    with pytest.raises(InputError, match="is no ledger"):
        ledger.read(tmp_path / "notes")


def test_another_file_is_never_written_into(file):
    file.parent.mkdir()
    for text in ("one line", "hello\nworld", '{"a": 1}\n{"b"'):
        file.write_text(text)
        with pytest.raises(InputError, match="it is no ledger"):
            charged(dp_config(), 0)
        assert file.read_text() == text


@pytest.mark.parametrize("damage", [{"private": None}, {"nats": "x"}, {"nats": float("nan")}, {"nominal": 1},
                                    {"method": None}, {"steps": 0}, {"epsilon": 2.0}])
def test_an_entry_that_cannot_be_added_is_one_line(damage, file, monkeypatch, capsys):
    entry = ledger.query(Config(**SMALL), PRIVATE, "x") | {"universe": "ab"} | damage
    file.parent.mkdir()
    file.write_text("".join(json.dumps(line) + "\n" for line in (
        {"format": 1, "key": "ab" * 32}, {name: value for name, value in entry.items() if value is not None})))
    monkeypatch.setattr(sys, "argv", ["paclab", "ledger", "--file", str(file)])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    error = capsys.readouterr().err
    assert stop.value.code == 2 and error.startswith("paclab: --file: ") and error.count("\n") == 1


def test_nominal_budgets_and_told_halves_are_named(file, monkeypatch, capsys):
    paper = {"compat": "paczero"}
    for i, option in enumerate(({"method": "paczero-rr", "mi": 0.3} | paper, paper, {"method": "quant-half"})):
        assert charged(Config(**SMALL | option), i, SimpleNamespace(private=i < 2, public=None))
    assert [q.get("nominal") for q in ledger.read(file)[1]] == [True, False, None]  # zero nats are zero in any mode
    monkeypatch.setattr(sys, "argv", ["paclab", "ledger"])
    cli.main()
    shown = capsys.readouterr().out
    assert "nats: 1 of these budgets nominal" in shown and "quant-half (1 run) tells its own half" in shown
    assert "epsilon" not in shown and "1 of them without a promise" in shown
