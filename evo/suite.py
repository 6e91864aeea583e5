"""A suite run: one campaign for each of many problems. What is finished is skipped, what was cut short is resumed.

Its folder holds a run folder for each problem and `suite.json`, which is written anew after each of them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from evaluator import loaders
from evaluator.errors import TaskError, UsageError
from evo.campaign import Campaign, CampaignResult
from evo.config import CampaignConfig
from evo.config_suite import SuiteConfig
from evo.suite_table import Row, row_of, table

STATE = "suite.json"
TABLE = "suite.md"
INDUCTOR = "inductor"
Report = Callable[[str], None]


class Suite:
    """All problems of one config. `Suite(config, folder).run()` may be called again to go on where it ended."""

    def __init__(
        self,
        config: CampaignConfig,
        folder: Path,
        start: Callable[[CampaignConfig, Path], Campaign] = Campaign,
        resume: Callable[[Path], Campaign] = Campaign.resume,
    ) -> None:
        assert config.suite is not None
        self._config, self._suite, self.folder = config, config.suite, folder
        self._start, self._resume = start, resume
        self._seconds = 0.0
        self.rows: dict[str, Row] = {}
        self.interrupted = False
        self.problems = problems(config.suite)

    def run(self, report: Report = lambda line: None) -> None:
        """Do every problem that is not done. Raises what no problem is to blame for, and `UsageError` for a folder that
        another config has used."""
        self._restore()
        for number, spec in enumerate(self.problems, 1):
            if self._suite.seconds is not None and self._seconds >= self._suite.seconds:
                break
            if (row := self.rows.get(spec)) is not None and row.done:
                continue
            began = time.monotonic()
            self.rows[spec] = self._one(spec)
            self._seconds += time.monotonic() - began
            self._save()
            report(f"{number} of {len(self.problems)}: {spec}: {self.rows[spec].said}")
            if self.interrupted:
                break
        self._save()

    def table(self) -> str:
        """What came of all problems, as Markdown."""
        return table([self.rows.get(spec) or Row(task=spec, state="not begun") for spec in self.problems])

    def _one(self, spec: str) -> Row:
        path = self.folder / file_name(spec)
        try:
            result = self._campaign(spec, path).run()
        except TaskError as error:
            return Row(task=spec, state="refused", reason=error.message)
        return self._row(spec, result)

    def _campaign(self, spec: str, path: Path) -> Campaign:
        if (path / "journal.jsonl").is_file():
            return self._resume(path)
        folder = self._suite.first_kernels
        first = None if folder is None or folder == INDUCTOR else Path(folder) / f"{file_name(spec)}.py"
        changes = {"task": spec, "suite": None, "name": path.name, "runs_dir": str(self.folder)}
        if first is not None and first.is_file():
            changes["first_kernel"] = str(first)
        if folder == INDUCTOR:
            changes["first_kernel"] = INDUCTOR
        return self._start(self._config.model_copy(update=changes), path)

    def _row(self, spec: str, result: CampaignResult) -> Row:
        self.interrupted = result.interrupted
        return row_of(spec, result.run, done=not result.interrupted)

    def _restore(self) -> None:
        path = self.folder / STATE
        if not path.is_file():
            return
        known = json.loads(path.read_text(encoding="utf-8"))
        if known["config"] != self._comparable():
            raise UsageError(
                f"{self.folder}: was begun with another config", "--name NEW starts another; or put the config back"
            )
        self._seconds = float(known["seconds"])
        self.rows = {row["task"]: Row.model_validate_json(json.dumps(row)) for row in known["rows"]}

    def _save(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        rows = [row.model_dump(mode="json") for row in self.rows.values()]
        state = {"config": self._comparable(), "seconds": self._seconds, "rows": rows}
        for name, text in ((STATE, json.dumps(state, indent=1)), (TABLE, self.table())):
            temporary = self.folder / f".{name}.tmp"
            temporary.write_text(text + "\n", encoding="utf-8")
            temporary.replace(self.folder / name)

    def _comparable(self) -> dict[str, object]:
        """All of the config that a row depends on: a later session may have more time, or other monitors."""
        config = self._config.model_dump(mode="json", exclude={"name", "runs_dir", "monitors"})
        return {**config, "suite": {**config["suite"], "seconds": None}}


def problems(config: SuiteConfig) -> list[str]:
    """The specs of all problems that a config asks for. Raises `TaskError`, and `UsageError` where none is left."""
    found = list(dict.fromkeys(spec for given in config.tasks for spec in _specs(config, given)))
    if not found:
        raise UsageError("suite: no problem is left", "ask for other levels or numbers")
    most = min(config.most or len(found), len(found))
    return [found[index * len(found) // most] for index in range(most)]


def _specs(config: SuiteConfig, given: str) -> Iterator[str]:
    if not loaders.is_suite(given):
        yield given
        return
    levelled = given.startswith("kernelbench:")
    for level in config.levels if levelled and config.levels else (None,):
        for spec, _ in loaders.problems(given, level):
            odd = int(spec.rpartition("/")[2]) % 2 if levelled else None
            if config.numbers == "all" or odd is None or (config.numbers == "odd") == bool(odd):
                yield spec


def file_name(spec: str) -> str:
    """A folder's name for a problem: `level1_24` for `kernelbench:PATH/level1/24`, unique within one suite."""
    place = spec.partition(":")[2] if loaders.is_foreign(spec) and ":" in spec else spec
    parts = [part for part in place.split("/") if part][-2:]
    return "".join(char if char.isalnum() or char in "-_" else "_" for char in "_".join(parts).removesuffix(".json"))
