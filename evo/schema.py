"""The config as a JSON schema, for editors that complete and check YAML."""

from __future__ import annotations

from typing import Any

from evo.config import CampaignConfig

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def config_schema() -> dict[str, Any]:
    """JSON schema (draft 2020-12) of a campaign config.

    Refer to it from the first line of a config: `# yaml-language-server: $schema=kernevo.schema.json`.
    """
    schema = CampaignConfig.model_json_schema()
    return {
        "$schema": DIALECT,
        "title": "Kernevo campaign",
        **{k: v for k, v in schema.items() if k != "title"},
    }
