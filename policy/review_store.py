"""What reviewers said, kept on disk: a candidate is reviewed once by each model with each prompt."""

from __future__ import annotations

import hashlib
import json
import logging
from pathlib import Path

from evaluator.cache import replace_file
from evaluator.types import KernelSource, Task

logger = logging.getLogger(__name__)


class ReviewStore:
    """Answers of one model to one version of the prompt. Safe to share between processes.

    The task is in the key as well: what is honest depends on the reference. A disk that cannot be written costs the
    cache and nothing else.
    """

    def __init__(self, folder: Path | None, model: str, prompt_version: str) -> None:
        self.prompt_version = prompt_version
        self._model = model
        reviewer = hashlib.sha256(model.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        self._folder = None if folder is None else folder / "reviews" / reviewer / prompt_version
        self._warned = False

    def get(self, source: KernelSource, task: Task) -> str | None:
        """The kept answer, or None."""
        path = self._path(source, task)
        if path is None:
            return None
        try:
            kept = json.loads(path.read_bytes())
            if (kept["model"], kept["candidate"]) == (self._model, source.sha) and isinstance(kept["answer"], str):
                return str(kept["answer"])
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            logger.warning("ignoring the unreadable review %s: %s", path, error)
            return None
        logger.warning("ignoring the review %s: it belongs to another candidate or model", path)
        return None

    def put(self, source: KernelSource, task: Task, answer: str) -> None:
        """Keep an answer."""
        path = self._path(source, task)
        if path is None:
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, json.dumps({"model": self._model, "candidate": source.sha, "answer": answer}).encode())
        except OSError as error:
            if not self._warned:
                logger.warning("reviews are not kept: %s", error)
                self._warned = True

    def _path(self, source: KernelSource, task: Task) -> Path | None:
        if self._folder is None:
            return None
        return self._folder / source.sha[:2] / f"{source.sha}-{task.fingerprint[:16]}.json"
