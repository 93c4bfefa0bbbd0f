"""Checks of requests and answers against Discord's own API description, if that file is available; it isn't ours."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from tests.house.tree import ROOT

from talaria.settings.environment import process_environment
from talaria.testing.discord_server import Call, DiscordServer

NAME = "DISCORD_OPENAPI"
_FORMS = ("application/json", "multipart/form-data")


def specification() -> Path | None:
    """Return the file of the description: from the environment, or from the folder next to the project."""
    configured = process_environment().get(NAME)
    path = Path(configured) if configured else ROOT.parent / "shared" / "specs" / "discord-openapi.json"
    return path if path.is_file() else None


def require_spec() -> None:
    """Skip the test module that calls this if there is no description."""
    if specification() is None:
        pytest.skip(
            f"There is no description of Discord's API here; {NAME} says where one is.", allow_module_level=True
        )


@cache
def read_spec() -> Any:
    path = specification()
    assert path is not None
    return json.loads(path.read_text())


def find_mismatches(server: DiscordServer) -> list[str]:
    """Return the mismatches in all requests and answers of a server; none if there is no description."""
    return [] if specification() is None else [found for call in server.calls for found in _call(call)]


def _call(call: Call) -> Iterator[str]:
    where = f"{call.method} {call.path} ({call.status})"
    described = read_spec()["paths"].get(call.path, {}).get(call.method.lower())
    if described is None:
        yield f"{where} is not described"
        return
    if call.body is not None and call.status < 300:
        contents = described["requestBody"]["content"]
        schema = next(contents[form]["schema"] for form in _FORMS if form in contents)
        yield from (f"{where}, asked: {fault}" for fault in _faults(schema, call.body))
    answer = _answer(described["responses"], call.status)
    if answer is None:
        yield f"{where} is no answer that is described"
    elif "content" in answer:
        schema = answer["content"]["application/json"]["schema"]
        yield from (f"{where}, answered: {fault}" for fault in _faults(schema, call.answer))
    elif call.answer is not None:
        yield f"{where} has an answer, and should have none"


def _answer(responses: dict[str, Any], status: int) -> Any:
    found = responses.get(str(status)) or responses.get(f"{status // 100}XX")
    if found and "$ref" in found:
        return read_spec()["components"]["responses"][found["$ref"].rpartition("/")[2]]
    return found


def _faults(schema: Any, value: Any) -> Iterator[str]:
    full_schema = {**schema, "components": read_spec()["components"]}
    for error in Draft202012Validator(full_schema).iter_errors(value):
        yield f"{error.json_path}: {error.message[:300]}"
