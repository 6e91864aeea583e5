"""Real vLLM with a small real model (SmolLM2-135M), where KERNEVO_VLLM_PYTHON names a Python that has both.

`make vllm-venv` makes one. The model cannot write Triton; it chooses structured rewrites, which proves the machinery.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from evo.run import Run
from evo.turns import turns_of_run

PYTHON = os.environ.get("KERNEVO_VLLM_PYTHON", "")
ROOT = Path(__file__).parents[2]
NAME = "kernel-writer"

pytestmark = [
    pytest.mark.skipif(not PYTHON, reason="set KERNEVO_VLLM_PYTHON; make vllm-venv"),
    pytest.mark.slow,
    pytest.mark.timeout(900),
]


def environment() -> dict[str, str]:
    own = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    paths = os.pathsep.join(part for part in (str(ROOT), os.environ.get("PYTHONPATH", "")) if part)
    return {**os.environ, **own, "PYTHONPATH": paths, "TRITON_DEFAULT_FP_FUSION": "1"}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    script = Path(__file__).with_name("small_model.py")
    subprocess.run([PYTHON, str(script), str(folder)], env=environment(), check=True, timeout=300)
    return folder


@pytest.fixture(scope="module")
def server(model, tmp_path_factory):
    """vLLM's server on a free port; its log is shown when it does not start."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = tmp_path_factory.mktemp("server") / "log.txt"
    options = ["--model", str(model), "--served-model-name", NAME, "--port", str(port), "--host", "127.0.0.1"]
    options += ["--max-model-len", "8192", "--enforce-eager"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                PYTHON,
                "-m",
                "vllm.entrypoints.openai.api_server",
                *options,
                "--max-model-len",
                "8192",
                "--enforce-eager",
            ],
            env=environment(),
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        while not answers(port):
            assert process.poll() is None, log.read_text()[-3000:]
            time.sleep(0.5)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait(60)


def answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=5) as reply:
            return NAME in reply.read().decode()
    except OSError:
        return False


def kernevo(python: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [python, "-m", "evo.cli.main", *arguments]
    return subprocess.run(command, env=environment(), capture_output=True, text=True, check=False, timeout=800)


def asked_of(run: Path) -> dict:
    return json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])["policy"]


SMALL = (
    *("--set", "search.offspring=4", "--set", "search.population=4", "--set", "policy.max_tokens=128"),
    *("--set", "budget.evaluations=null"),
)


def test_ten_generations_of_structured_rewrites_from_a_server_are_applied_and_judged(server, tmp_path):
    settings = (f"policy.base_url={server}", f"runs_dir={tmp_path}", "budget.generations=11", "policy.send_seed=false")
    chosen = [part for setting in settings for part in ("--set", setting)]
    config = str(ROOT / "configs" / "llm.yaml")
    checked = kernevo(sys.executable, "doctor", "--policy", config, "--set", f"policy.base_url={server}")
    assert checked.returncode in (0, 2), checked.stdout + checked.stderr
    done = kernevo(sys.executable, "run", config, *chosen, *SMALL)
    assert done.returncode == 0, done.stderr[-3000:]
    run = Run.load(tmp_path / "llm")
    asked = asked_of(run.path)
    assert not asked["failures"]
    unusable = sum(asked["unusable"].values())
    assert asked["answered"] == asked["asked"] >= 10
    assert 1 - unusable / asked["answered"] >= 0.99
    written = [record for record in run.records() if record.candidate.policy == "openai"]
    assert len({record.candidate.generation for record in written}) >= 5
    assert all(record.candidate.rewrites for record in written)
    assert any(record.passed for record in written)
    turns = [turn for turn in turns_of_run(run) if turn.policy == "openai"]
    assert all(turn.answer_token_ids and turn.prompt_token_ids for turn in turns)
    assert all(turn.logprobs and len(turn.logprobs) == len(turn.answer_token_ids) for turn in turns)


def test_the_same_in_one_process(model, tmp_path):
    config = tmp_path / "inproc.yaml"
    config.write_text(
        f"task: softmax\nevaluator: {{type: cpu, timeout_s: 20}}\n"
        f"policy: {{type: vllm, model: {model}, max_tokens: 128, max_model_len: 8192, on_failure: stop}}\n"
        f"search: {{population: 4, offspring: 4, tuning: {{share: 0.25}}}}\n"
        f"budget: {{generations: 3}}\nruns_dir: {tmp_path}\n"
    )
    done = kernevo(PYTHON, "run", str(config))
    assert done.returncode == 0, done.stderr[-3000:]
    run = Run.load(tmp_path / "inproc")
    asked = asked_of(run.path)
    assert not asked["failures"]
    assert not asked["unusable"]
    written = [record for record in run.records() if record.candidate.policy == "vllm"]
    assert written
    assert all(record.candidate.sampling["logprobs"] for record in written)
