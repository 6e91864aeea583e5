"""Configs that are written in a test."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from evo.config import CampaignConfig
from evo.config_file import load_config


def load_mapping(data: dict[str, Any]) -> CampaignConfig:
    """The checked config of a file with this data."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "my.yaml"
        path.write_text(yaml.safe_dump(data))
        return load_config(path)
