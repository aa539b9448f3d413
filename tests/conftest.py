"""Shared fixtures: offline always, one thread a test process, the real data folder when it is given."""

import os
import sys
from pathlib import Path

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"  # a test never reaches a hub
os.environ["PACLAB_LEDGER"] = "off"  # the user's ledger is none of a test's business
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


@pytest.fixture(autouse=True)
def leave_no_traces():
    """Figures, plotting style and thread count of one test never reach the next."""
    import torch

    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
    if "matplotlib" in sys.modules:
        import matplotlib.pyplot as plt

        plt.close("all")
        plt.rcdefaults()
        plt.rcParams["figure.max_open_warning"] = 20  # rcdefaults leaves this one alone


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real SST-2, SQuAD and WikiText files named by PACLAB_REAL_DATA."""
    folder = os.environ.get("PACLAB_REAL_DATA")
    if not folder:
        pytest.skip("PACLAB_REAL_DATA is not set: the real SST-2, SQuAD, WikiText files and Llama are not tested")
    return Path(folder)


@pytest.fixture(scope="session")
def embedded():
    """The embedded model; tests must leave its weights as they were."""
    from paclab import models

    return models.load("embedded", "cpu")


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory):
    """A folder with a random GPT-2 of one layer, and sixty one-line reviews."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    from paclab.pretraining.corpus import train_tokenizer

    folder = tmp_path_factory.mktemp("model")
    torch.manual_seed(0)
    module = GPT2LMHeadModel(GPT2Config(vocab_size=300, n_positions=128, n_embd=16, n_layer=1, n_head=2,
                                        bos_token_id=0, eos_token_id=0))
    module.save_pretrained(folder)
    train_tokenizer(["It was terrible", "It was great"] * 50, 300).save_pretrained(folder)
    lines = "".join(f"film {i} {'shines' if i % 2 else 'drags'} for {i * i % 17} hours,{i % 2}\n" for i in range(60))
    (folder / "films.csv").write_text("sentence,label\n" + lines)
    return folder
