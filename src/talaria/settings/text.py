"""Values typed as text, on a command line or in an environment variable."""

from typing import Any

import msgspec
from msgspec import inspect

_TRUTHS = {
    "true": True,
    "yes": True,
    "on": True,
    "1": True,
    "false": False,
    "no": False,
    "off": False,
    "0": False,
}


def value_from_text(text: str, annotation: Any) -> Any:
    """What ``text`` means where a value of this type is expected; the text itself if it means nothing there.

    Lists are written with commas or as JSON, tables as JSON.
    """
    return _value(text, inspect.type_info(annotation))


def _value(text: str, info: inspect.Type) -> Any:
    match info:
        case inspect.Metadata():
            return _value(text, info.type)
        case inspect.BoolType():
            return _TRUTHS.get(text.strip().lower(), text)
        case inspect.IntType():
            return _number(text, int)
        case inspect.FloatType():
            return _number(text, float)
        case inspect.ListType() | inspect.VarTupleType() | inspect.SetType() | inspect.FrozenSetType():
            return _items(text, info.item_type)
        case inspect.DictType():
            return _json(text)
        case inspect.UnionType():
            return _first_that_means_something(text, info)
        case _:
            return text


def _number(text: str, kind: type[int] | type[float]) -> int | float | str:
    try:
        return kind(text)
    except ValueError:
        return text


def _items(text: str, item: inspect.Type) -> Any:
    if text.lstrip().startswith("["):
        return _json(text)
    return [_value(part.strip(), item) for part in text.split(",") if part.strip()]


def _json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return text


def _first_that_means_something(text: str, info: inspect.UnionType) -> Any:
    values = (_value(text, one) for one in info.types)
    return next((value for value in values if not isinstance(value, str)), text)
