"""The notebook workbench: what chapters call (`begin`, `explore`, `progress`) and what runs them."""

from paclab.notebook.cell import ChapterFailed, Run, begin
from paclab.notebook.exercises import check_answer
from paclab.notebook.widgets import explore, headless, progress

__all__ = ["ChapterFailed", "Run", "begin", "check_answer", "explore", "headless", "progress"]
