"""`kernevo watch --web`: the report follows its run in a real browser."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from starlette.testclient import TestClient

from evaluator.errors import UsageError
from evo import events
from evo.watch.web import Pages, app_of
from tests.evo.browsing import Opened, chromium
from tests.evo.run_maker import RunMaker, passed


@pytest.fixture
def maker(tmp_path):
    maker = RunMaker(tmp_path / "run")
    maker.add("x = 1\n", passed("x = 1\n"))
    return maker


def test_the_page_is_made_anew_when_the_run_has_news_and_only_then(maker):
    pages = Pages(maker.dir.path, every=0.0)
    first = pages.page()
    assert pages.page() is first
    maker.add("x = 2\n", passed("x = 2\n", 2.0), parent="c000000")
    assert "2.000x" in pages.page()
    slow = Pages(maker.dir.path, every=1e9)
    page = slow.page()
    maker.add("x = 3\n", passed("x = 3\n", 3.0), parent="c000001")
    assert slow.page() is page


def test_other_sites_cannot_ask_by_a_name_of_their_own(maker):
    client = TestClient(app_of(Pages(maker.dir.path, 0.0)), base_url="http://127.0.0.1")
    assert client.get("/").status_code == 200
    assert client.get("/state").json()["version"] == maker.dir.journal.stat().st_size
    assert client.get("/", headers={"Host": "evil.example"}).status_code == 400


def test_a_journal_that_is_damaged_on_the_way_is_told_in_the_browser(maker):
    client = TestClient(app_of(Pages(maker.dir.path, 0.0)), base_url="http://127.0.0.1")
    with maker.dir.journal.open("ab") as stream:
        stream.write(b"nonsense\n")
    answer = client.get("/")
    assert (answer.status_code, "damaged line" in answer.text) == (500, True)
    with pytest.raises(UsageError):
        Pages(maker.dir.path / "kernels", 0.0)


@pytest.mark.slow
def test_an_open_page_follows_the_run_and_keeps_its_place(maker):
    maker.dir.lock()
    maker.say(events.SESSION, events.Session(event="begin", seconds=0.0))
    words = [sys.executable, "-m", "evo.cli.main", "watch", str(maker.dir.path), "--web", "--port", "0"]
    with (
        chromium() as browser,
        subprocess.Popen(
            words, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": os.getcwd()}
        ) as web,
    ):
        try:
            address = re.search(r"http://\S+", web.stderr.readline()).group()
            opened = Opened(browser, address)
            opened.page.locator("details#c000000 > summary").click()
            maker.add("x = 2\n", passed("x = 2\n", 2.0), parent="c000000")
            opened.count("details#c000001", 1)
            opened.count("details#c000000[open]", 1)
            assert opened.page.locator("#live").inner_text() == "following the run"
            maker.say(events.SESSION, events.Session(event="end", reason="evaluations", seconds=5.0))
            opened.count("#live:has-text('the run has finished')", 1)
            assert opened.complaints == []
        finally:
            web.terminate()
