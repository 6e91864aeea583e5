"""Verdicts kept on disk by content: the same source on the same task with the same evaluator is judged once.

One JSON file per verdict, written beside its place and renamed, so that readers (other runs included) never see
half a file. A file that cannot be read is ignored with a warning and judged again; a disk that cannot be
written costs the cache, never the run.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from evaluator.types import EvalStatus, Evaluation, KernelSource

logger = logging.getLogger(__name__)

# These say something about the machine or the campaign at that moment, not about the source.
_NEVER_KEPT = frozenset({EvalStatus.HARNESS_ERROR, EvalStatus.WORKER_LOST, EvalStatus.TIMEOUT, EvalStatus.DUPLICATE})


def default_folder() -> Path:
    """`$XDG_CACHE_HOME/kernevo`, or `~/.cache/kernevo`."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "kernevo"


class VerdictCache:
    """Verdicts under one context: everything beside the source that can change a verdict.

    Thread-safe and safe to share between processes.
    """

    def __init__(self, folder: Path, context: Mapping[str, object]) -> None:
        digest = hashlib.sha256(json.dumps(context, sort_keys=True, default=str).encode()).hexdigest()
        self._folder = folder / "verdicts" / digest[:32]
        self._warned = False

    def path(self, source: KernelSource) -> Path:
        """Where the verdict of `source` lies or would lie."""
        return self._folder / source.sha[:2] / f"{source.sha}.json"

    def get(self, source: KernelSource) -> Evaluation | None:
        """The kept verdict with `cached=True`, or None."""
        path = self.path(source)
        try:
            evaluation = Evaluation.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValidationError) as error:
            logger.warning("ignoring the unreadable verdict %s: %s", path, str(error).splitlines()[0])
            return None
        if evaluation.source_sha != source.sha:
            logger.warning("ignoring the verdict %s: it belongs to another source", path)
            return None
        return evaluation.model_copy(update={"cached": True})

    def put(self, source: KernelSource, evaluation: Evaluation) -> None:
        """Keep `evaluation`, unless it speaks of the moment rather than of the source."""
        if evaluation.status in _NEVER_KEPT:
            return
        path = self.path(source)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, evaluation.model_dump_json().encode())
        except OSError as error:
            if not self._warned:
                logger.warning("verdicts are not kept: %s", error)
                self._warned = True


def replace_file(path: Path, data: bytes) -> None:
    """Write beside `path` and rename, so that readers never see half a file. Raises OSError."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.replace(name, path)
    except OSError:
        os.unlink(name)
        raise
