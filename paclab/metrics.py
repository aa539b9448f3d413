"""SQuAD answer metrics per record (normalised exact match and token F1), as in the SQuAD v1.1 evaluation."""

import re
import string
from collections import Counter

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalise(answer: str) -> str:
    """Lower case, no punctuation, no articles, single spaces."""
    return " ".join(_ARTICLES.sub(" ", answer.lower().translate(_PUNCTUATION)).split())


def exact_match(prediction: str, answers: list[str]) -> float:
    """1.0 when the normalised prediction equals one of the normalised answers."""
    return float(any(normalise(prediction) == normalise(answer) for answer in answers))


def f1(prediction: str, answers: list[str]) -> float:
    """Best token F1 of the prediction over the answers, in [0, 1]."""
    return max(_f1(normalise(prediction).split(), normalise(answer).split()) for answer in answers)


def _f1(prediction: list[str], answer: list[str]) -> float:
    if not prediction or not answer:
        return float(prediction == answer)
    common = sum((Counter(prediction) & Counter(answer)).values())
    return 2 * common / (len(prediction) + len(answer))
