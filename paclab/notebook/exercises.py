"""Check cells of the exercises: an empty answer is fine, a wrong one gets a hint, a right one a yes.

Knows numbers and tolerances. Does not know any chapter, and never turns one red: exercises are the reader's.
"""

import math
from typing import Any


def check_answer(answer: Any, truth: float | str, *, rel: float = 0.02, hint: str = "") -> None:
    """Compare a reader's answer with the truth (numbers within the relative tolerance) and print one line."""
    if answer is None:
        print("Not answered yet: put your answer in place of None and run this cell again.")
        return
    if isinstance(truth, str) or isinstance(answer, str):
        right = str(answer).strip().lower() == str(truth).strip().lower()
    else:
        right = math.isclose(float(answer), float(truth), rel_tol=rel, abs_tol=1e-12)
    print("Right." if right else f"Not yet: {answer!r}." + (f" Hint: {hint}" if hint else ""))
