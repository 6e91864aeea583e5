from __future__ import annotations

import json
import math
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.errors import EnvironmentUnusableError, UsageError
from evaluator.types import EvalStatus
from evo.report import data, render
from evo.report.diff import MAX_ROWS, side_by_side
from evo.report.text import clip, visible
from tests.evo.driver import campaign
from tests.evo.run_maker import RunMaker, failed, passed, prompt

VOID = {"meta", "link", "br", "img", "input", "hr"}
EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\x1b[31mred\u202e<b>{{ 7 * 7 }}{% raw %}"


class Page(HTMLParser):
    """Elements with their attributes and the text inside; fails on tags that do not nest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.blocks: list[str] = []
        self._open: list[str] = []
        self._text: list[str] = []
        self.feed(text)
        assert self._open == []
        self.text = "".join(self._text)
        self.words = " ".join(" ".join(self._text).split())

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, text):
        if self._open and self._open[-1] in ("script", "style"):
            self.blocks.append(text)
        else:
            self._text.append(text)

    def tags(self, name):
        return [attributes for tag, attributes in self.elements if tag == name]

    @property
    def figures(self):
        return json.loads(next(block for block in self.blocks if block.startswith(("{", "{}"))))


def page(run, tmp_path) -> tuple[str, Page]:
    text = render(run, tmp_path / "page.html").read_text(encoding="utf-8")
    return text, Page(text)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return campaign(tmp_path_factory.mktemp("work") / "one", "start").run().run


@pytest.fixture
def maker(tmp_path):
    return RunMaker(tmp_path / "run")


def test_the_report_lies_in_the_run_unless_told_otherwise(run, tmp_path):
    assert render(run) == run.path / "report.html"
    assert render(run, tmp_path / "new" / "other.html") == tmp_path / "new" / "other.html"


def test_the_best_speedup_is_called_modelled_and_says_over_what(run, tmp_path):
    _, found = page(run, tmp_path)
    words = " ".join(found.text.split())
    assert f"{run.elites(1)[0].speedup:.3f}x modelled for h200 over the task's seed kernel" in words
    assert "a cost model says so, no clock does" in words


def test_the_page_fetches_nothing_and_is_small(run, tmp_path):
    text, found = page(run, tmp_path)
    assert len(text.encode()) <= 3_000_000
    addresses = [
        value for _, attributes in found.elements for name, value in attributes.items() if name in ("src", "href")
    ]
    assert all(address.startswith(("#", "data:")) for address in addresses)
    policy = found.tags("meta")[1]["content"]
    assert "default-src 'none'" in policy
    assert "unsafe-eval" not in policy


def test_verdict_counts_add_up_to_the_candidates(run, tmp_path):
    findings = data.gather(run)
    assert sum(verdict.count for verdict in findings.verdicts) == findings.judged == 60
    _, found = page(run, tmp_path)
    for verdict in findings.verdicts:
        assert verdict.status in found.text


def test_every_step_of_the_best_lineage_can_be_opened_for_its_diff_prompt_and_answer(run, tmp_path):
    text, found = page(run, tmp_path)
    steps = {attributes["id"]: attributes for attributes in found.tags("details") if "id" in attributes}
    for record in run.lineage(run.elites(1)[0].id):
        assert record.id in steps
    assert text.count('class="row change"') >= len(run.lineage(run.elites(1)[0].id)) - 1
    assert "&#34;name&#34;: &#34;grow&#34;" in text


def test_each_candidate_is_shown_once_and_every_link_leads_somewhere(run, tmp_path):
    _, found = page(run, tmp_path)
    anchors = [attributes["id"] for _, attributes in found.elements if "id" in attributes]
    assert len(anchors) == len(set(anchors))
    links = {attributes["href"] for attributes in found.tags("a")}
    assert links <= {f"#{anchor}" for anchor in anchors}


def test_figures_are_valid_plotly(run, tmp_path):
    import plotly.graph_objects as go

    _, found = page(run, tmp_path)
    assert set(found.figures) >= {"convergence", "clock", "funnel", "archive", "terms"}
    for spec in found.figures.values():
        go.Figure(spec)


def test_convergence_never_falls(run, tmp_path):
    _, found = page(run, tmp_path)
    best = found.figures["convergence"]["data"][1]["y"]
    assert best == sorted(best)
    assert best[-1] == pytest.approx(run.elites(1)[0].speedup)


def test_the_archive_shows_levels_in_their_order_and_leaves_empty_cells_empty(maker, tmp_path):
    ids = [maker.add(f"x = {n}\n", passed(f"x = {n}\n", 1.0 + n)) for n in range(3)]
    words = ("dram/1d/whole/pointer/high/1", "l2/1d/whole/pointer/middle/1", "dram/1d/whole/pointer/low/1")
    maker.end_generation(dict(zip(words, ids, strict=True)))
    [heat] = page(maker.load(), tmp_path)[1].figures["archive"]["data"]
    assert heat["x"] == ["low", "middle", "high"]
    assert heat["y"] == ["dram", "l2"]
    assert heat["text"] == [["3.00x", "", "1.00x"], ["", "2.00x", ""]]


def test_hostile_kernels_prompts_and_names_are_only_shown(maker, tmp_path):
    source = f"x = 1  # {EVIL}\ny = '{'z' * 1_000_000}'\n"
    first = maker.add("x = 1\n", passed("x = 1\n"))
    hostile = {"explanation": EVIL, "answer": EVIL + "\ud800", "messages": prompt(EVIL), "policy": EVIL}
    maker.add(source, passed(source, 2.0, kernel=EVIL, bound=EVIL), parent=first, operator=EVIL, **hostile)
    maker.add("z", failed("z", EvalStatus.COMPILE_ERROR, "compile", EVIL), parent=first)
    maker.end_generation({f"{EVIL.replace('/', '')}/1d/whole/pointer/low/1": first})
    text, found = page(maker.load(), tmp_path)
    assert [attributes.get("type") for attributes in found.tags("script")] == [
        "application/json",
        "application/gzip+base64",
        None,
    ]
    assert found.tags("img") == []
    assert not re.search("[\x00-\x08\x0b-\x1f\u202e\ud800-\udfff]", text)
    assert "␛[31m" in found.text
    assert "{{ 7 * 7 }}" in found.text
    assert len(text) < 4_000_000


def test_labels_of_figures_are_escaped_twice_because_plotly_reads_them_as_html(maker, tmp_path):
    maker.add("x = 1\n", passed("x = 1\n", kernel="<a href='javascript:1'>k</a>"))
    _, found = page(maker.load(), tmp_path)
    [hover] = found.figures["roofline"]["data"][0]["text"]
    assert "<a" not in hover
    assert "&lt;a" in hover


def test_numbers_that_are_no_numbers_are_dashes(maker, tmp_path):
    broken = {"latency_ms": math.nan, "waves": math.inf, "occupancy": math.nan, "terms": {"dram": math.nan}}
    evaluation = passed("x = 1\n", **broken)
    odd = evaluation.timings["w"].model_copy(update={"speed_of_light_ms": math.nan, "ratio_low": math.nan})
    maker.add(
        "x = 1\n", evaluation.model_copy(update={"timings": {"w": odd}, "seconds": math.nan, "max_error": math.inf})
    )
    maker.end_generation()
    _, found = page(maker.load(), tmp_path)
    assert "nan" not in found.text.lower()
    assert "NaN" not in json.dumps(found.figures)


def test_a_run_without_a_correct_candidate_says_so(maker, tmp_path):
    maker.add("x = 1\n", failed("x = 1\n", EvalStatus.WRONG_VALUE, "smoke", "3 of 8 values differ"))
    maker.end_generation()
    _, found = page(maker.load(), tmp_path)
    assert "no correct kernel" in found.text
    assert "3 of 8 values differ" in found.text
    assert set(found.figures) == {"funnel"}


def test_a_run_that_has_judged_nothing_yet_says_so(maker, tmp_path):
    text, found = page(maker.load(), tmp_path)
    assert "nothing judged yet" in found.text
    assert len(text) < 100_000


def test_a_lost_kernel_file_is_named_and_the_rest_is_shown(maker, tmp_path):
    first = maker.add("x = 1\n", passed("x = 1\n"))
    maker.add("x = 2\n", passed("x = 2\n", 2.0), parent=first)
    next(iter(maker.dir.kernels.glob("*.py"))).unlink()
    _, found = page(maker.load(), tmp_path)
    assert "The source cannot be shown" in found.text
    assert "2.000x" in found.text


def test_a_task_that_is_gone_does_not_hide_the_results(tmp_path):
    maker = RunMaker(tmp_path / "run", task="tasks/gone")
    maker.add("x = 1\n", passed("x = 1\n"))
    _, found = page(maker.load(), tmp_path)
    assert "could not be loaded any more" in found.text
    assert "1.000x" in found.text


def test_a_place_that_cannot_be_written_is_an_environment_error(run, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentUnusableError, match="--out"):
        render(run, tmp_path / "file" / "report.html")
    with pytest.raises(UsageError, match="a folder"):
        render(run, tmp_path)


def test_the_funnel_counts_who_reached_and_who_ended_in_each_stage():
    judged = [
        passed("a"),
        failed("b", EvalStatus.SYNTAX_ERROR, "static"),
        failed("c", EvalStatus.COMPILE_ERROR, "compile"),
        failed("d", EvalStatus.WRONG_VALUE, "smoke"),
        failed("e", EvalStatus.OUT_OF_BOUNDS, "smoke"),
    ]
    found = {stage.name: (stage.reached, sum(stage.stopped.values())) for stage in data.stages(judged)}
    assert found == {"static": (5, 1), "compile": (4, 1), "smoke": (3, 2), "model": (1, 0)}
    assert list(found) == ["static", "compile", "smoke", "model"]


def test_credit_counts_only_gains_over_both_parent_and_baseline(maker):
    seed = maker.add("x = 1\n", passed("x = 1\n", 1.0))
    slow = maker.add("x = 2\n", passed("x = 2\n", 0.5), parent=seed)
    maker.add("x = 3\n", passed("x = 3\n", 0.9), parent=slow)
    fast = maker.add("x = 4\n", passed("x = 4\n", 2.0), parent=slow)
    maker.add("x = 5\n", passed("x = 5\n", 3.0), parent=fast)
    maker.add("x = 6\n", failed("x = 6\n", EvalStatus.WRONG_VALUE, "smoke"), parent=fast)
    [credit] = data.gather(maker.load()).rewrites
    assert (credit.tried, credit.correct, credit.better) == (5, 4, 2)
    assert credit.best_gain == pytest.approx(2.0)
    assert credit.total == pytest.approx(math.log(2) + math.log(1.5))


def test_thinning_ten_thousand_candidates_keeps_every_improvement(maker):
    seed = maker.add("x = 1\n", passed("x = 1\n"))
    [record] = maker.load().records()
    assert record.id == seed
    steps = [1 + (number % 97) / 1000 + (number // 1000) / 10 for number in range(10_000)]
    timing = record.evaluation.timings["w"]
    records = [
        record.model_copy(
            update={
                "evaluation": record.evaluation.model_copy(
                    update={"timings": {"w": timing.model_copy(update={"median_ms": 1 / step})}}
                )
            }
        )
        for step in steps
    ]
    found = data.points(records)
    assert len(found) < 2 * data.MAX_POINTS
    best, improvements = 0.0, []
    for number, one in enumerate(records, start=1):
        if one.speedup > best:
            best = one.speedup
            improvements.append(number)
    assert [point.evaluation for point in found if point.improves] == improvements


lines = st.lists(st.sampled_from(["a", "b", "c", "", "  d"]), max_size=25)


@given(lines, lines)
def test_a_diff_shows_every_changed_line_of_both_sides(old, new):
    diff = side_by_side("\n".join(old), "\n".join(new))
    changed = [row for row in diff.rows if row.kind not in ("same", "gap")]
    assert sum(row.left_number is not None for row in changed) == diff.removed
    assert sum(row.right_number is not None for row in changed) == diff.added
    for row in diff.rows:
        if row.left_number is not None:
            assert row.left == "\n".join(old).split("\n")[row.left_number - 1]
        if row.right_number is not None:
            assert row.right == "\n".join(new).split("\n")[row.right_number - 1]


def test_a_huge_diff_is_bounded_and_says_so():
    old = "\n".join(f"x{number} = 1" for number in range(20_000))
    diff = side_by_side(old, old.replace("1", "2"))
    assert len(diff.rows) <= MAX_ROWS
    assert diff.cut


@given(st.text(st.characters(), max_size=200))
def test_visible_text_can_be_written_as_utf_8_and_acts_on_nothing(text):
    shown = visible(text)
    shown.encode("utf-8")
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", shown)


def test_clipped_text_says_what_is_missing():
    assert clip("x" * 1000).endswith("(+600 characters)")
    assert clip("line\n" * 10_000, limit=100).endswith("lines)")
