"""What a run promises follows from its settings: a run.json that says otherwise is found out, with and without pool."""

import json

import pytest

from paclab import finetune
from paclab.finetune import Config
from paclab.verify import verify

DP = {"epsilon": 8.0, "clip": 5.0, "sampling": 0.2, "accountant": "rdp-published"}
SILENT = {"noise_std": 0, "noise_multiplier": 0}
MADE_UP = "(0.1, 1e-9)-differential privacy for one record"
FORGERIES = [({"method": "mezo"}, {"private": True, "guarantee": MADE_UP}, {}, "guarantee, private"),
             ({"method": "paczero-mi", "mi": 0.3}, {"private": True, "guarantee": "I = 0 for everyone"}, {},
              "guarantee, private"),
             ({"method": "dpzero"} | DP, {"private": True, "guarantee": MADE_UP}, SILENT,
              "guarantee, private, release"),
             ({"method": "dp-aggzo", "k": 2, "normaliser": "private", "rule": "sage", "warmup": 1} | DP, {},
              SILENT | {"normaliser": "0"}, "release")]


@pytest.mark.parametrize(("options", "said", "release", "differs"), FORGERIES,
                         ids=[options["method"] for options, *_ in FORGERIES])
def test_a_forged_promise_is_found(options, said, release, differs, tmp_path, tiny_model):
    given = {"pool": 16, "candidates": 4, "steps": 2, "dev": 4, "test": 6, "model": str(tiny_model), "study": True,
             "source": f"{tiny_model}/films.csv"}
    folder = tmp_path / "run"
    finetune.start(Config(**given | options), folder, device="cpu", stop_at=2)
    assert [f.text for f in verify(folder) if not f.ok] == []
    run = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(run | said | {"release": run["release"] | release}))
    public = [f.text for f in verify(folder) if not f.ok]
    assert (public[0] == "guarantee and privacy are those that the settings give") == bool(said)
    assert any("steps cost epsilon" in text for text in public) == bool(release)
    audited = [f.text for f in verify(folder, pool=True) if not f.ok]
    assert public[0] in audited and any(text.endswith(f"but for: {differs}") for text in audited)
