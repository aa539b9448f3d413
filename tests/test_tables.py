"""Published numbers on file, the comparison's statuses, and tables as files."""

import math

import pandas as pd
import pytest

from paclab.errors import InputError
from paclab.notebook import formats, tables
from paclab.notebook.book import find_root

ROOT = find_root()
TOY = pd.DataFrame(
    [
        {
            "paper": "toy",
            "table": "T",
            "row": row,
            "column": "c",
            "value": value,
            "unit": "%",
            "half_width": math.nan,
            "tolerance": 1.0,
            "note": note,
            "source": "s",
        }
        for row, value, note in (
            ("a", 50.0, ""),
            ("b", 50.0, ""),
            ("c", 50.0, ""),
            ("d", 50.0, ""),
            ("e", math.nan, ""),
            ("f", 50.0, "at most: a bound"),
            ("g", 50.0, ""),
        )
    ]
)


def ours(**values: float) -> pd.DataFrame:
    return pd.DataFrame([{"table": "T", "row": row, "column": "c", "value": v} for row, v in values.items()])


@pytest.mark.parametrize("paper", tables.papers(ROOT))
def test_published_files_are_tidy(paper):
    frame = tables.load_published(paper, ROOT)
    assert set(frame["paper"]) == {paper}
    assert not frame.duplicated(tables.KEYS).any()
    assert (
        (frame[tables.KEYS] != "").all().all()
        and (frame["unit"] != "").all()
        and (frame["source"] != "").all()
    )
    known = frame["value"].notna()
    assert (frame.loc[known, "tolerance"] > 0).all()
    assert frame.loc[~known, "tolerance"].isna().all()
    why = frame.loc[~known, "note"]
    assert (why.str.contains(tables.UNAVAILABLE) | why.str.startswith(tables.PRINTED)).all()


def test_table_1_of_paczero_is_complete():
    frame = tables.load_published("paczero", ROOT)
    table = frame[frame["table"] == "Table 1"].pivot(index="row", columns="column", values="value")
    assert table.shape == (11, 4) and table.notna().all().all()
    assert table.loc["FT / I=0 / PACZero-ZPL", "SST-2 1.3B"] == 88.99
    assert table.loc["LoRA / MI 0.68 / PACZero-MI", "SQuAD 1.3B"] == 48.32
    spread = frame[(frame["table"] == "Table 1") & (frame["column"] == "SST-2 6.7B")].set_index("row")[
        "half_width"
    ]
    assert spread["FT / MI 0.68 / PACZero-MI"] == 0.13


def test_claims_follow_from_table_1():
    frame = tables.load_published("paczero", ROOT).set_index(["table", "row", "column"])["value"]
    for column, claim in (("SST-2 1.3B", 2.1), ("SST-2 6.7B", 3.3)):
        gap = (
            frame["Table 1", "FT / non-private / MeZO", column]
            - frame["Table 1", "FT / I=0 / PACZero-ZPL", column]
        )
        assert gap == pytest.approx(claim, abs=0.06)
        assert frame["Claims", "PACZero-ZPL FT behind MeZO", column] == claim


def test_statuses_and_failing_rows_first():
    mine = ours(a=50.9, b=51.9, c=57.0, e=50.0, f=3.0)
    found = tables.compare(mine.assign(reason=""), TOY, profile="desk")
    status = dict(zip(found["row"], found["status"], strict=True))
    assert status == {
        "a": "match",
        "b": "close",
        "c": "differs",
        "d": "not run",
        "g": "not run",
        "e": f"not comparable ({tables.UNAVAILABLE})",
        "f": "match",
    }
    why = tables.compare(mine.assign(reason="another model"), TOY, profile="desk").set_index("row")["status"]
    assert why["e"] == f"not comparable ({tables.UNAVAILABLE}; another model)" and why["d"] == "not run"
    assert found["row"].iloc[0] == "c" and list(found["status"].iloc[-2:]) == ["match", "match"]
    assert tables.summary(found) == "1 differs, 1 close, 2 not run, 1 not comparable, 2 match of 7"


def test_a_bound_that_is_exceeded_differs():
    found = tables.compare(ours(f=60.0), TOY, profile="desk").set_index("row")
    assert found.loc["f", "status"] == "differs"


def test_a_quick_number_is_never_a_match():
    found = tables.compare(ours(a=50.0, c=90.0), TOY, profile="quick")
    assert not found["status"].isin(["match", "close", "differs"]).any()
    assert (found["status"] == "not comparable (quick profile)").sum() == 2


def test_a_reason_is_shown_and_wins():
    found = tables.compare(ours(a=50.0).assign(reason="other model"), TOY, profile="desk").set_index("row")
    assert found.loc["a", "status"] == "not comparable (other model)"


def test_orphans_and_doubles_are_refused():
    with pytest.raises(InputError, match="did you mean"):
        tables.compare(ours(aa=1.0), TOY)
    with pytest.raises(InputError, match="twice"):
        tables.compare(pd.concat([ours(a=1.0), ours(a=2.0)]), TOY)


def test_unknown_paper_names_the_known_ones():
    with pytest.raises(InputError, match="paczero"):
        tables.load_published("paczer0", ROOT)


def test_formats_escape_and_round():
    frame = pd.DataFrame({"name": ["a_b & 5%", "c|d"], "x": [1.23456, math.nan], "n": [3, 40000]})
    shown = formats.formatted(frame, 3)
    assert list(shown["x"]) == ["1.23", "n/a"] and list(shown["n"]) == ["3", "40000"]
    tex = formats.to_latex(shown, "50 % of it")
    assert (
        r"a\_b \& 5\%" in tex
        and r"\begin{tabular}{lrr}" in tex
        and r"\toprule" in tex
        and r"50 \% of it" in tex
    )
    assert r"c\|d" in formats.to_markdown(shown)
    assert formats.formatted(frame, {"x": 1})["x"].iloc[0] == "1.2"


def test_latex_is_plain_ascii_and_long_tables_break_over_pages():
    shown = pd.DataFrame({"noise / √K": ["½ ε² · {σ}", "B Φ\u0304(g) < 2⁻ⁿ", "a\\b ~ 3 ± 1"]})
    tex = formats.to_latex(shown)
    assert tex.isascii() and r"noise / $\surd$K" in tex and r"\begin{table}" in tex
    assert r"$\frac12$ $\varepsilon$$^2$ $\cdot$ \{$\sigma$\} \\" in tex
    assert r"B $\bar{\Phi}$(g) $<$ 2$^-$$^n$ \\" in tex and r"a\textbackslash{}b \textasciitilde{} 3 $\pm$ 1 \\" in tex
    assert r"\begin{longtable}{l}" in formats.to_latex(pd.concat([shown] * 20))
    committed = sorted((ROOT / "figures").glob("*/*/*.tex"))
    assert committed and [path.name for path in committed if not path.read_text().isascii()] == []


def test_csv_round_trips_ten_digits():
    frame = pd.DataFrame({"x": [1 / 3, 1e-12]})
    from io import StringIO

    back = pd.read_csv(StringIO(formats.to_csv(frame)))
    assert back["x"].tolist() == pytest.approx(frame["x"].tolist(), rel=1e-9)


def test_short_cells_stay_on_one_line_when_shown():
    shown = pd.DataFrame({"row": ["MI 3e-4", "a reason that is long enough to be broken"], "x": ["1", "<2>"]})
    text = formats.html(shown).data
    assert '<td style="white-space: nowrap">MI 3e-4</td>' in text and "<td>a reason" in text
    assert '<td style="white-space: nowrap">&lt;2&gt;</td>' in text
