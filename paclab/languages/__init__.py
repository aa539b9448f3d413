"""Learning languages under privacy (paper 4): families with known answers, identification, generation."""

from paclab.errors import InputError, nearest
from paclab.languages.automata import EVEN_B, EVEN_LENGTH, STARTS_WITH_A, TARGETS, Automaton, Regular
from paclab.languages.families import Family, TwoAtoms
from paclab.languages.numbers import CoSingletons, GenerationExample, Multiples, Residues
from paclab.languages.words import Prefixes

FAMILIES: dict[str, type[Family]] = {
    cls.name: cls for cls in (TwoAtoms, Multiples, Residues, CoSingletons, Prefixes, Regular, GenerationExample)
}


def family(name: str, **options) -> Family:
    """The family of this name (see FAMILIES) with its default or the given parameters."""
    if name not in FAMILIES:
        raise InputError("family", f"no family {name!r}", nearest(name, FAMILIES))
    return FAMILIES[name](**options)


__all__ = [
    "EVEN_B",
    "EVEN_LENGTH",
    "FAMILIES",
    "STARTS_WITH_A",
    "TARGETS",
    "Automaton",
    "CoSingletons",
    "Family",
    "GenerationExample",
    "Multiples",
    "Prefixes",
    "Regular",
    "Residues",
    "TwoAtoms",
    "family",
]
