"""Checks of answers against Telegram's own API description, if that file is available; it isn't part of ours."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.house.tree import ROOT

from talaria.settings.environment import process_environment
from talaria.testing.telegram_server import TelegramServer

NAME = "TELEGRAM_BOT_API_SPEC"
# Added by Bot API 10.3 and required by newer clients; a description of 10.1 lacks it.
NEWER = {("ChatMemberAdministrator", "can_send_welcome_messages")}


def specification() -> Path | None:
    """Return the file of the description: from the environment, or from the folder next to the project."""
    configured = process_environment().get(NAME)
    path = Path(configured) if configured else ROOT.parent / "shared" / "specs" / "telegram-bot-api.json"
    return path if path.is_file() else None


def require_spec() -> None:
    """Skip the test module that calls this if there is no description."""
    if specification() is None:
        pytest.skip(f"There is no description of the Bot API here; {NAME} says where one is.", allow_module_level=True)


@cache
def read_spec() -> Any:
    path = specification()
    assert path is not None
    return json.loads(path.read_text())


def find_mismatches(server: TelegramServer) -> list[str]:
    """Return the mismatches in all answers and deliveries of a server; none if there is no description."""
    if specification() is None:
        return []
    methods = read_spec()["methods"]
    found = []
    for call in server.calls:
        if call.answer["ok"]:
            assert set(call.answer) == {"ok", "result"}
            found += _any_of(methods[call.method]["returns"], call.answer["result"], call.method)
        else:
            found += _refusal(call.answer, call.status, call.method)
    for one in server.deliveries:
        found += _any_of(["Update"], json.loads(json.dumps(one.update.wire())), "webhook")
    return found


def _refusal(answer: dict[str, Any], status: int, where: str) -> Iterator[str]:
    if not {"ok", "error_code", "description"} <= set(answer) <= {"ok", "error_code", "description", "parameters"}:
        yield f"{where}: an error with {sorted(answer)}"
    if answer["error_code"] != status:
        yield f"{where}: {answer['error_code']} sent as {status}"
    if "parameters" in answer:
        yield from _any_of(["ResponseParameters"], answer["parameters"], where)


def _any_of(kinds: list[str], value: Any, where: str) -> list[str]:
    first: list[str] = []
    for kind in kinds:
        found = list(_faults(kind, value, where))
        if not found:
            return []
        first = first or found
    return first


def _faults(kind: str, value: Any, where: str) -> Iterator[str]:
    if kind.startswith("Array of "):
        if not isinstance(value, list):
            yield f"{where}: {value!r} is no array"
            return
        for index, one in enumerate(value):
            yield from _faults(kind.removeprefix("Array of "), one, f"{where}[{index}]")
    elif kind in _SIMPLE:
        if type(value) not in _SIMPLE[kind]:
            yield f"{where}: {value!r} is no {kind}"
    else:
        yield from _object(kind, value, where)


def _object(kind: str, value: Any, where: str) -> Iterator[str]:
    described = read_spec()["types"][kind]
    if "subtypes" in described:
        yield from _any_of(described["subtypes"], value, where)
        return
    if not isinstance(value, dict):
        yield f"{where}: {value!r} is no {kind}"
        return
    fields = {field["name"]: field for field in described.get("fields", [])}
    yield from (f"{where}: {kind} has no {name}" for name in value if name not in fields and (kind, name) not in NEWER)
    for name, field in fields.items():
        if name in value:
            yield from _any_of(field["types"], value[name], f"{where}.{name}")
        elif field["required"]:
            yield f"{where}: {kind} lacks {name}"


_SIMPLE: dict[str, tuple[type, ...]] = {
    "Integer": (int,),
    "String": (str,),
    "Boolean": (bool,),
    "Float": (float, int),
}
