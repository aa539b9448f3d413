"""Seconds per exact error of the rate calculator (CPU time, one thread): `python benchmarks/rates.py`.

Prints one line per setting; the requirement is under a second at n = 10^4 where a closed enumeration exists.
"""

import os
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

from paclab.languages import GenerationExample, Residues
from paclab.rates.languages import gen_error, gen_exact, id_error, id_exact, show

SETTINGS = {
    "identification, exponential, n = 10^4": lambda: id_exact(10_000, 0.1, 0.6, 6, 1.0),
    "identification, Gaussian, n = 10^4": lambda: id_exact(10_000, 0.1, 0.6, 6, 1.0, mechanism="gaussian", delta=1e-6),
    "identification, margin rule, n = 10^5": lambda: id_exact(100_000, 0.1, 0.6, 6, mechanism="margin"),
    "identification, 4 cells listed, n = 100": lambda: id_error(Residues(), 100, 10.0, 1.0),
    "generation, 1 window string, n = 10^4": lambda: gen_exact(10_000, [0.25], 1250, 9, 1.0),
    "generation, 3 window strings, n = 10^4": lambda: gen_exact(10_000, [0.25, 0.125, 0.0625], 312, 9, 1.0),
    "generation, 3 equal strings, no threshold": lambda: gen_exact(10_000, [0.3, 0.3, 0.3], 10_000, 9, 0.01),
    "generation, 4 window strings, n = 10^4": lambda: gen_exact(10_000, [0.25, 0.25, 0.2, 0.2], 1000, 9, 1.0),
    "generation, Gaussian, n = 10^4": lambda: gen_exact(
        10_000, [0.25, 0.125], 625, 9, 0.5, mechanism="gaussian", delta=1e-6
    ),
    "generation, 4 cells listed, n = 100": lambda: gen_error(GenerationExample(), 100, 7, 7, 6, 1.0),
}


def redraws() -> None:
    """CPU milliseconds of one redraw of each explorer, PNG included (second call: caches are warm)."""
    from paclab.chapters import generation_views, identification_views, rates_views
    from paclab.languages import TwoAtoms
    from paclab.notebook import plots

    plots.use_style()
    naming = identification_views.Replay(TwoAtoms(), 3000, 0)
    speaking = generation_views.Replay(GenerationExample(), 3000, 0)
    draws = {
        "chapter 40": lambda: naming.draw(800, 1.0, 6.0),
        "chapter 41": lambda: speaking.draw(400, 1.0, 0.06),
        "chapter 42": lambda: rates_views.explorer(2000, 0.5, 6, 7, 0.25),
    }
    for name, draw in draws.items():
        plots.png_bytes(draw(), plots.SHOWN_DPI)
        start = time.process_time()
        figure = draw()
        drawn = time.process_time()
        plots.png_bytes(figure, plots.SHOWN_DPI)
        print(
            f"explorer of {name}: draw {1e3 * (drawn - start):.0f} ms, PNG {1e3 * (time.process_time() - drawn):.0f} ms"
        )


def main() -> None:
    """Run every setting once and print its CPU seconds."""
    for name, run in SETTINGS.items():
        start = time.process_time()
        found = run()
        print(f"{name:<45} {time.process_time() - start:7.3f} s   error {show(found.log10)}")
    redraws()


if __name__ == "__main__":
    main()
