"""Elicitation: questions of an MCP server to the person, asked one field at a time."""

from collections.abc import Mapping
from typing import Any

from mcp_types import ElicitRequestFormParams, ElicitRequestParams, ElicitRequestURLParams, ElicitResult

from talaria.contracts.tool import Questioner

DECLINE, SKIP = "Decline", "Skip this"
_DONE, _YES, _NO = "I have done that", "Yes", "No"
_MOST_FIELDS = 20
_ATTEMPTS = 3
_LONGEST_TEXT = 2_000  # characters of a question
Value = str | int | float | bool | list[str]
_Fields = Mapping[str, Mapping[str, Any]]


class _Declined(Exception):
    """The person declines to answer."""


class _Unanswered(Exception):
    """Nobody answers, or not in a usable way."""


async def answer_elicitation(server: str, request: ElicitRequestParams, person: Questioner) -> ElicitResult:
    """Ask the person what a server wants to know, and return the result for it.

    Nothing is opened or filled in without the person. No answer in time cancels the request.
    """
    try:
        if isinstance(request, ElicitRequestURLParams):
            return await _ask_to_open(server, request, person)
        return await _ask_form(server, request, person)
    except _Declined:
        return ElicitResult(action="decline")
    except _Unanswered:
        return ElicitResult(action="cancel")


async def _ask_to_open(server: str, request: ElicitRequestURLParams, person: Questioner) -> ElicitResult:
    text = f"The MCP server {server} asks you to open this address: {request.url}\n{_cut(request.message)}"
    if await _ask(person, text, (_DONE, DECLINE)) == _DONE:
        return ElicitResult(action="accept")
    raise _Declined


async def _ask_form(server: str, request: ElicitRequestFormParams, person: Questioner) -> ElicitResult:
    schema: Mapping[str, Any] = dict(request.requested_schema)
    fields: _Fields = schema.get("properties") or {}
    required = set(schema.get("required") or ())
    lead = f"The MCP server {server} asks: {_cut(request.message)}"
    if not fields:
        if await _ask(person, lead, (_YES, _NO)) == _YES:
            return ElicitResult(action="accept", content={})
        raise _Declined
    if len(fields) > _MOST_FIELDS:
        raise _Unanswered
    content: dict[str, Value | None] = {}
    for number, (name, field) in enumerate(fields.items(), 1):
        count = f" ({number} of {len(fields)})" if len(fields) > 1 else ""
        value = await _ask_field(person, f"{lead}\n{_describe(name, field)}{count}", field, name in required)
        if value is not None:
            content[name] = value
    return ElicitResult(action="accept", content=content)


async def _ask_field(person: Questioner, text: str, field: Mapping[str, Any], required: bool) -> Value | None:
    """Return the value of one field; ``None`` if it is left out."""
    options = _list_options(field)
    choices = (*options, *(() if required else (SKIP,)), DECLINE)
    hint = ""
    for _ in range(_ATTEMPTS):
        given = await _ask(person, f"{text}{hint}", choices)
        if given == DECLINE:
            raise _Declined
        if given == SKIP and not required:
            return None
        try:
            return _read_value(given, field, options)
        except ValueError as error:
            hint = f"\nThat isn't possible: {error}."
    raise _Unanswered


async def _ask(person: Questioner, text: str, choices: tuple[str, ...]) -> str:
    given = await person.ask(text, choices)
    if given is None or not given.strip():
        raise _Unanswered
    return given.strip()


def _list_options(field: Mapping[str, Any]) -> dict[str, Value]:
    """Return the values to choose from by what is shown for them; empty if any text will do."""
    if field.get("type") == "boolean":
        return {_YES: True, _NO: False}
    if field.get("type") == "array":
        return {}
    return dict(_list_members(field))


def _list_members(field: Mapping[str, Any]) -> list[tuple[str, str]]:
    titled = field.get("oneOf") or field.get("anyOf") or ()
    if titled:
        return [(str(one.get("title") or one["const"]), str(one["const"])) for one in titled if "const" in one]
    members = [str(one) for one in field.get("enum") or ()]
    names = [str(one) for one in field.get("enumNames") or members]
    return list(zip(names, members, strict=False))


def _read_value(given: str, field: Mapping[str, Any], options: Mapping[str, Value]) -> Value:
    """Return an answer as the type of the field; raises `ValueError` with what is expected."""
    if options:
        by_value = {str(value): value for value in options.values()}
        found = options.get(given, by_value.get(given))
        if found is None:
            raise ValueError(f"choose one of {', '.join(options)}")
        return found
    match field.get("type"):
        case "integer":
            return int(_check_range(_parse_number(given, int), field))
        case "number":
            return float(_check_range(_parse_number(given, float), field))
        case "array":
            return _read_list(given, field.get("items") or {})
    if not int(field.get("minLength") or 0) <= len(given) <= int(field.get("maxLength") or len(given)):
        raise ValueError(f"it must have {field.get('minLength', 0)} to {field.get('maxLength', 'any')} characters")
    return given


def _parse_number(given: str, kind: type[int] | type[float]) -> float:
    try:
        return kind(given)
    except ValueError as error:
        raise ValueError("it must be a whole number" if kind is int else "it must be a number") from error


def _check_range(value: float, field: Mapping[str, Any]) -> float:
    lowest, highest = field.get("minimum"), field.get("maximum")
    if (lowest is not None and value < lowest) or (highest is not None and value > highest):
        raise ValueError(f"it must be from {lowest} to {highest}")
    return value


def _read_list(given: str, items: Mapping[str, Any]) -> list[str]:
    members = dict(_list_members(items))
    words = [word.strip() for word in given.split(",") if word.strip()]
    unknown = [word for word in words if members and word not in members and word not in members.values()]
    if unknown:
        raise ValueError(f"choose from {', '.join(members)}, with commas between them")
    return [members.get(word, word) for word in words]


def _describe(name: str, field: Mapping[str, Any]) -> str:
    text = str(field.get("title") or name)
    if field.get("description"):
        text += f": {_cut(str(field['description']))}"
    members = _list_members(field.get("items") or {}) if field.get("type") == "array" else []
    if members:
        text += f" One or more of {', '.join(shown for shown, _ in members)}, with commas between them."
    if field.get("default") is not None:
        text += f" (suggested: {field['default']})"
    return text


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else text[: _LONGEST_TEXT - 1] + "…"
