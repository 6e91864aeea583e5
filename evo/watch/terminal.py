"""The live view in a terminal, or plain lines where stdout is none."""

from __future__ import annotations

import sys
import time

from rich.console import Console
from rich.live import Live

from evo.watch.state import Watcher
from evo.watch.view import plain_line, view


def watch(watcher: Watcher, every: float) -> None:
    """Show the run until its session ends; looks for news `every` seconds. Raises JournalError for a damaged one."""
    watcher.refresh()
    if not sys.stdout.isatty():
        _lines(watcher, every)
        return
    with Live(view(watcher), console=Console(), auto_refresh=False, transient=False) as live:
        while watcher.status == "running":
            time.sleep(every)
            watcher.refresh()
            live.update(view(watcher), refresh=True)


def _lines(watcher: Watcher, every: float) -> None:
    """A line at once, and one for each generation that ends."""
    print(plain_line(watcher), flush=True)
    shown = watcher.state.generations, watcher.status
    while watcher.status == "running":
        time.sleep(every)
        watcher.refresh()
        if (watcher.state.generations, watcher.status) != shown:
            shown = watcher.state.generations, watcher.status
            print(plain_line(watcher), flush=True)
