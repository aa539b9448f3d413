"""Bad input of the language chapters, told in one line. Knows numbers; does not know families or
mechanisms."""

import math
from typing import Any

from paclab.errors import InputError


def whole(name: str, value: Any, least: int = 0, most: int | None = None) -> int:
    """`value` as an int if it is a whole number within [least, most] (1e4 counts as 10000)."""
    number = finite(name, value)
    if number != math.floor(number):
        raise InputError(name, f"must be a whole number, got {value!r}", f"write {math.floor(number)}")
    if number < least or (most is not None and number > most):
        span = f"between {least} and {most}" if most is not None else f"at least {least}"
        told = int(number) if abs(number) < 1e15 else f"{number:g}"  # 1e308 would be 309 digits
        raise InputError(name, f"{told} is out of range", f"choose {span}")
    return int(number)


def finite(name: str, value: Any) -> float:
    """`value` as a finite float; text, booleans, nan and inf are refused."""
    if isinstance(value, bool) or not hasattr(value, "__float__"):
        raise InputError(name, f"must be a number, got {value!r}", "give a number")
    number = float(value)
    if not math.isfinite(number):
        raise InputError(name, f"must be finite, got {value!r}", "give a finite number")
    return number


def positive(name: str, value: Any) -> float:
    """`value` as a float above 0."""
    number = finite(name, value)
    if number <= 0:
        raise InputError(name, f"must be positive, got {value!r}", "choose a value above 0")
    return number


def probability(name: str, value: Any, least: float = 0.0, most: float = 1.0) -> float:
    """`value` as a float within [least, most], a part of [0, 1]."""
    number = finite(name, value)
    if not least <= number <= most:
        raise InputError(name, f"{number:g} is not in [{least:g}, {most:g}]", "choose a probability in range")
    return number


def open_probability(name: str, value: Any) -> float:
    """`value` as a float strictly between 0 and 1."""
    number = finite(name, value)
    if not 0 < number < 1:
        raise InputError(name, f"{number:g} is not strictly between 0 and 1", "choose a value inside (0, 1)")
    return number


def horizon_size(f: Any) -> float:
    """The horizon value f(n) as a float of at least 2 (below, the margin threshold 2/f exceeds 1)."""
    number = finite("f", f)
    if number < 2:
        raise InputError(
            "f",
            f"{number:g} is below 2, so the margin threshold 2/f would exceed 1",
            "choose f of at least 2",
        )
    return number


def total_mass(name: str, values: Any) -> list[float]:
    """A non-empty list of probabilities whose sum is at most 1."""
    masses = [probability(name, v) for v in values]
    if not masses:
        raise InputError(name, "is empty", "give at least one mass")
    if math.fsum(masses) > 1 + 1e-12:
        raise InputError(name, f"sums to {math.fsum(masses):.6g}, above 1", "lower the masses")
    return masses
