"""A person opens a chapter in JupyterLab, moves a slider, and the figure changes: in a real browser."""

import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

from paclab.notebook.book import load_book

BOOK = load_book()
CHAPTERS = [c for c in ("00_start_here", "11_consensus") if c in BOOK.chapters]
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ISOLATED = (
    "JUPYTER_CONFIG_DIR",
    "JUPYTER_DATA_DIR",
    "JUPYTER_RUNTIME_DIR",
    "JUPYTERLAB_WORKSPACES_DIR",
    "JUPYTERLAB_SETTINGS_DIR",
    "IPYTHONDIR",
    "HOME",
)
KERNEL_READY = """() => {
  const kernel = window.jupyterapp.shell.currentWidget?.sessionContext?.session?.kernel;
  return kernel && kernel.connectionStatus === 'connected' && kernel.status === 'idle';
}"""

SHOWN = """box => {
  const images = box.querySelectorAll('img');
  return [images.length, images[0]?.getAttribute('src') ?? '', box.querySelectorAll('table').length];
}"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until_up(url: str, process: subprocess.Popen) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        assert process.poll() is None, "JupyterLab ended before it answered"
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            time.sleep(0.3)
    raise AssertionError("JupyterLab did not answer in two minutes")


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """A JupyterLab of its own over a copy of the notebooks, with every setting in a scratch folder."""
    scratch = tmp_path_factory.mktemp("lab")
    environment = {k: v for k, v in os.environ.items() if k != "PACLAB_HEADLESS"}
    for name in ISOLATED:
        (scratch / name.lower()).mkdir()
        environment[name] = str(scratch / name.lower())
    environment["PACLAB_ROOT"] = str(BOOK.root)
    news = scratch / "jupyterlab_settings_dir" / "@jupyterlab" / "apputils-extension"
    news.mkdir(parents=True)
    (news / "notification.jupyterlab-settings").write_text('{"fetchNews": "false", "checkForUpdates": false}')
    (scratch / "work").mkdir()
    for chapter in CHAPTERS:
        shutil.copy(BOOK.root / "notebooks" / f"{chapter}.ipynb", scratch / "work")
    port, token = free_port(), secrets.token_hex(16)
    command = [
        sys.executable,
        "-m",
        "jupyterlab",
        "--no-browser",
        "--allow-root",
        f"--ServerApp.port={port}",
        f"--ServerApp.root_dir={scratch / 'work'}",
        f"--IdentityProvider.token={token}",
        "--LabApp.expose_app_in_browser=True",
        "--LabApp.news_url=None",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    ]
    with open(scratch / "log", "wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=scratch)
        try:
            wait_until_up(f"http://127.0.0.1:{port}/api?token={token}", process)
            yield f"http://127.0.0.1:{port}", token
        finally:
            process.terminate()
            process.wait(30)


@pytest.fixture(scope="module")
def page():
    """A page of the distribution's Chromium; skips with the reason when there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (extra `browser`)")
    browser_path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser_path is None:
        pytest.skip("no Chromium on this machine (a distribution's package `chromium`)")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=browser_path,
            args=[
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--disable-background-networking",
            ],
        )
        yield browser.new_page(viewport={"width": 1400, "height": 1000})
        browser.close()


def settled(page, box, before: str) -> tuple[int, str, int]:
    """Figures, the first one's source and tables, once two looks agree: a redraw on its way shows a part of them."""
    last, deadline = None, time.monotonic() + 60
    while time.monotonic() < deadline:
        seen = tuple(box.evaluate(SHOWN))
        if seen == last and seen[0] == seen[2] == 1 and seen[1] != before:
            break
        last = seen
        page.wait_for_timeout(500)
    return seen


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_slider_moves_the_figure(page, lab, chapter):
    url, token = lab
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(f"{url}/doc/tree/{chapter}.ipynb?reset&token={token}")
    page.wait_for_selector('.jp-Notebook-ExecutionIndicator[data-status="idle"]', timeout=120_000)
    page.wait_for_function(KERNEL_READY, timeout=120_000)
    page.evaluate("() => { window.jupyterapp.commands.execute('notebook:run-all-cells'); }")  # not awaited
    box = page.locator(".jp-OutputArea-output .widget-vbox, .jp-OutputArea-output .lm-Widget.widget-box").first
    handle = box.locator(".noUi-handle").first
    handle.wait_for(timeout=300_000)
    image = box.locator("img")
    image.first.wait_for(timeout=300_000)
    page.wait_for_selector('.jp-Notebook-ExecutionIndicator[data-status="idle"]', timeout=300_000)
    handle.scroll_into_view_if_needed()
    before = image.first.get_attribute("src")
    label = box.locator(".widget-readout").first.inner_text()
    handle.focus()
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    page.wait_for_function(
        "([node, old]) => node.innerText !== old",
        arg=[box.locator(".widget-readout").first.element_handle(), label],
        timeout=30_000,
    )
    images, source, tables = settled(page, box, before)
    assert images == 1, "one figure at a time"
    assert source != before, "the figure did not change"
    assert tables == 1, "the numbers shown, as text that screen readers reach"
    assert not errors, errors
    shots = BOOK.root / "runs" / "ui"
    shots.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=str(shots / f"{chapter}.png"))
