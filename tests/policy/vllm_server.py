"""A real vLLM server with a small real model, where KERNEVO_VLLM_PYTHON names a Python that has both."""

from __future__ import annotations

import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PYTHON = os.environ.get("KERNEVO_VLLM_PYTHON", "")
ROOT = Path(__file__).parents[2]
NAME = "kernel-writer"


def environment(**more: str) -> dict[str, str]:
    """The variables of this process and what vLLM needs to serve without a network."""
    own = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    paths = os.pathsep.join(part for part in (str(ROOT), os.environ.get("PYTHONPATH", "")) if part)
    return {**os.environ, **own, "PYTHONPATH": paths, "TRITON_DEFAULT_FP_FUSION": "1", **more}


def small_model(folder: Path) -> Path:
    """SmolLM2-135M as a model folder."""
    script = Path(__file__).with_name("small_model.py")
    subprocess.run([PYTHON, str(script), str(folder)], env=environment(), check=True, timeout=300)
    return folder


@contextmanager
def vllm_server(model: Path, log: Path, *options: str, **variables: str) -> Iterator[str]:
    """vLLM's server on a free port; its log is shown when it does not start. Gives the API's base URL."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [PYTHON, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), "--served-model-name", NAME]
    command += ["--port", str(port), "--host", "127.0.0.1", "--max-model-len", "8192", "--enforce-eager", *options]
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=environment(**variables), stdout=output, stderr=subprocess.STDOUT)
    try:
        while not _answers(port):
            assert process.poll() is None, log.read_text()[-3000:]
            time.sleep(0.5)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait(60)


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=5) as reply:
            return NAME in reply.read().decode()
    except OSError:
        return False
