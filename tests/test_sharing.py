"""K directions share work on a real model: the numbers are the plain loop's, whatever the threads."""

import numpy as np
import pytest
import torch

from paclab import finetune, lora, models
from paclab.finetune import Config
from paclab.releases.secret import Secret
from paclab.zo.probe import all_differences
from paclab.zo.train import probe

SMALL = {"method": "dp-aggzo", "k": 5, "epsilon": 6.0, "clip": 10.0, "accountant": "rdp-published", "pool": 60,
         "sampling": 0.3, "steps": 4, "dev": 10, "test": 20, "study": True}


def ready(**options):
    return finetune.prepare(Config(**SMALL | options), Secret.from_seed(0), device="cpu").job


def test_copies_of_the_model_give_the_same_bits():
    job = ready()
    plain = probe(job._replace(copies=None), 1)
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        assert np.array_equal(probe(job, 1), plain)
    twin = job.copies(1)[0]
    assert twin.live.keys() == job.weights.live.keys()
    assert not {t.data_ptr() for t in twin.live.values()} & {t.data_ptr() for t in job.weights.live.values()}


@pytest.mark.parametrize("task", ["sentiment", "lm"])
def test_stacked_adapters_are_the_plain_loop_to_rounding(task):
    """Losses of about 1 nat carry a float32 error of about 1e-6, which 2 mu = 2e-3 turns into about 1e-3."""
    job = ready(track="lora", task=task)
    for k in (5, 1):
        given = job._replace(k=k)
        batch = given.release.select(1)
        plain = all_differences(given.losses, batch, given.weights, given.directions, 1, k, given.mu)
        shared = probe(given, 1)
        assert shared.shape == plain.shape == (k, len(batch))
        assert np.abs(shared - plain).max() < 5e-3 < 0.02 < np.abs(plain).mean()
        torch.set_num_threads(2)
        assert np.array_equal(probe(given, 1), shared)
        torch.set_num_threads(1)


def test_stacks_leave_the_adapters_as_they_were():
    job = ready(track="lora")
    before, digest = job.losses(np.arange(20)), job.weights.digest()
    probe(job, 0)
    assert np.array_equal(job.losses(np.arange(20)), before) and job.weights.digest() == digest


def test_folded_and_side_branch_adapters_agree():
    model = models.load("embedded", "cpu")
    generator = torch.Generator().manual_seed(1)
    for tensor in lora.attach(model).values():
        tensor.add_(torch.randn(tensor.shape, generator=generator) * 0.05)
    ids = torch.arange(400).view(4, 100) % 4096
    with torch.no_grad():
        folded = model.module(ids).logits
        for module in model.module.modules():
            if isinstance(module, lora.Adapted):
                assert module.folds
                module.folds = False
        assert torch.allclose(model.module(ids).logits, folded, atol=1e-4)


@pytest.mark.parametrize("track", ["ft", "lora"])
def test_a_resumed_run_shares_the_same_work(track, tmp_path):
    """Stopped after any step and resumed with other threads: the public and the private files are the same bytes."""
    config = Config(**SMALL, track=track)
    finetune.start(config, tmp_path / "whole", device="cpu")
    finetune.start(config, tmp_path / "parts", device="cpu", stop_at=2)
    torch.set_num_threads(2)
    finetune.resume(tmp_path / "parts")
    for name in ("run.json", "transcript.txt", "test.npy", "private/ledger.jsonl"):
        assert (tmp_path / "parts" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name
