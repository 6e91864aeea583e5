"""What every benchmark records beside its numbers."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from evo.environment import PACKAGES, facts


def provenance(script: str) -> dict[str, Any]:
    """Commit, versions, hardware, command, date and the load other processes put on the machine."""
    known = facts("h200")
    return {
        # A copy of the tree on another machine has no history; whoever copied it may say what it is.
        "commit": os.environ.get("KERNEVO_COMMIT") or _git("rev-parse", "HEAD"),
        "uncommitted_changes": bool(_git("status", "--porcelain", "--", "evo", "policy", "evaluator")),
        "versions": {"python": known.python, **{name: known.packages[name] for name in PACKAGES}},
        "hardware": {"processor": _processor(), "cores": known.cores},
        # Where somebody keeps files on a machine is nobody's business.
        "command": " ".join(
            ["python", script, *(Path(word).name if word.startswith("/") else word for word in sys.argv[1:])]
        ),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "load_average_before": round(os.getloadavg()[0], 2),
    }


def _git(*arguments: str) -> str:
    command = ["git", *arguments]
    return subprocess.run(
        command, cwd=Path(__file__).parent.parent, capture_output=True, text=True, check=False
    ).stdout.strip()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    return next((line.split(":")[1].strip() for line in lines if "model name" in line), platform.machine())
