"""Templated reading comprehension: a public and a private family of short passages with extractive questions.

Knows entities, templates and how to draw a passage; knows no prompt, no model and no metric. Every name is
invented from syllables. The families share their structure (four facts about one thing), numbers, syllables
and adjectives; they differ in kinds of thing, first names, objects, verbs, sentence frames and questions.
That shift sets how much a model trained on the public family has left to learn. Records have SQuAD's fields
`title`, `context`, `question`, `answers`, and every answer is a span of its context.
"""

from typing import Any, NamedTuple

import numpy as np

from paclab.errors import InputError, nearest

FACTS_PER_PASSAGE = 4


class Relation(NamedTuple):
    """One kind of fact: how it is stated, how it is asked, and which slot answers it."""

    slot: str  # person | year | place | thing | count
    statements: tuple[str, ...]
    questions: tuple[str, ...]


class Family(NamedTuple):
    """Everything that passages of one family are drawn from."""

    kinds: tuple[str, ...]
    heads: tuple[str, ...]
    tails: tuple[str, ...]
    given: tuple[str, ...]
    adjectives: tuple[str, ...]
    things: tuple[str, ...]
    years: tuple[int, int]
    counts: tuple[int, int]
    relations: tuple[Relation, ...]


class Passage(NamedTuple):
    """A title, its context and all (question, answer) pairs in the order of the questions drawn."""

    title: str
    context: str
    pairs: tuple[tuple[str, str], ...]


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


# Shared by both families: a small model learns to find an answer, hardly to copy word pieces it never saw.
HEADS = _words("Bel Cor Dal Fen Gar Hol Kel Lor Mar Nor Pel Ros Sal Tor Vel Wes Al Bran Dor Har Lan Mel Ost Ren")
TAILS = _words("den ford ley mont ton vale wick by ham more stead field gate lin mar ney ridge ster well wood")
ADJECTIVES = _words("old red large silver wooden rare blue famous small golden quiet painted")
YEARS, COUNTS = (1700, 1999), (11, 98)

PUBLIC = Family(
    kinds=_words("Museum Bridge School Club Library Theatre Park Hospital College Market"),
    heads=HEADS,
    tails=TAILS,
    given=_words(
        "Anna Bruno Clara David Elena Frank Greta Henry Irene James Karen Louis "
        "Maria Nina Oscar Paula Robert Sarah Thomas Victor Walter Alice Peter Julia"
    ),
    adjectives=ADJECTIVES,
    things=_words("clocks gardens maps towers paintings horses windows books boats bells statues coins"),
    years=YEARS,
    counts=COUNTS,
    relations=(
        Relation(
            "person",
            (
                "{it} was founded by {a} .",
                "{a} founded {it} .",
                "{it} was first opened by {a} .",
                "The founder of {it} was {a} .",
            ),
            (
                "Who founded {n}?",
                "Who was the founder of {n}?",
                "By whom was {n} founded?",
                "Who first opened {n}?",
            ),
        ),
        Relation(
            "person",
            (
                "{it} is led by {a} .",
                "{a} leads {it} today .",
                "The director of {it} is {a} .",
                "{it} is now directed by {a} .",
            ),
            ("Who leads {n}?", "Who is the director of {n}?", "By whom is {n} led?", "Who directs {n} now?"),
        ),
        Relation(
            "person",
            ("{it} was designed by {a} .", "{a} designed {it} .", "The plans for {it} were drawn by {a} ."),
            ("Who designed {n}?", "Who drew the plans for {n}?", "By whom was {n} designed?"),
        ),
        Relation(
            "year",
            (
                "{it} opened in {a} .",
                "In {a} {it} opened its doors .",
                "The first visitors of {it} came in {a} .",
                "{it} was started in {a} .",
            ),
            (
                "When did {n} open?",
                "In what year did {n} open?",
                "When was {n} started?",
                "What year was {n} opened?",
            ),
        ),
        Relation(
            "year",
            (
                "{it} was rebuilt in {a} .",
                "In {a} {it} was rebuilt after a fire .",
                "{it} burned and was repaired in {a} .",
            ),
            ("When was {n} rebuilt?", "In what year was {n} repaired?", "When was {n} rebuilt after a fire?"),
        ),
        Relation(
            "place",
            (
                "{it} is located in {a} .",
                "{it} stands in the town of {a} .",
                "{it} can be found in {a} .",
                "Visitors find {it} in {a} .",
            ),
            (
                "Where is {n}?",
                "Where is {n} located?",
                "In which town does {n} stand?",
                "Where can {n} be found?",
            ),
        ),
        Relation(
            "thing",
            (
                "{it} is known for its {a} .",
                "People visit {it} to see the {a} .",
                "{it} is famous for {a} .",
                "Many come to {it} for its {a} .",
            ),
            ("What is {n} known for?", "What do people visit {n} to see?", "What is {n} famous for?"),
        ),
        Relation(
            "count",
            ("{it} has {a} rooms .", "There are {a} rooms in {it} .", "In {it} one can count {a} rooms ."),
            ("How many rooms does {n} have?", "How many rooms are in {n}?"),
        ),
        Relation(
            "count",
            ("{it} has {a} workers .", "About {a} people work in {it} .", "{it} gives work to {a} people ."),
            ("How many people work in {n}?", "How many workers does {n} have?"),
        ),
    ),
)

PRIVATE = Family(
    kinds=("Abbey", "Ferry", "Lighthouse", "Observatory", "Brewery", "Orchard", "Railway", "Festival"),
    heads=HEADS,
    tails=TAILS,
    given=_words(
        "Agnes Boris Cecil Delia Edgar Fiona Gordon Hilda Ivan Joan "
        "Kurt Lydia Milton Norma Otto Phyllis Rufus Stella Trevor Ursula"
    ),
    adjectives=("strange", "heavy", "green", "broken", "ancient", "sweet", "white", "noisy", "tiny", "dark"),
    things=_words("lamps apples songs engines ropes letters masks barrels stones lenses"),
    years=YEARS,
    counts=COUNTS,
    relations=(
        Relation(
            "person",
            ("{a} established {it} .", "{it} owes its existence to {a} .", "{it} was set up by {a} ."),
            ("Who established {n}?", "Who set up {n}?", "To whom does {n} owe its existence?"),
        ),
        Relation(
            "person",
            ("{it} belongs to {a} .", "The owner of {it} is {a} .", "{a} owns {it} nowadays ."),
            ("Who owns {n}?", "To whom does {n} belong?", "Who is the owner of {n}?"),
        ),
        Relation(
            "year",
            ("{it} goes back to {a} .", "Since {a} {it} has been in use .", "{it} dates from {a} ."),
            ("When does {n} date from?", "Since when has {n} been in use?", "How far back does {n} go?"),
        ),
        Relation(
            "year",
            ("{it} was sold in {a} .", "In {a} {it} changed hands ."),
            ("When was {n} sold?", "When did {n} change hands?"),
        ),
        Relation(
            "year",
            ("In {a} a storm damaged {it} .", "{it} suffered from a storm in {a} ."),
            ("When did a storm damage {n}?", "When did {n} suffer from a storm?"),
        ),
        Relation(
            "place",
            (
                "{it} lies near {a} .",
                "{it} serves the village of {a} .",
                "From {a} it is a short walk to {it} .",
            ),
            ("Where does {n} lie?", "Which village does {n} serve?", "Where is the village near {n}?"),
        ),
        Relation(
            "thing",
            ("{it} makes {a} .", "{it} produces {a} .", "Most guests of {it} ask for its {a} ."),
            ("What does {n} make?", "What does {n} produce?", "What do guests of {n} ask for?"),
        ),
        Relation(
            "count",
            ("{it} needs {a} helpers .", "A team of {a} helpers keeps {it} going ."),
            ("How many helpers does {n} need?", "How many helpers keep {n} going?"),
        ),
        Relation(
            "count",
            ("{it} cost {a} crowns .", "The price of {it} was {a} crowns ."),
            ("How many crowns did {n} cost?", "What was the price of {n} in crowns?"),
        ),
    ),
)

FAMILIES = {"public": PUBLIC, "private": PRIVATE}


def family_named(name: str) -> Family:
    """The family called `public` or `private`; raises InputError for any other name."""
    if name not in FAMILIES:
        raise InputError("family", f"unknown family {name!r}", nearest(name, FAMILIES))
    return FAMILIES[name]


def _pick(rng: np.random.Generator, options: tuple[Any, ...]) -> Any:
    return options[int(rng.integers(len(options)))]


def _name(family: Family, rng: np.random.Generator) -> str:
    return _pick(rng, family.heads) + _pick(rng, family.tails)


def _answer(slot: str, family: Family, rng: np.random.Generator) -> str:
    if slot == "person":
        return f"{_pick(rng, family.given)} {_name(family, rng)}"
    if slot == "place":
        return _name(family, rng)
    if slot == "thing":
        return f"{_pick(rng, family.adjectives)} {_pick(rng, family.things)}"
    low, high = family.years if slot == "year" else family.counts
    return str(int(rng.integers(low, high + 1)))


def passage(family: Family, rng: np.random.Generator) -> Passage:
    """Draw one passage: `FACTS_PER_PASSAGE` facts in random order, no answer given twice."""
    kind, name = _pick(rng, family.kinds), _name(family, rng)
    title = f"{name} {kind}"
    chosen = rng.choice(len(family.relations), FACTS_PER_PASSAGE, replace=False)
    sentences, pairs, used = [], [], {name}
    for place, index in enumerate(chosen):
        relation = family.relations[int(index)]
        answer = _answer(relation.slot, family, rng)
        while answer in used:
            answer = _answer(relation.slot, family, rng)
        used.add(answer)
        subject = f"the {title}" if place == 0 else _pick(rng, ("it", f"the {kind.lower()}"))
        sentence = _pick(rng, relation.statements).format(it=subject, a=answer)
        sentences.append(sentence[0].upper() + sentence[1:].replace(" .", "."))
        pairs.append((_pick(rng, relation.questions).format(n=f"the {title}"), answer))
    order = rng.permutation(len(pairs))
    return Passage(title, " ".join(sentences), tuple(pairs[int(i)] for i in order))


def passages(name: str, n: int, seed: int) -> list[Passage]:
    """`n` passages of the family `name`, a function of the seed alone."""
    rng = np.random.default_rng([20_240, seed])
    family = family_named(name)
    return [passage(family, rng) for _ in range(n)]


def records(name: str, n: int, seed: int) -> list[dict[str, Any]]:
    """`n` SQuAD-shaped records, one question each, no two with the same context."""
    rng = np.random.default_rng([20_241, seed])
    family, seen, out = family_named(name), set(), []
    while len(out) < n:
        drawn = passage(family, rng)
        if drawn.context in seen:
            continue
        seen.add(drawn.context)
        query, answer = drawn.pairs[0]
        out.append({"title": drawn.title, "context": drawn.context, "question": query, "answers": [answer]})
    return out
