"""The loop: durable steps, identical results after a kill anywhere, and a transcript that is enough."""

import json
import os
import stat

import numpy as np
import pytest
import torch

from paclab.errors import InputError
from paclab.privacy import consensus
from paclab.releases.paczero import Settings, paczero
from paclab.releases.secret import Secret
from paclab.zo import transcript
from paclab.zo.directions import Directions
from paclab.zo.probe import Weights
from paclab.zo.train import Folder, Job, ledger_lines, train
from paclab.zo.update import linear

RECORDS, STEPS = 30, 12


def job(variant="mi", k=2, seed=0):
    targets = torch.from_numpy(np.random.default_rng(1).normal(1, 1, (RECORDS, 7))).float()
    live = {"b": torch.zeros(3), "a": torch.zeros(4)}

    def losses(batch=None):
        theta = torch.cat([live["a"], live["b"]])
        return (targets - theta).double().pow(2).sum(1).numpy()

    directions = Directions(77)
    membership = consensus.complementary_halves(RECORDS, 8, np.random.default_rng(0))
    release = paczero(Settings(variant, membership, Secret.from_seed(seed), directions.coin, STEPS, k=k,
                               total=0.3 if variant != "zpl" else 0.0))
    return Job(losses, Weights(live), directions, release, linear(0.1, STEPS), STEPS, k)


class Killed(BaseException):
    pass


def contents(folder):
    return {p.relative_to(folder.path).as_posix(): p.read_bytes() for p in folder.path.rglob("*")
            if p.is_file() and p.name != "lock"}


def evaluate(target):
    return lambda: {"dev_loss": float(target.losses().mean())}


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    whole, folder = job(), Folder(tmp_path_factory.mktemp("whole"))
    train(whole, folder, evaluate=evaluate(whole), eval_every=3)
    return contents(folder), whole.weights.digest()


@pytest.mark.parametrize("kill_at", range(0, 29, 2))
def test_a_kill_at_any_durable_write_resumes_to_the_same_bytes(kill_at, tmp_path, monkeypatch, reference):
    """Every append is a possible place to die: before it, and after half of it is on the disk."""
    folder, count = Folder(tmp_path / "run"), [0]
    honest = transcript.append

    def dying(path, text, mode=0o644):
        if count[0] == kill_at:
            honest(path, text[: len(text) // 2], mode)
            raise Killed
        count[0] += 1
        honest(path, text, mode)

    monkeypatch.setattr(transcript, "append", dying)
    first = job()
    with pytest.raises(Killed):
        train(first, folder, evaluate=evaluate(first), eval_every=3)
    monkeypatch.setattr(transcript, "append", honest)
    second = job()
    train(second, folder, evaluate=evaluate(second), eval_every=3)
    assert contents(folder) == reference[0] and second.weights.digest() == reference[1]


def test_stopping_and_going_on_is_one_run(tmp_path, reference):
    folder = Folder(tmp_path)
    for stop in (1, 5, 5, None):
        part = job()
        train(part, folder, evaluate=evaluate(part), eval_every=3, stop_at=stop)
    assert contents(folder) == reference[0]


def test_the_transcript_alone_rebuilds_the_weights(tmp_path):
    for variant in ("mi", "rr", "zpl"):
        trained, folder = job(variant), Folder(tmp_path / variant)
        train(trained, folder)
        bare = Weights({"a": torch.zeros(4), "b": torch.zeros(3)})  # other order, no data, no secret
        rebuilt = transcript.replay(bare, Directions(77), transcript.read(folder.transcript, 2))
        assert rebuilt.weights.digest() == trained.weights.digest()
        assert trained.losses().mean() < job().losses().mean()


def test_the_update_sees_only_what_was_released(tmp_path):
    """Two pools that lead to the same released bits lead to the same weights."""
    one, two = job("zpl", k=1), job("zpl", k=1)
    scaled = two._replace(losses=lambda batch: 3.0 * two.losses())  # other private values, the same signs
    train(one, Folder(tmp_path / "1"))
    train(scaled, Folder(tmp_path / "2"))
    assert one.weights.digest() == scaled.weights.digest()
    assert ledger_lines(Folder(tmp_path / "1")) != ledger_lines(Folder(tmp_path / "2"))


def test_a_value_once_drawn_is_published_not_drawn_again(tmp_path):
    folder = Folder(tmp_path)
    train(job(), folder, stop_at=4)
    lines = folder.transcript.read_text().splitlines(keepends=True)
    folder.transcript.write_text("".join(lines[:-1]))  # killed between the ledger and the transcript
    changed = job()._replace(losses=lambda batch: np.full(RECORDS, np.nan))  # nothing may be probed for step 3
    train(changed, folder, stop_at=4)
    assert folder.transcript.read_text().splitlines(keepends=True) == lines


def test_private_files_are_closed_and_public_ones_carry_no_private_field(tmp_path):
    folder = Folder(tmp_path)
    train(job(), folder, evaluate=lambda: {"dev_loss": 1.0})
    assert stat.S_IMODE(os.stat(folder.private).st_mode) == 0o700
    assert stat.S_IMODE(os.stat(folder.ledger).st_mode) == 0o600
    for line in transcript.read(folder.transcript):
        assert len(line) == 3 and all(v in (-1.0, 0.0, 1.0) for v in line.values)
    assert {key for text in folder.metrics.read_text().splitlines() for key in json.loads(text)} == {"step", "dev_loss"}


@pytest.mark.parametrize(("old", "new", "message"), [
    ("3 ", "4 ", "line 4 is out of place"), ("\n2 ", "\n2 x", "line 3"), (" 1", " 1.0", "altered"),
])
def test_tampered_transcripts_are_refused(tmp_path, old, new, message):
    folder = Folder(tmp_path)
    train(job(), folder)
    folder.transcript.write_text(folder.transcript.read_text().replace(old, new, 1))
    with pytest.raises(InputError, match=message):
        train(job(), folder)


def test_flipped_bits_and_lost_ledgers_are_refused(tmp_path):
    folder = Folder(tmp_path)
    train(job(), folder)
    text = folder.transcript.read_text()
    first = text.splitlines()[0]
    flipped = first[:-1] + ("2" if first[-1] == "1" else "1")
    folder.transcript.write_text(text.replace(first, flipped, 1))
    with pytest.raises(InputError, match="differs from the private ledger"):
        train(job(), folder)
    folder.transcript.write_text(text)
    folder.ledger.unlink()
    with pytest.raises(InputError, match="cannot be drawn again"):
        train(job(), folder)


def test_only_one_process_advances_a_run(tmp_path):
    folder = Folder(tmp_path)
    with folder.locked(), pytest.raises(InputError, match="another process"):
        train(job(), folder)
