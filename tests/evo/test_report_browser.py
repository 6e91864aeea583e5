"""The report in a real browser: headless Chromium."""

from __future__ import annotations

import math

import pytest

from evaluator.types import EvalStatus
from evo.report import render
from tests.evo.browsing import Opened, address, chromium
from tests.evo.driver import campaign
from tests.evo.run_maker import RunMaker, failed, passed, prompt
from tests.evo.test_report import EVIL

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def browser():
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return campaign(tmp_path_factory.mktemp("work") / "one", "start").run().run


@pytest.fixture(scope="module")
def path(run, tmp_path_factory):
    return render(run, tmp_path_factory.mktemp("page") / "report.html")


@pytest.fixture
def best(run):
    return run.elites(1)[0].id


@pytest.fixture
def opened(browser):
    pages = []

    def open_page(where, **settings):
        pages.append(Opened(browser, where, **settings))
        return pages[-1]

    yield open_page
    for page in pages:
        page.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_figures_are_drawn_without_a_complaint_and_nothing_else_is_fetched(opened, path, scheme):
    shown = opened(address(path), color_scheme=scheme)
    assert shown.ask("document.querySelectorAll('.plot .main-svg').length") >= 7
    assert shown.complaints == []
    assert [url for url in shown.requests if not url.startswith(("data:", "blob:"))] == [address(path)]


def test_dark_and_light_follow_the_system_also_after_the_page_is_open(opened, path):
    shown = opened(address(path), color_scheme="light")
    color = "getComputedStyle(document.body).backgroundColor"
    light, ink = shown.ask(color), shown.ask("document.querySelector('.plot .xtitle').style.fill")
    shown.page.emulate_media(color_scheme="dark")
    shown.count(f".plot .xtitle[style*='{ink}']", 0)
    assert shown.ask(color) != light


def test_a_click_on_a_node_of_the_tree_shows_the_source_diff_beside_each_other(opened, path, best):
    shown = opened(address(path))
    step = shown.page.locator(f"details#{best}")
    assert not step.locator(".diff").is_visible()
    shown.page.locator(f"svg a[href='#{best}'] circle").click()
    shown.count(f"details#{best}[open]", 1)
    assert step.locator(".diff").is_visible()
    old, new = (step.locator(f".row.change .{side}").first.bounding_box() for side in ("old", "new"))
    assert old["y"] == new["y"]
    assert old["x"] + old["width"] <= new["x"]
    assert shown.complaints == []


def test_a_closed_step_opens_again_from_the_same_node(opened, path, best):
    shown = opened(address(path, best))
    step = shown.page.locator(f"details#{best}")
    step.locator("> summary").click()
    shown.count(f"details#{best}[open]", 0)
    assert not step.locator(".diff").is_visible()
    shown.page.locator(f"svg a[href='#{best}'] circle").click()
    shown.count(f"details#{best}[open]", 1)
    assert step.locator(".diff").is_visible()


def test_the_answer_of_a_step_can_be_opened(opened, path, run, best):
    line = [record for record in run.lineage(best) if record.candidate.answer]
    shown = opened(address(path, line[-1].id))
    step = shown.page.locator(f"details#{line[-1].id}")
    step.locator("summary", has_text="Answer").click()
    assert line[-1].candidate.answer.split("\n")[0] in step.locator("pre").last.inner_text()


def test_everything_can_be_done_with_the_keyboard(opened, path, best):
    shown = opened(address(path))
    shown.page.keyboard.press("Tab")
    assert shown.ask("document.activeElement.className") == "skip"
    shown.page.keyboard.press("Enter")
    shown.count("#main:target", 1)
    for _ in range(200):
        shown.page.keyboard.press("Tab")
        if shown.ask("document.activeElement.getAttribute('href')") == f"#{best}":
            break
    else:
        pytest.fail("Tab never reaches the best candidate's node")
    assert shown.ask("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    shown.page.keyboard.press("Enter")
    shown.count(f"details#{best}[open] .diff", 1)
    assert shown.ask("document.activeElement.tagName") == "SUMMARY"
    shown.page.keyboard.press("Space")
    shown.count(f"details#{best}[open]", 0)


def test_a_narrow_screen_scrolls_down_only_and_puts_the_old_line_above_the_new(opened, path, best):
    shown = opened(address(path, best), viewport={"width": 360, "height": 740})
    assert shown.ask("document.documentElement.scrollWidth") <= 360
    step = shown.page.locator(f"details#{best}")
    old, new = (step.locator(f".row.change .{side}").first.bounding_box() for side in ("old", "new"))
    assert old["y"] + old["height"] <= new["y"] + 1
    assert abs(old["x"] - new["x"]) < 1


def test_without_scripts_every_number_is_still_there(opened, path, best):
    shown = opened(address(path), java_script_enabled=False, drawn=False)
    figure = shown.page.locator("figure", has_text="Best speedup against evaluations").first
    figure.locator("summary").click()
    assert best in figure.locator("table").inner_text()


def test_hostile_text_is_shown_and_does_nothing(opened, tmp_path):
    maker = RunMaker(tmp_path / "run")
    first = maker.add("x = 1\n", passed("x = 1\n"))
    source = f"x = 1  # {EVIL}\ny = '{'z' * 1_000_000}'\n"
    hostile = {"explanation": EVIL, "answer": EVIL, "messages": prompt(EVIL), "policy": EVIL, "operator": EVIL}
    last = maker.add(source, passed(source, 2.0, kernel=EVIL, bound=EVIL), parent=first, **hostile)
    maker.add("z", failed("z", EvalStatus.COMPILE_ERROR, "compile", EVIL), parent=first)
    maker.end_generation({f"{EVIL.replace('/', '')}/1d/whole/pointer/low/1": first})
    shown = opened(address(render(maker.load(), tmp_path / "page.html"), last))
    assert shown.complaints == []
    assert shown.ask("document.images.length") == 0
    assert "<img src=x onerror=alert(2)>␛[31mred" in shown.page.locator(f"details#{last} .body").inner_text()
    assert shown.ask("document.documentElement.scrollWidth <= innerWidth")


def test_numbers_that_are_none_and_a_run_without_a_correct_kernel_are_drawn_without_a_complaint(opened, tmp_path):
    maker = RunMaker(tmp_path / "run")
    maker.add("x = 1\n", failed("x = 1\n", EvalStatus.WRONG_VALUE, "smoke", "3 of 8 values differ"))
    maker.end_generation()
    shown = opened(address(render(maker.load(), tmp_path / "none.html")))
    assert "no correct kernel" in shown.page.locator("header").inner_text()
    maker.add("x = 2\n", passed("x = 2\n", latency_ms=math.nan, waves=math.inf, terms={"dram": math.nan}))
    maker.end_generation()
    odd = opened(address(render(maker.load(), tmp_path / "odd.html")))
    assert "1.000x" in odd.page.locator("header").inner_text()
    assert shown.complaints == odd.complaints == []
