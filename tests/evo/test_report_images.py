"""The report's figures as files."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from evo.report import images
from evo.report.images import write_images
from tests.evo.browsing import CHROMIUM
from tests.evo.cli_call import call
from tests.evo.run_maker import RunMaker, passed
from tests.evo.test_report import EVIL

kaleido = pytest.mark.skipif(not images.has_kaleido() or CHROMIUM is None, reason="no kaleido or no Chromium here")


@pytest.fixture
def run(tmp_path):
    maker = RunMaker(tmp_path / "run")
    seed = maker.add("x = 1\n", passed("x = 1\n"))
    maker.add("x = 2\n", passed("x = 2\n", 2.0, kernel=EVIL), parent=seed)
    maker.end_generation({"dram/1d/whole/pointer/low/1": seed})
    return maker.load()


@kaleido
@pytest.mark.slow
def test_every_figure_becomes_an_image(run, tmp_path, monkeypatch):
    monkeypatch.setenv("BROWSER_PATH", str(CHROMIUM))
    vectors = write_images(run, tmp_path / "svg", "svg")
    assert {path.stem for path in vectors} >= {"convergence", "clock", "judging", "funnel", "archive", "roofline"}
    for path in vectors:
        assert ET.parse(path).getroot().tag.endswith("svg")
    drawn = write_images(run, tmp_path / "png", "png")
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in drawn)


def test_without_kaleido_the_extra_is_named(run, tmp_path, monkeypatch):
    monkeypatch.setattr(images, "has_kaleido", lambda: False)
    outcome = call("report", run.path, "--figures", tmp_path / "out")
    assert outcome.code == 4
    assert "kernevo[figures]" in outcome.err


def test_a_browser_that_does_not_start_is_an_environment_error(run, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("no browser\nmore")

    monkeypatch.setattr(images, "has_kaleido", lambda: True)
    monkeypatch.setattr("plotly.io.write_images", fail, raising=False)
    outcome = call("report", run.path, "--figures", tmp_path / "out")
    assert outcome.code == 4
    assert "could not be drawn: no browser" in outcome.err


def test_options_that_do_not_go_together_are_refused(run, tmp_path):
    assert call("report", run.path, "--png").code == 2
    assert call("report", run.path, "--figures", tmp_path, "--out", tmp_path / "p.html").code == 2
