"""Worker processes that never outlive the process that started them; knows nothing of what they do."""

import multiprocessing
import os
import threading


def leave_with_parent() -> None:
    """End this worker when the process that started it is gone, however it went: an initialiser for process pools."""
    parent = multiprocessing.parent_process()
    threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()
