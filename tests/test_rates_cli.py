"""The commands `paclab rates identify` and `paclab rates generate`: numbers, JSON, one-line errors."""

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from paclab.cli import build
from paclab.errors import InputError
from paclab.rates import generation
from paclab.rates.identification import id_exact

RUNNER = CliRunner()


def rows(*words):
    result = RUNNER.invoke(build(), ["rates", *words, "--json"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.output)
    return {row["what"]: row["log10"] for row in report["rows"]}, report


def test_identify_prints_lower_exact_upper_in_order():
    found, report = rows("identify", "--n", "800", "--eps", "1", "--f", "6", "--delta", "1e-6")
    assert 10 ** found["exact, eps-DP"] == pytest.approx(0.5 * id_exact(800, 0.1, 0.6, 6, 1.0).value, rel=1e-9)
    worse = max(found["exact, eps-DP"], found["exact, mirrored law"])
    assert found["lower bound, any eps-DP rule"] <= worse
    assert found["exact, eps-DP"] <= found["upper bound, eps-DP"]
    assert found["exact, Gaussian"] <= found["upper bound, Gaussian"]
    assert "replace" in report["setting"] and "n = 800" in report["setting"]


def test_generate_prints_lower_exact_upper_in_order():
    found, _ = rows("generate", "--n", "400", "--eps", "1", "--delta", "1e-3")
    assert 10 ** found["exact, eps-DP"] == pytest.approx(0.021856, rel=1e-4)
    assert found["lower bound, any eps-DP rule"] <= found["exact on these two laws"]
    assert found["exact, eps-DP"] <= found["upper bound, eps-DP"]
    assert found["exact, Gaussian"] <= found["upper bound, Gaussian"]


def test_families_and_the_pair_search():
    found, report = rows("identify", "--family", "residues", "--n", "40", "--f", "10")
    assert found["exact, eps-DP"] <= found["upper bound, eps-DP"] and "exact" in report["rows"][0]["note"]
    found, _ = rows("generate", "--family", "generation-example", "--n", "60", "--window", "7", "--pairs")
    assert found["exact, eps-DP"] <= found["upper bound, eps-DP"]
    found, report = rows("generate", "--family", "generation-example", "--n", "150", "--samples", "500")
    low, high = report["rows"][0]["interval"]
    assert (low is None or low <= found["exact, eps-DP"]) and found["exact, eps-DP"] <= high
    assert "Rao-Blackwell" in report["rows"][0]["note"]


def test_plain_table():
    result = RUNNER.invoke(build(), ["rates", "generate"])
    assert result.exit_code == 0 and "terms: coverage" in result.output and "n 2^-n" in result.output


@pytest.mark.parametrize(
    ("words", "parameter"),
    [
        (("identify", "--n", "2.5"), "n"),
        (("identify", "--n", "-3"), "n"),
        (("identify", "--eps", "0"), "eps"),
        (("identify", "--f", "1"), "f"),
        (("identify", "--delta", "1"), "delta"),
        (("identify", "--family", "x"), "family"),
        (("identify", "--family", "co-singletons"), "family"),
        (("identify", "--alpha", "0.9"), "beta"),
        (("identify", "--adjacency", "swap"), "adjacency"),
        (("identify", "--n", "1e308"), "n"),
        (("identify", "--n", "1e15"), "n"),
        (("identify", "--seed", "-1"), "seed"),
        (("identify", "--samples", "-1"), "samples"),
        (("identify", "--family", "residues", "--samples", "1000000000000"), "samples"),
        (("generate", "--masses", "a,b"), "masses"),
        (("generate", "--masses", ""), "masses"),
        (("generate", "--masses", "nan"), "masses"),
        (("generate", "--masses", "0.5,0"), "masses"),
        (("generate", "--masses", "0.9,0.9"), "masses"),
        (("generate", "--masses", "1e-320"), "masses"),
        (("generate", "--n", "1e18"), "n"),
        (("generate", "--window", "7"), "window"),
        (("generate", "--pairs"), "pairs"),
        (("generate", "--bad", "0"), "bad"),
        (("generate", "--g", "500"), "g"),
        (("generate", "--n", "10"), "n"),
        (("generate", "--family", "multiples"), "family"),
        (("generate", "--family", "generation-example", "--window", "3"), "window"),
        (("generate", "--family", "generation-example", "--window", "99999999"), "window"),
        (("generate", "--family", "generation-example", "--seed", "-1"), "seed"),
        (("generate", "--family", "generation-example", "--n", "1e18"), "n"),
    ],
)
def test_bad_input_names_the_parameter(words, parameter):
    result = RUNNER.invoke(build(), ["rates", *words])
    assert isinstance(result.exception, InputError) and result.exception.parameter == parameter
    assert "\n" not in str(result.exception) and len(str(result.exception)) < 200


def test_the_largest_sample_is_computed():
    found, _ = rows("generate", "--n", "1e6", "--masses", "0.001")
    assert found["exact, eps-DP"] <= found["upper bound, eps-DP"]


def test_an_estimate_does_not_depend_on_how_many_draws_are_evaluated_at_once(monkeypatch):
    words = ("generate", "--family", "generation-example", "--n", "150", "--samples", "501")
    at_once, _ = rows(*words)
    monkeypatch.setattr(generation, "_DRAWS", 100)
    in_parts, _ = rows(*words)
    assert in_parts["exact, eps-DP"] == pytest.approx(at_once["exact, eps-DP"], rel=1e-12)


def test_the_command_line_prints_one_line_and_exits_with_2():
    code = "import sys; from paclab.cli import main; sys.argv[0] = 'paclab'; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "rates", "identify", "--eps", "-1"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "eps" in done.stderr
