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
