"""The command line with the fake judge and policy, in a process of its own: `python -m tests.evo.cli_driver ARGS`.

KERNEVO_TEST_PAUSE seconds per candidate give a signal something to hit.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from evo.cli.main import main
from tests.evo import fakes


@contextmanager
def fake_parts(pause: float = 0.0, evaluator: Callable[[], object] | None = None) -> Iterator[None]:
    """Campaigns use the fakes' task, judge and policy while this is open."""
    make = evaluator or (lambda: fakes.FakeEvaluator(pause, Path("judging")))
    with (
        mock.patch("evo.build.make_evaluator", side_effect=lambda config, task: make()),
        mock.patch("evo.build.make_policy", return_value=fakes.FakePolicy()),
        mock.patch("evo.campaign.load_task", return_value=fakes.task()),
    ):
        yield


if __name__ == "__main__":
    with fake_parts(float(os.environ.get("KERNEVO_TEST_PAUSE", "0"))):
        main()
