"""The recipe in configs/verl against verl itself: its keys, its loader of reward functions, its reward manager.

Run with verl installed; what needs neither verl nor a GPU is tested everywhere.
"""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import yaml

from evaluator.testing import SEED, TASK
from tests.evo.serving import FakeJudges, listening, make_app, make_queue

RECIPE = Path(__file__).parents[2] / "configs" / "verl"
CONFIG = yaml.safe_load((RECIPE / "kernevo_grpo.yaml").read_text(encoding="utf-8"))
OWN = ("hydra", "defaults")
TRUTH = json.dumps({"task": TASK.model_dump(mode="json"), "parent_source": SEED, "form": "full"})

FAKE_SERVER = """
import http.server, sys

class Ok(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

http.server.HTTPServer(("127.0.0.1", int(sys.argv[3])), Ok).serve_forever()
"""
FAKE_TRAINER = """
import json, os, sys

said = [sys.argv[2:], os.environ["KERNEVO_SERVE_URL"], os.environ["KERNEVO_SERVE_TOKEN"]]
json.dump(said, open(sys.argv[1], "w"))
"""


def leaves(section, prefix=""):
    for name, value in section.items():
        path = f"{prefix}{name}"
        if isinstance(value, dict) and name != "reward_kwargs":
            yield from leaves(value, f"{path}.")
        else:
            yield path, value


@pytest.fixture
def environment(monkeypatch, tmp_path):
    monkeypatch.setenv("KERNEVO_DATASET", str(tmp_path))
    monkeypatch.delenv("KERNEVO_HELD_OUT", raising=False)
    monkeypatch.delenv("KERNEVO_SERVE_TOKEN", raising=False)
    return tmp_path


@pytest.fixture
def compose():
    pytest.importorskip("verl")
    hydra = pytest.importorskip("hydra")
    from hydra.core.global_hydra import GlobalHydra

    def made(*overrides):
        GlobalHydra.instance().clear()
        with hydra.initialize_config_dir(str(RECIPE), version_base=None):
            return hydra.compose("kernevo_grpo", overrides=list(overrides))

    return made


@pytest.fixture
def url():
    queue = make_queue(FakeJudges())
    with listening(make_app(queue, max_source_bytes=20_000)) as found:
        yield found
    queue.close()


def test_the_reward_function_is_where_the_recipe_says_with_verls_signature():
    chosen = CONFIG["reward"]["custom_reward_function"]
    package, module = chosen["path"].split("://")
    function = getattr(import_module(module), chosen["name"])
    parameters = list(inspect.signature(function).parameters)
    assert package == "pkg"
    assert parameters[:4] == ["data_source", "solution_str", "ground_truth", "extra_info"]
    assert set(chosen["reward_kwargs"]) <= set(parameters)


def test_the_launcher_is_sound_and_says_what_it_lacks():
    assert subprocess.run(["bash", "-n", RECIPE / "run.sh"], check=False).returncode == 0
    done = subprocess.run(["bash", RECIPE / "run.sh"], env={"PATH": "/bin:/usr/bin"}, capture_output=True, check=False)
    assert b"KERNEVO_DATASET: the folder that kernevo export --format verl wrote" in done.stderr


def test_the_launcher_serves_trains_and_stops_the_server(tmp_path):
    """With programs in place of the server and of verl that write down what they were asked."""
    (tmp_path / "server.py").write_text(FAKE_SERVER)
    (tmp_path / "trainer.py").write_text(FAKE_TRAINER)
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, lines in (
        ("kernevo", [f'echo $$ > "{tmp_path}/pid"', f'exec "{sys.executable}" "{tmp_path}/server.py" "$@"']),
        (
            "python",
            [
                f'[ "$1" != -m ] || exec "{sys.executable}" "{tmp_path}/trainer.py" "{tmp_path}/asked" "$@"',
                f'exec "{sys.executable}" "$@"',
            ],
        ),
    ):
        (programs / name).write_text("\n".join(["#!/bin/sh", *lines, ""]))
        (programs / name).chmod(0o755)
    environment = {
        "PATH": f"{programs}:/bin:/usr/bin",
        "KERNEVO_DATASET": "data",
        "MODEL": "tiny",
        "SERVE_PORT": "8766",
    }
    done = subprocess.run(
        ["bash", RECIPE / "run.sh", "trainer.total_epochs=1"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    arguments, url, token = json.loads((tmp_path / "asked").read_text())
    assert arguments == [
        *("-m", "verl.trainer.main_ppo"),
        *("--config-path", str(RECIPE), "--config-name", "kernevo_grpo"),
        *("actor_rollout_ref.model.path=tiny", "trainer.total_epochs=1"),
    ]
    assert (url, len(token) >= 16) == ("http://127.0.0.1:8766", True)
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()


def test_every_key_of_the_recipe_is_one_of_verls(compose):
    import hydra
    from hydra.core.global_hydra import GlobalHydra
    from omegaconf import OmegaConf

    GlobalHydra.instance().clear()
    with hydra.initialize_config_module("verl.trainer.config", version_base=None):
        base = hydra.compose("ppo_trainer")

    def known(path):
        section, _, name = path.rpartition(".")
        return name in OmegaConf.select(base, section).keys()  # noqa: SIM118  (a key without a value counts)

    paths = [path for path, _ in leaves({name: value for name, value in CONFIG.items() if name not in OWN})]
    # What the reward function is called with is not in the base; verl reads it where it is given.
    assert [path for path in paths if not known(path)] == ["reward.custom_reward_function.reward_kwargs"]


def test_verl_takes_the_composed_config(compose, environment):
    from omegaconf import OmegaConf
    from verl.utils.config import omega_conf_to_dataclass, validate_config

    config = compose("actor_rollout_ref.model.path=tiny")
    if importlib.util.find_spec("vllm") is None:  # verl asks vLLM which ranks it can serve
        config.actor_rollout_ref.model.lora_rank = 0
    validate_config(config, use_reference_policy=False, use_critic=False)
    for section in (config.actor_rollout_ref.actor, config.algorithm):
        omega_conf_to_dataclass(section)
    plain = OmegaConf.to_container(config, resolve=True)
    assert plain["data"]["train_files"] == plain["data"]["val_files"] == f"{environment}/train.parquet"
    assert plain["reward"]["custom_reward_function"]["reward_kwargs"] == {"url": "http://127.0.0.1:8000"}
    for path, value in leaves({name: value for name, value in CONFIG.items() if name not in OWN}):
        if not isinstance(value, str | dict) and not path.endswith("lora_rank"):
            assert OmegaConf.select(config, path) == value, path


def test_verls_loader_finds_the_function_and_its_manager_scores_with_it(compose, environment, url):
    import numpy as np
    import torch
    from verl import DataProto
    from verl.trainer.ppo.reward import get_custom_reward_fn, load_reward_manager

    config = compose("actor_rollout_ref.model.path=tiny", f"reward.custom_reward_function.reward_kwargs.url={url}")
    answer = f"```python\n# good\n{SEED.replace('BLOCK = 64', 'BLOCK = 128')}```"
    function = get_custom_reward_fn(config)
    direct = function(data_source="kernevo/x", solution_str=answer, ground_truth=TRUTH, extra_info={"index": 0})
    assert direct["status"] == "passed"

    class Tokenizer:
        def decode(self, ids, skip_special_tokens):
            return answer

    manager = load_reward_manager(config, Tokenizer())
    one = np.array([None], dtype=object)
    one[0] = {"style": "rule", "ground_truth": TRUTH}
    extra = np.array([{"index": 0}], dtype=object)
    data = DataProto.from_dict(
        tensors={"responses": torch.ones(1, 4, dtype=torch.long), "attention_mask": torch.ones(1, 6, dtype=torch.long)},
        non_tensors={
            "data_source": np.array(["kernevo/x"], dtype=object), "reward_model": one, "extra_info": extra,
        },
    )  # fmt: skip
    found = asyncio.get_event_loop_policy().get_event_loop().run_until_complete(manager.run_single(data))
    assert found["reward_score"] == pytest.approx(direct["score"])
    assert found["reward_extra_info"]["status"] == "passed"
