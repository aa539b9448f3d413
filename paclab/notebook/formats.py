"""Tables as files: CSV with every digit, Markdown and LaTeX with the digits one reads.

Knows data frames. Does not know the papers or chapters.
"""

import re
from collections.abc import Mapping
from typing import Any

import pandas as pd

UNBROKEN = 32  # characters of a cell that stay on one line
PAGE = 45  # rows of a table that still fit on one page
TEX = str.maketrans({
    **{c: "\\" + c for c in "&%$#_{}"},
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    **{c: f"${math}$" for c, math in {
        "±": r"\pm", "·": r"\cdot", "×": r"\times", "√": r"\surd", "−": "-", "≤": r"\leq", "≥": r"\geq", "∞": r"\infty",
        "µ": r"\mu", "μ": r"\mu", "α": r"\alpha", "β": r"\beta", "γ": r"\gamma", "δ": r"\delta", "ε": r"\varepsilon",
        "η": r"\eta", "θ": r"\theta", "κ": r"\kappa", "λ": r"\lambda", "ρ": r"\rho", "σ": r"\sigma", "τ": r"\tau",
        "φ": r"\varphi", "ω": r"\omega", "Δ": r"\Delta", "Σ": r"\Sigma", "Φ": r"\Phi", "Ω": r"\Omega", "½": r"\frac12",
        "⌊": r"\lfloor", "⌋": r"\rfloor", "⁻": "^-", "²": "^2", "³": "^3", "ⁿ": "^n", "₀": "_0", "₁": "_1", "₂": "_2",
        "→": r"\to", "<": "<", ">": ">", "|": "|"}.items()},
    "…": r"\dots{}", "–": "--", "’": "'"})


def flat(frame: Any) -> pd.DataFrame:
    """A frame whose named index became columns; a plain numbered index is dropped."""
    frame = pd.DataFrame(frame)
    named = any(name is not None for name in frame.index.names) or not isinstance(frame.index, pd.RangeIndex)
    frame = frame.reset_index() if named else frame.reset_index(drop=True)
    return frame.rename(columns=str)


def to_csv(frame: pd.DataFrame) -> str:
    """CSV with ten significant digits, Unix line ends, no index: the same frame gives the same bytes."""
    return frame.to_csv(index=False, float_format="%.10g", lineterminator="\n")


def formatted(frame: pd.DataFrame, digits: int | Mapping[str, int] = 4) -> pd.DataFrame:
    """Every cell as text: `digits` significant digits, or the decimals given by column; blanks say `n/a`."""

    def show(name: str, value: Any) -> str:
        if value is None or value is pd.NA or (isinstance(value, float) and value != value):
            return "n/a"
        if isinstance(value, bool) or (not isinstance(value, int | float) and not hasattr(value, "dtype")):
            return str(value)
        if isinstance(digits, Mapping):
            return f"{value:.{digits[name]}f}" if name in digits else f"{value:.4g}"
        whole = float(value) == int(value) if abs(float(value)) < 1e15 else False
        return f"{int(value)}" if whole and abs(value) < 1e6 else f"{value:.{digits}g}"

    return pd.DataFrame({name: [show(name, v) for v in frame[name].tolist()] for name in frame.columns})


def to_markdown(shown: pd.DataFrame) -> str:
    """A Markdown table of a formatted frame."""

    def row(cells: Any) -> str:
        return "| " + " | ".join(str(c).replace("|", "\\|") for c in cells) + " |"

    rule = "|" + "---|" * len(shown.columns)
    return "\n".join([row(shown.columns), rule, *(row(r) for r in shown.itertuples(index=False))]) + "\n"


def to_latex(shown: pd.DataFrame, caption: str = "", note: str = "") -> str:
    """A booktabs table of a formatted frame; numbers are set flush right."""

    def numeric(column: str) -> bool:
        return all(_is_number(v) or v == "n/a" for v in shown[column])

    align = "".join("r" if numeric(c) else "l" for c in shown.columns)
    head = [r"\toprule", " & ".join(_tex(c) for c in shown.columns) + r" \\", r"\midrule"]
    body = [" & ".join(_tex(c) for c in row) + r" \\" for row in shown.itertuples(index=False)]
    titled, below = _tex(caption), [rf"\par\footnotesize {_tex(note)}"] if note else []
    if len(shown) > PAGE:  # a float cannot be broken over pages
        lines = [
            r"% packages: booktabs, longtable",
            rf"\begin{{longtable}}{{{align}}}",
            *([rf"\caption{{{titled}}} \\"] if caption else []),
            *head,
            r"\endhead",
            *body,
            r"\bottomrule",
            r"\end{longtable}",
            *below,
        ]
    else:
        lines = [
            r"% packages: booktabs",
            r"\begin{table}",
            r"\centering",
            *([rf"\caption{{{titled}}}"] if caption else []),
            rf"\begin{{tabular}}{{{align}}}",
            *head,
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            *below,
            r"\end{table}",
        ]
    return "\n".join(lines) + "\n"


def html(shown: pd.DataFrame) -> Any:
    """A formatted frame to display, without its row numbers; short cells are not broken into lines."""
    from IPython.display import HTML

    text = shown.to_html(index=False, border=0)
    return HTML(re.sub(rf"<td>([^<]{{1,{UNBROKEN}}})</td>", r'<td style="white-space: nowrap">\1</td>', text))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _tex(text: Any) -> str:
    """Text that pdfLaTeX sets without further packages; each character by itself, but a macron follows its letter."""
    parts = [part.translate(TEX) for part in re.split("(.)\u0304", str(text))]
    return "".join(rf"$\bar{{{part.strip('$')}}}$" if i % 2 else part for i, part in enumerate(parts))
