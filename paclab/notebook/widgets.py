"""What differs between a live notebook and a headless one: explorers and progress.

Knows ipywidgets and tqdm. Does not know chapters, profiles or results.
"""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

FIGURE_HEIGHT = "480px"
_DRAWING = threading.RLock()  # JupyterLab delivers slider moves to threads of their own, one figure at a time here
EVERY_SHARE, EVERY_SECONDS = 0.1, 30.0


def headless() -> bool:
    """True when nobody can move a slider: PACLAB_HEADLESS, no kernel, or a client that takes no input."""
    given = os.environ.get("PACLAB_HEADLESS", "")
    if given:
        return given != "0"
    from IPython import get_ipython

    kernel = getattr(get_ipython(), "kernel", None)
    return kernel is None or not getattr(kernel, "_allow_stdin", False)


def explore(
    draw: Callable[..., Any],
    *,
    describe: Callable[..., Any] | None = None,
    height: str = FIGURE_HEIGHT,
    **controls: Any,
) -> None:
    """Sliders over a pure `draw(**values) -> Figure`; headless, one static figure at the starting values.

    Args:
        draw: returns a new matplotlib Figure in well under 150 ms; caching is the caller's affair.
        describe: optional `describe(**values)` -> dict or DataFrame: the numbers shown, as a text table that
            screen readers reach.
        height: CSS height of the figure's box; it is fixed so that the page does not jump.
        controls: ipywidgets (or the tuples that `ipywidgets.interactive` takes), one per argument of `draw`.
            Give each a `description` with its unit.
    """
    from IPython.display import display

    if headless():
        widgets = {name: _as_widget(name, control) for name, control in controls.items()}
        _show(draw, describe, {name: widget.value for name, widget in widgets.items()})
    else:
        display(explorer(draw, describe, height, controls))


def explorer(
    draw: Callable[..., Any], describe: Callable[..., Any] | None, height: str, controls: dict[str, Any]
) -> Any:
    """The live explorer's widget box: controls, a hint, and one figure redrawn when a control is let go."""
    from ipywidgets import HTML, Layout, Output, VBox

    widgets = {name: _as_widget(name, control) for name, control in controls.items()}
    for widget in widgets.values():
        _settle(widget)
    out = Output(layout=Layout(min_height=height, overflow="hidden"))
    hint = HTML("<small>Move with the mouse, or focus a slider and use the arrow keys.</small>")

    def redraw(_change: Any = None) -> None:
        with _DRAWING, out:
            out.clear_output(wait=True)
            _show(draw, describe, {name: widget.value for name, widget in widgets.items()})

    for widget in widgets.values():
        widget.observe(redraw, "value")
    redraw()
    return VBox([*widgets.values(), hint, out])


def _as_widget(name: str, control: Any) -> Any:
    from ipywidgets import ValueWidget, interactive

    if isinstance(control, ValueWidget):
        return control
    return interactive(lambda **_: None, **{name: control}).children[0]


def _settle(widget: Any) -> None:
    """Redraw when a slider is let go, never while it moves, and leave room for the label and its unit."""
    if widget.has_trait("continuous_update"):
        widget.continuous_update = False
    widget.style.description_width = "initial"
    widget.layout.width = "min(640px, 95%)"


def _show(draw: Callable[..., Any], describe: Callable[..., Any] | None, values: dict[str, Any]) -> None:
    import matplotlib.pyplot as plt
    from IPython.display import display

    from paclab.notebook.plots import png_image

    # Pyplot must not know the figure while it is drawn: every message that another thread of the kernel handles ends
    # by drawing all figures that pyplot knows, and a figure drawn by two threads at once comes out half empty.
    with plt.ioff():
        figure = draw(**values)
        plt.close(figure)
    text = "; ".join(f"{name} = {value}" for name, value in values.items())
    image = png_image(figure, alt=f"explorer at {text}", tight=False)
    numbers = None if describe is None else _numbers(describe(**values))
    display(image)  # both are ready: no figure stands without its numbers while they are computed
    if numbers is not None:
        display(numbers)


def _numbers(shown: Any) -> Any:
    import pandas as pd

    frame = shown if isinstance(shown, pd.DataFrame) else pd.DataFrame({"value": pd.Series(shown)})
    return frame


def progress(iterable: Iterable, total: int | None = None, label: str = "") -> Iterator:
    """Iterate with progress: a bar in a live notebook, sparse plain lines with the time left headless."""
    if total is None and hasattr(iterable, "__len__"):
        total = len(iterable)  # type: ignore[arg-type]
    if not headless():
        from tqdm.auto import tqdm

        yield from tqdm(iterable, total=total, desc=label)
        return
    yield from _plain(iterable, total, label or "progress")


def _plain(iterable: Iterable, total: int | None, label: str) -> Iterator:
    start = last = time.monotonic()
    share = EVERY_SHARE
    for done, item in enumerate(iterable, 1):
        yield item
        now = time.monotonic()
        finished = total is not None and done >= total
        due = total is not None and done >= share * total and now - last >= 1.0
        if now - last >= EVERY_SECONDS or due or (finished and now - start >= 1.0):
            print(_line(label, done, total, now - start), flush=True, file=sys.stdout)
            last = now
            share = EVERY_SHARE * (int(done / (EVERY_SHARE * total)) + 1) if total else share


def _line(label: str, done: int, total: int | None, seconds: float) -> str:
    if not total:
        return f"{label}: {done} done, {clock(seconds)} so far"
    left = seconds / done * (total - done)
    share = f"{done}/{total} ({100 * done / total:.0f} %)"
    return f"{label}: {share}, {clock(seconds)} so far, {clock(left)} left"


def clock(seconds: float) -> str:
    """Seconds as people say them: `42 s`, `3 min 20 s`, `2 h 5 min`."""
    seconds = round(seconds)
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60} s" if seconds % 60 else f"{seconds // 60} min"
    return f"{seconds // 3600} h {seconds % 3600 // 60} min"
