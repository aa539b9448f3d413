"""Lower bound, exact error and upper bound of one setting side by side: what `paclab rates` prints.

Knows the calculator. Does not know the command line's syntax. Every row: what, log10 of the number, a note.
"""

from typing import Any

import numpy as np

from paclab.errors import InputError
from paclab.languages import family as make_family
from paclab.languages import generate, identify
from paclab.languages.checks import positive, total_mass, whole
from paclab.languages.families import TwoAtoms
from paclab.rates import generation as gen
from paclab.rates import identification as ident
from paclab.rates import lower
from paclab.rates.logs import MAX_N, Bound, Error, log10_of, show

MAX_SAMPLES = 1_000_000  # draws of an estimate that are held in memory


def _row(what: str, value: float | Error | Bound, note: str = "") -> dict[str, Any]:
    if isinstance(value, Bound):
        terms = ", ".join(f"{name} {show(term)}" for name, term in value.terms.items())
        note = f"{'' if value.holds else f'says nothing: {value.why}; '}terms: {terms}"
        return {
            "what": what,
            "log10": _number(value.log10),
            "note": note,
            "terms": {name: _number(t) for name, t in value.terms.items()},
        }
    if isinstance(value, Error):
        note = note or value.method
        if value.method.startswith("Rao"):
            note += f", 99 % interval {show(value.low)} .. {show(value.high)}"
        return {
            "what": what,
            "log10": _number(value.log10),
            "note": note,
            "interval": [_number(value.low), _number(value.high)],
        }
    return {"what": what, "log10": _number(value), "note": note}


def _draws(samples, seed) -> tuple[int, np.random.Generator]:
    """How many draws an estimate takes and from where; checked even if enumeration leaves nothing to draw."""
    return whole("samples", samples, 2, MAX_SAMPLES), np.random.default_rng(whole("seed", seed, 0))


def _number(log10: float) -> float | None:
    return None if log10 == -np.inf else float(log10)


def identification_report(n, eps, f, alpha, beta, delta, adjacency, name, samples, seed) -> dict[str, Any]:
    """Rows for identification: excess risk, lower <= exact (law or its mirror image) <= upper."""
    n, eps = whole("n", n, 1, MAX_N), positive("eps", eps)
    samples, rng = _draws(samples, seed)
    family = TwoAtoms(alpha, beta) if name == TwoAtoms.name else make_family(name)
    if family.i_star is None:
        raise InputError("family", f"{name} has no best language, the theorem says nothing", "choose another")
    k = identify.horizon(f, family.languages).k
    excess = max(family.error(i) for i in range(1, k + 1)) - family.infimum
    if k < family.i_star or excess == 0:
        raise InputError("f", f"the {k} candidates leave nothing to find (i* = {family.i_star})", "raise f")
    known = {"i_star": family.i_star, "gap": family.gap, "k": k, "excess": excess, "adjacency": adjacency}
    rows = _mirror_rows(n, eps, f, family, adjacency) if isinstance(family, TwoAtoms) else []

    def risk(mechanism: str, **noise: float) -> Error:
        if isinstance(family, TwoAtoms):
            return _two_atoms(family, n, f, eps, adjacency, mechanism, **noise)
        return ident.id_error(
            family, n, f, eps, mechanism=mechanism, adjacency=adjacency, samples=samples, rng=rng, **noise
        )

    rows.append(_row("exact, eps-DP", risk("em")))
    rows.append(_row("upper bound, eps-DP", ident.id_upper(n, f, eps, **known)))
    if delta is not None:
        rows.append(_row("exact, Gaussian", risk("gaussian", delta=delta)))
        rows.append(_row("upper bound, Gaussian", ident.id_upper_gauss(n, f, eps, delta, **known)))
    rows.append(_row("exact, not private", risk("margin")))
    setting = (
        f"identification, {family.name}: excess risk at n = {n}, eps = {eps:g}"
        f"{f', delta = {delta:g}' if delta else ''}, f = {f:g} (k = {k} candidates), {adjacency}"
    )
    notes = [f"i* = {family.i_star}, gap c = {family.gap:.4g}; the bounds speak from f >= max(i*, 3/c)"]
    return {"setting": setting, "rows": rows, "notes": notes}


def _two_atoms(family: TwoAtoms, n, f, eps, adjacency, mechanism, **noise) -> Error:
    wrong = ident.id_exact(n, family.alpha, family.beta, f, eps, mechanism=mechanism, adjacency=adjacency, **noise)
    return ident.log10_excess(wrong, abs(family.beta - family.alpha))


def _mirror_rows(n, eps, f, family, adjacency):
    gamma = abs(family.alpha - family.beta)
    note = "worse of the law and its mirror image" if adjacency == "replace" else "replace-one only"
    bottom = lower.lower_two_point_sharp(n, gamma, eps) + log10_of(gamma) if adjacency == "replace" else -np.inf
    mirror = _two_atoms(TwoAtoms(family.beta, family.alpha), n, f, eps, adjacency, "em")
    return [
        _row("lower bound, any eps-DP rule", bottom, note),
        _row("exact, mirrored law", mirror),
    ]


def generation_report(n, eps, masses, bad, g, delta) -> dict[str, Any]:
    """Rows for generation with one good language: lower <= exact <= upper."""
    n, eps, bad = whole("n", n, 1, MAX_N), positive("eps", eps), whole("bad", bad, 1)
    masses = total_mass("masses", masses)
    least = min(masses)
    if least <= 0:
        raise InputError("masses", "holds a mass of 0", "leave that string out: a window mass is positive")
    g = generate.threshold(n, least) if g is None else whole("g", g, 1, n)
    if g < 1 and least < 2 / MAX_N:
        raise InputError("masses", f"{least:g} is so small that g = floor(n p/2) = 0 for every n up to {MAX_N}",
                         f"choose masses of at least {2 / MAX_N:g}, or give g=1")
    if g < 1:
        raise InputError("n", f"{n} is too small: g = floor(n p/2) = 0", f"choose n of at least {int(2 / least) + 1}")
    rows = [
        _row(
            "lower bound, any eps-DP rule",
            lower.lower_gen(n, least, eps) if least < 1 else -np.inf,
            f"worse of two laws that differ in mass {least:g}",
        ),
        _row("exact on these two laws", gen.gen_exact(n, [1 - least, least], g, 1, eps), "B = 1"),
        _row("exact, eps-DP", gen.gen_exact(n, masses, g, bad, eps)),
        _row("upper bound, eps-DP", gen.gen_upper(n, len(masses), least, g, bad, eps)),
        _row("exact without threshold", gen.gen_exact(n, masses, n, bad, eps), "g = n"),
    ]
    if delta is not None:
        rows.insert(
            4,
            _row("exact, Gaussian", gen.gen_exact(n, masses, g, bad, eps, mechanism="gaussian", delta=delta)),
        )
        rows.insert(5, _row("upper bound, Gaussian", gen.gen_upper_gauss(n, len(masses), least, g, bad, eps, delta)))
    setting = (
        f"generation: P(a bad language is selected) at n = {n}, eps = {eps:g}"
        f"{f', delta = {delta:g}' if delta else ''}, g = {g}, B = {bad} bad languages, replace and add_remove"
    )
    novel = f"printing a string of the sample adds at most n 2^-n = {show(gen.novelty_bound(n))}"
    return {"setting": setting, "rows": rows, "notes": [novel]}


def family_generation_report(n, eps, name, window, g, pairs, delta, samples, seed) -> dict[str, Any]:
    """Rows for generation on a whole family, the window known or searched."""
    n, eps, family = whole("n", n, 1, MAX_N), positive("eps", eps), make_family(name)
    samples, rng = _draws(samples, seed)
    if family.languages is None or family.witness_index() in (0, np.inf):
        raise InputError(
            "family",
            f"{name} has no bad language with a finite witness index",
            "choose generation-example or residues with a zero mass",
        )
    witness, f = int(family.witness_index()), family.languages
    window = witness if window is None else whole("window", window, 1, gen.MAX_WINDOW)
    reference = next(i for i in range(1, f + 1) if not family.bad(i))
    masses = family.window_masses(reference, window) or [1.0]
    g = generate.threshold(n, min(masses)) if g is None else whole("g", g, 1, n)
    if g < 1:
        raise InputError("n", f"{n} is too small: g = floor(n p/2) = 0", "raise n or give --g")
    bad = sum(family.bad(i) for i in range(1, f + 1))
    options = {"pairs": pairs, "samples": samples, "rng": rng}
    if pairs:
        top = gen.pair_upper(n, window, witness, min(masses), g, f, eps)
    elif window < witness:
        raise InputError(
            "window",
            f"{window} is below the witness index {witness}: a bad language may look good",
            f"choose at least {witness}",
        )
    else:
        top = gen.gen_upper(n, window, min(masses), g, bad, eps)
    rows = [
        _row("exact, eps-DP", gen.gen_error(family, n, f, window, g, eps, **options)),
        _row("upper bound, eps-DP", top),
    ]
    if delta is not None:
        rows.append(
            _row(
                "Gaussian",
                gen.gen_error(family, n, f, window, g, eps, mechanism="gaussian", delta=delta, **options),
            )
        )
    rows.append(_row("argmax, not private", gen.gen_error(family, n, f, window, g, mechanism="argmax", **options)))
    setting = (
        f"generation, {name}: P(a bad language is selected) at n = {n}, eps = {eps:g}, g = {g}, "
        f"{'pairs up to h' if pairs else 'window W'} = {window}"
    )
    notes = [f"reference language: {family.language(reference)}; witness index {witness}; {bad} of {f} are bad"]
    return {"setting": setting, "rows": rows, "notes": notes}
