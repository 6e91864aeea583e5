"""Walls of the kernel's own, each tried in a process that may be lost."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from evaluator import confine


def apart(code):
    """What a fresh process prints that runs `code`."""
    text = "from evaluator import confine\nfrom pathlib import Path\n" + textwrap.dedent(code)
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False, env={**os.environ})
    return done.stdout.strip(), done.stderr


def test_shared_memory_of_its_own_is_empty_bounded_and_seen_by_nobody_else():
    name = f"kernevo-test-{os.getpid()}"
    said, error = apart(
        f"""
        note = Path("/dev/shm/{name}")
        try:
            confine.own_shared_memory(1 << 20)
        except OSError as refusal:
            print("refused", refusal)
            raise SystemExit
        before = list(Path("/dev/shm").iterdir())
        note.write_text("for the next one")
        try:
            note.write_bytes(bytes(2 << 20))
            full = False
        except OSError:
            full = True
        print(before, full, note.exists())
        """
    )
    if said.startswith("refused"):
        pytest.skip(said)
    assert said == "[] True True", error
    assert not (confine.SHARED_MEMORY / name).exists()


def test_without_the_right_to_mount_the_refusal_is_an_error_and_nothing_changes():
    said, error = apart(
        """
        import os
        if os.getuid() == 0:
            os.setuid(65534)
        try:
            confine.own_shared_memory(1 << 20)
        except PermissionError as refusal:
            print(refusal.strerror)
        """
    )
    assert said.startswith("unshare"), error
    assert Path("/dev/shm").is_dir()
