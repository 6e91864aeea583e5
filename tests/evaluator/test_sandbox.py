from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from evaluator import sandbox
from evaluator.sandbox import Limits


@pytest.fixture(scope="module")
def walls():
    return sandbox.capabilities()


def run_confined(tmp_path, code, limits=None):
    """Run `code` in a fresh process after it has entered the sandbox."""
    arguments = f"sandbox.Limits(**{(limits or Limits()).model_dump()}), (), Path({str(tmp_path)!r}), 7"
    script = (
        "import json, os, sys\nfrom pathlib import Path\nfrom evaluator import sandbox\n"
        f"walls = sandbox.enter({arguments})\n" + code
    )
    return subprocess.run(
        [sys.executable, "-P", "-c", script],
        env=sandbox.environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def refused(tmp_path, code):
    done = run_confined(tmp_path, f"try:\n    {code}\nexcept OSError as error:\n    print(type(error).__name__)\n")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_every_wall_is_reported_with_its_state(walls):
    assert {"network", "user", "files", "system calls", "processes"} <= set(walls)
    assert all(walls.values())


def test_a_process_cannot_be_started(tmp_path, walls):
    if walls["processes"] != "on":
        pytest.skip(walls["processes"])
    assert refused(tmp_path, "os.fork()") == "BlockingIOError"


def test_another_program_cannot_be_run_in_its_place(tmp_path, walls):
    if walls["system calls"] != "on":
        pytest.skip(walls["system calls"])
    assert refused(tmp_path, "os.execv('/bin/true', ['true'])") == "PermissionError"


def test_a_socket_cannot_be_opened(tmp_path, walls):
    if walls["system calls"] != "on":
        pytest.skip(walls["system calls"])
    assert refused(tmp_path, "import socket; socket.socket()") == "PermissionError"


def test_another_process_cannot_be_signalled(tmp_path, walls):
    if walls["system calls"] != "on":
        pytest.skip(walls["system calls"])
    assert refused(tmp_path, "os.kill(os.getppid(), 0)") == "PermissionError"


def test_files_outside_cannot_be_read(tmp_path, walls):
    if walls["files"] != "on":
        pytest.skip(walls["files"])
    assert refused(tmp_path, "open('/etc/passwd').read()") == "PermissionError"


def test_the_environment_and_memory_of_the_parent_cannot_be_read(tmp_path, walls):
    if walls["files"] != "on" and walls["user"] != "on":
        pytest.skip(walls["files"])
    for name in ("environ", "mem", "maps"):
        assert refused(tmp_path, f"open('/proc/%d/{name}' % os.getppid(), 'rb').read(1)") == "PermissionError"


def test_files_can_be_written_in_its_own_folder_only(tmp_path, walls):
    if walls["files"] != "on":
        pytest.skip(walls["files"])
    done = run_confined(tmp_path, "Path('own.txt').write_text('x')\nprint(Path('own.txt').read_text())")
    assert done.stdout.strip() == "x", done.stderr
    outside = tmp_path.parent / "outside.txt"
    assert refused(tmp_path, f"open({str(outside)!r}, 'w')") == "PermissionError"
    assert not outside.exists()


def test_files_are_walled_off_for_an_ordinary_user_too(walls):
    if walls["files"] != "on":
        pytest.skip("no Landlock on this machine")
    program = """
import os
from pathlib import Path
from evaluator import confine, sandbox
if os.getuid() == 0:
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
print(sandbox.attempt(lambda: confine.restrict_files([Path("/usr")], [])))
try:
    os.listdir("/")
except PermissionError:
    print("walled")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.split() == ["on", "walled"], done.stderr


def test_memory_is_limited_on_top_of_what_is_mapped(tmp_path):
    code = (
        "try:\n    bytearray(300 << 20)\nexcept MemoryError:\n    print('refused')\nbytearray(50 << 20)\nprint('fine')"
    )
    done = run_confined(tmp_path, code, Limits(memory_bytes=200 << 20))
    assert done.stdout.split() == ["refused", "fine"], done.stderr


def test_a_file_cannot_grow_beyond_its_limit(tmp_path):
    code = "try:\n    Path('big').write_bytes(bytes(2 << 20))\nexcept OSError as error:\n    print(error.errno)"
    done = run_confined(tmp_path, code, Limits(file_bytes=1 << 20))
    assert done.stdout.strip() == "27", done.stderr


def test_inherited_descriptors_are_closed(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("secret")
    descriptor = os.open(secret, os.O_RDONLY)
    os.set_inheritable(descriptor, True)
    home = tmp_path / "home"
    home.mkdir()
    script = (
        "import os\nfrom pathlib import Path\nfrom evaluator import sandbox\n"
        f"sandbox.enter(sandbox.Limits(), (), Path({str(home)!r}))\n"
        f"try:\n    os.read({descriptor}, 1)\nexcept OSError as error:\n    print(error.errno)"
    )
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", script],
            env=sandbox.environment(home),
            capture_output=True,
            text=True,
            pass_fds=[descriptor],
            check=False,
        )
    finally:
        os.close(descriptor)
    assert done.stdout.strip() == "9", done.stderr


def test_root_gives_up_its_user(tmp_path, walls):
    if os.getuid() != 0 or walls["user"] != "on":
        pytest.skip("not root, or the user cannot be changed here")
    done = run_confined(tmp_path, "print(json.dumps([os.getuid(), os.geteuid(), os.getgid(), os.getgroups()]))")
    uid, effective, gid, groups = json.loads(done.stdout)
    assert uid == effective == gid == sandbox.FIRST_UID + 7
    assert groups == []


def test_the_environment_is_an_allow_list(tmp_path, monkeypatch):
    monkeypatch.setenv("API_TOKEN", "hunter2")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    made = sandbox.environment(tmp_path)
    assert "hunter2" not in "".join(made.values())
    assert made["HOME"] == made["TMPDIR"] == str(tmp_path)
    assert made["TRITON_CACHE_DIR"].startswith(str(tmp_path))
