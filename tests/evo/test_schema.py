"""The JSON schema agrees with the models that read the file."""

from __future__ import annotations

import json

from evo.config_keys import all_keys, sections
from evo.schema import config_schema
from tests.evo.cli_call import call


def test_the_schema_names_every_key_and_says_what_it_means():
    schema = config_schema()
    for key in all_keys():
        name = key.path.rpartition(".")[2]
        definition = schema if key.path == name else schema["$defs"][key.section.__name__]
        described = definition["properties"][name]
        assert described.get("description"), f"{key.path} has no description"


def test_the_schema_forbids_unknown_keys_in_every_section():
    schema = config_schema()
    for key in all_keys():
        for section in sections(key.field.annotation):
            assert schema["$defs"][section.__name__]["additionalProperties"] is False
    assert schema["additionalProperties"] is False
    assert set(schema["required"]) == {"budget"}  # and either task or suite, which a check says


def test_the_command_prints_the_schema_or_writes_it(tmp_path):
    printed = call("schema")
    assert printed.code == 0
    assert json.loads(printed.out) == config_schema()
    target = tmp_path / "made" / "schema.json"
    written = call("schema", "--out", target)
    assert written.code == 0
    assert written.out == ""
    assert json.loads(target.read_text()) == config_schema()


def test_a_schema_that_cannot_be_written_is_an_environment_error(tmp_path):
    (tmp_path / "file").write_text("")
    outcome = call("schema", "--out", tmp_path / "file" / "schema.json")
    assert outcome.code == 4
    assert "cannot be written" in outcome.err
