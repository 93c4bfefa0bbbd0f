"""Types and values in words a person understands."""

from datetime import date, datetime, time
from typing import Any

from msgspec import inspect


def type_in_words(info: inspect.Type) -> tuple[str, str]:
    """What kind of value fits, and within which limits: ``("a whole number", "from 1 to 16")``."""
    match info:
        case inspect.BoolType():
            return "true or false", ""
        case inspect.IntType():
            return "a whole number", _limits(info)
        case inspect.FloatType():
            return "a number", _limits(info)
        case inspect.StrType():
            return "text", f"that matches {info.pattern}" if info.pattern else ""
        case inspect.LiteralType():
            return "one of", ", ".join(str(value) for value in info.values)
        case inspect.Metadata():
            return type_in_words(info.type)
        case _:
            return _collection_in_words(info)


def value_in_words(value: Any) -> str:
    """What was found in place of what was expected."""
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return f"the whole number {value}"
        case float():
            return f"the number {value}"
        case str():
            return f"the text {_quoted(value)}"
        case list() | tuple():
            return "a list"
        case dict():
            odd = (
                f" in which `{name}` is {value_in_words(one)}"
                for name, one in value.items()
                if not isinstance(one, str)
            )
            return "a table" + next(odd, "")
        case datetime() | date() | time():
            return f"the time {value}"
        case _:
            return str(value)


def value_as_text(value: Any) -> str:
    """A value as a person would type it on a command line."""
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case list() | tuple():
            return ", ".join(value_as_text(item) for item in value)
        case dict():
            return ", ".join(f"{name}={value_as_text(item)}" for name, item in value.items())
        case _:
            return str(value)


def _collection_in_words(info: inspect.Type) -> tuple[str, str]:
    match info:
        case inspect.ListType() | inspect.VarTupleType() | inspect.SetType() | inspect.FrozenSetType():
            return "a list, each item", " ".join(type_in_words(info.item_type)).strip()
        case inspect.UnionType():
            some = [one for one in info.types if not isinstance(one, inspect.NoneType)]
            return " or ".join(" ".join(type_in_words(one)).strip() for one in some), ""
        case inspect.DictType() if not isinstance(info.value_type, inspect.AnyType | inspect.StructType):
            return "a table, each value", " ".join(type_in_words(info.value_type)).strip()
        case inspect.DictType() | inspect.StructType():
            return "a table", ""
        case _:
            return "a value", ""


def _limits(info: inspect.IntType | inspect.FloatType) -> str:
    if info.ge is not None and info.le is not None:
        return f"from {info.ge:g} to {info.le:g}"
    bounds = {"above": info.gt, "of at least": info.ge, "below": info.lt, "of at most": info.le}
    return " and ".join(f"{words} {bound:g}" for words, bound in bounds.items() if bound is not None)


def _quoted(text: str) -> str:
    shown = text if len(text) <= 80 else text[:79] + "…"
    return '"' + shown.encode("utf-8", "backslashreplace").decode() + '"'
