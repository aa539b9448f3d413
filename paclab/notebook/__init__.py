"""The notebook workbench: what chapters call (`begin`, `explore`, `progress`) and what runs them."""

from paclab.notebook.cell import ChapterFailed, Run, begin
from paclab.notebook.widgets import explore, headless, progress

__all__ = ["ChapterFailed", "Run", "begin", "explore", "headless", "progress"]
