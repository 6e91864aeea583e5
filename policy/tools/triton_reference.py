"""Triton's language reference out of the installed package: name, signature and docstring of what kernels may use.

Triton is never imported here: a process of its own (`policy.tools.triton_docstrings`) reads the docstrings, once for
each version, and the result is kept in the user's cache folder.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from evaluator.cache import default_folder, replace_file
from policy.tools.documents import Passage

logger = logging.getLogger(__name__)

LAYOUT = 1
"""Goes up when passages are made in another way, so that kept ones are made again."""
BUILD_S = 120.0

_PASSAGES = TypeAdapter(list[Passage])


def language_reference(folder: Path | None = None) -> list[Passage]:
    """The reference of the installed Triton, from `folder` (the user's cache folder when left out) or built.

    Where it cannot be built it is empty, with a warning: a model can do without it.
    """
    version = metadata.version("triton")
    path = (folder or default_folder()) / "reference" / f"triton-{version}-{LAYOUT}.json"
    kept = _kept(path)
    if kept is not None:
        return kept
    try:
        passages = _PASSAGES.validate_json(_built())
    except (OSError, subprocess.SubprocessError, ValidationError) as error:
        logger.warning("Triton's language reference is missing from search_documents: %s", error)
        return []
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, _PASSAGES.dump_json(passages))
    except OSError as error:
        logger.warning("Triton's language reference is not kept: %s", error)
    return passages


def _kept(path: Path) -> list[Passage] | None:
    try:
        return _PASSAGES.validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        logger.warning("building %s again: %s", path, str(error).splitlines()[0])
        return None


def _built() -> bytes:
    # -P and our own path: no file of the folder that a user happens to be in takes a module's place.
    command = [sys.executable, "-P", "-m", "policy.tools.triton_docstrings"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return subprocess.run(command, capture_output=True, check=True, timeout=BUILD_S, env=environment).stdout
