"""The table of claims: same keys as the measurements, and the status it prints is the one that we measure."""

import pytest

from paclab.notebook.tables import compare, load_published
from paclab.rates.claims import CLAIMS, measure

STATUS = {1.0: "holds", 0.5: "holds as read here", 0.0: "fails"}


@pytest.fixture(scope="module")
def measured():
    return measure()


def test_every_claim_is_measured_and_every_measurement_is_a_claim():
    published = load_published("language-price")
    keys = list(map(tuple, published[["table", "row", "column"]].itertuples(index=False)))
    assert len(set(keys)) == len(keys) and set(keys) == set(CLAIMS)


def test_printed_status_is_the_measured_one(measured):
    published = load_published("language-price").set_index(["table", "row", "column"])["note"]
    for row in measured:
        parts = published[row["table"], row["row"], row["column"]].split(" | ")
        assert len(parts) == 3 and parts[0].startswith("claim: ")
        assert parts[1] == f"status: {STATUS[row['value']]}", (row, parts[1])


def test_comparison_with_the_paper(measured):
    import pandas as pd

    joined = compare(pd.DataFrame(measured), load_published("language-price"), profile="desk")
    statuses = dict(zip(zip(joined["row"], joined["column"], strict=True), joined["status"], strict=True))
    assert statuses["Design 4", "n 2^-n <= exp(-n/2)"] == "differs"
    assert statuses["Generation / upper", "pure"] == "match"
    assert statuses["Identification / upper", "pure"] == "close"
    assert joined["status"].iloc[0] == "differs"  # failing rows first
    quick = compare(pd.DataFrame(measured), load_published("language-price"), profile="quick")
    assert set(quick["status"]) == {"not comparable (quick profile)"}
