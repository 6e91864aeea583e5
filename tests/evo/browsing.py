"""A headless Chromium for tests, Debian's, driven by playwright; without one they are skipped and say why."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = ("--disable-background-networking", "--disable-component-update", "--no-first-run")


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser; one serves many pages."""
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright here (pip install -e .[dev])")
    if CHROMIUM is None:
        pytest.skip("no Chromium here (apt-get install chromium)")
    sandbox = ("--no-sandbox",) if os.geteuid() == 0 else ()
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=[*FLAGS, *sandbox])
        yield browser
        browser.close()


class Opened:
    """A page with everything it complained about and asked for."""

    def __init__(self, browser: Any, address: str, *, drawn: bool = True, **settings: Any) -> None:
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.context = browser.new_context(**settings)
        self.page = self.context.new_page()
        self.page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        self.page.on("dialog", self._dialog)
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(address)
        if drawn:
            self.count(UNDRAWN, 0)

    def _dialog(self, dialog: Any) -> None:
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def count(self, selector: str, wanted: int) -> None:
        """Wait until so many elements match. The page's own policy forbids to wait for scripts of ours."""
        expect = pytest.importorskip("playwright.sync_api").expect
        expect(self.page.locator(selector)).to_have_count(wanted, timeout=30_000)

    def ask(self, script: str) -> Any:
        """The value of an expression in the page."""
        return self.page.evaluate(script)


UNDRAWN = "[data-figure]:not(:has(.main-svg))"


def address(path: Path, anchor: str = "") -> str:
    """A file as an address."""
    return path.resolve().as_uri() + (f"#{anchor}" if anchor else "")
