"""Values of settings as text: parse what people type, describe types and values."""

from datetime import date, datetime, time
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
_MOST_LISTED = 5


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


def describe_type(info: inspect.Type) -> tuple[str, str]:
    """Return the expected kind of value and its limits: ``("a whole number", "from 1 to 16")``."""
    match info:
        case inspect.BoolType():
            return "true or false", ""
        case inspect.IntType():
            return "a whole number", _describe_limits(info)
        case inspect.FloatType():
            return "a number", _describe_limits(info)
        case inspect.StrType():
            return "text", f"that matches {info.pattern}" if info.pattern else ""
        case inspect.LiteralType():
            values = [str(value) for value in info.values if value != ""]
            kind = "one of" if len(values) == len(info.values) else "empty or one of"
            return (kind, ", ".join(values)) if len(info.values) > 1 else (values[0], "")
        case inspect.Metadata():
            return describe_type(info.type)
        case _:
            return _describe_collection(info)


def describe_value(value: Any) -> str:
    """Return a description of the value found."""
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return f"the whole number {value}"
        case float():
            return f"the number {value}"
        case str():
            return f"the text {_quote(value)}"
        case list() | tuple():
            texts = [_quote(one) for one in value if isinstance(one, str)]
            return f"a list of {', '.join(texts[:_MOST_LISTED])}" if texts else "a list"
        case dict():
            details = (
                f" in which `{name}` is {describe_value(one)}"
                for name, one in value.items()
                if not isinstance(one, str)
            )
            return "a table" + next(details, "")
        case datetime() | date() | time():
            return f"the time {value}"
        case _:
            return str(value)


def format_value(value: Any) -> str:
    """Return a value as typed on a command line."""
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case list() | tuple():
            return ", ".join(format_value(item) for item in value)
        case dict():
            return ", ".join(f"{name}={format_value(item)}" for name, item in value.items())
        case _:
            return str(value)


def _describe_collection(info: inspect.Type) -> tuple[str, str]:
    match info:
        case inspect.ListType() | inspect.VarTupleType() | inspect.SetType() | inspect.FrozenSetType():
            return "a list, each item", " ".join(describe_type(info.item_type)).strip()
        case inspect.UnionType():
            some = [one for one in info.types if not isinstance(one, inspect.NoneType)]
            return " or ".join(" ".join(describe_type(one)).strip() for one in some), ""
        case inspect.DictType() if not isinstance(info.value_type, inspect.AnyType | inspect.StructType):
            return "a table, each value", " ".join(describe_type(info.value_type)).strip()
        case inspect.DictType() | inspect.StructType():
            return "a table", ""
        case _:
            return "a value", ""


def _describe_limits(info: inspect.IntType | inspect.FloatType) -> str:
    if info.ge is not None and info.le is not None:
        return f"from {info.ge:g} to {info.le:g}"
    bounds = {"above": info.gt, "of at least": info.ge, "below": info.lt, "of at most": info.le}
    return " and ".join(f"{label} {bound:g}" for label, bound in bounds.items() if bound is not None)


def _quote(text: str) -> str:
    shown = text if len(text) <= 80 else text[:79] + "…"
    return '"' + shown.encode("utf-8", "backslashreplace").decode() + '"'
