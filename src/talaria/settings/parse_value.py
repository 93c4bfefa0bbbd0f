"""Parsing of values typed as text, on a command line or in an environment variable."""

from typing import Any

import msgspec
from msgspec import inspect

_BOOLEANS = {
    "true": True,
    "yes": True,
    "on": True,
    "1": True,
    "false": False,
    "no": False,
    "off": False,
    "0": False,
}


def parse_value(text: str, annotation: Any) -> Any:
    """Return the value of ``text`` for this type; the text itself if it cannot be parsed.

    Lists are written with commas or as JSON, tables as JSON.
    """
    return _parse(text, inspect.type_info(annotation))


def _parse(text: str, info: inspect.Type) -> Any:
    match info:
        case inspect.Metadata():
            return _parse(text, info.type)
        case inspect.BoolType():
            return _BOOLEANS.get(text.strip().lower(), text)
        case inspect.IntType():
            return _parse_number(text, int)
        case inspect.FloatType():
            return _parse_number(text, float)
        case inspect.ListType() | inspect.VarTupleType() | inspect.SetType() | inspect.FrozenSetType():
            return _parse_items(text, info.item_type)
        case inspect.DictType():
            return _parse_json(text)
        case inspect.UnionType():
            return _parse_union(text, info)
        case _:
            return text


def _parse_number(text: str, kind: type[int] | type[float]) -> int | float | str:
    try:
        return kind(text)
    except ValueError:
        return text


def _parse_items(text: str, item: inspect.Type) -> Any:
    if text.lstrip().startswith("["):
        return _parse_json(text)
    return [_parse(part.strip(), item) for part in text.split(",") if part.strip()]


def _parse_json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return text


def _parse_union(text: str, info: inspect.UnionType) -> Any:
    values = (_parse(text, one) for one in info.types)
    return next((value for value in values if not isinstance(value, str)), text)
