"""The templated question-answering families: shape, spans, determinism, and that they share no entity."""

import re

import pytest

from paclab import qa_family
from paclab.errors import InputError


@pytest.mark.parametrize("name", ["public", "private"])
def test_records_are_squad_shaped_spans(name):
    drawn = qa_family.records(name, 400, seed=3)
    assert len({r["context"] for r in drawn}) == 400
    for record in drawn:
        assert set(record) == {"title", "context", "question", "answers"}
        (answer,) = record["answers"]
        # exactly one occurrence as whole words: the span is unambiguous
        assert len(re.findall(rf"(?<!\w){re.escape(answer)}(?!\w)", record["context"])) == 1
        assert record["title"] in record["question"]
        assert "{" not in record["context"] + record["question"]
        assert 15 <= len(record["context"].split()) <= 60


@pytest.mark.parametrize("name", ["public", "private"])
def test_every_question_of_a_passage_has_its_own_answer(name):
    for drawn in qa_family.passages(name, 200, seed=1):
        answers = [answer for _, answer in drawn.pairs]
        assert len(set(answers)) == len(answers) == qa_family.FACTS_PER_PASSAGE
        assert len({question for question, _ in drawn.pairs}) == len(answers)


def test_families_are_deterministic_and_disjoint():
    assert qa_family.records("public", 50, 7) == qa_family.records("public", 50, 7)
    assert qa_family.records("public", 50, 7) != qa_family.records("public", 50, 8)
    public, private = qa_family.PUBLIC, qa_family.PRIVATE
    for field in ("kinds", "given", "things"):
        assert not set(getattr(public, field)) & set(getattr(private, field)), field
    asked = [{q for relation in family.relations for q in relation.questions} for family in (public, private)]
    assert not asked[0] & asked[1]


def test_all_relations_and_templates_are_used():
    contexts = " ".join(p.context for p in qa_family.passages("private", 3000, seed=0))
    for relation in qa_family.PRIVATE.relations:
        for statement in relation.statements:
            words = max(re.split(r"\{it\}|\{a\}", statement.replace(" .", "")), key=len).strip()
            assert words.lower() in contexts.lower(), statement


def test_unknown_family_is_named():
    with pytest.raises(InputError, match="family: unknown family 'privat'; did you mean 'private'"):
        qa_family.records("privat", 1, 0)
