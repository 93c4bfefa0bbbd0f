"""Check answers against a JSON Schema."""

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:  # loaded with the first schema: 11 ms and 5 MB
    from jsonschema_rs import Draft202012Validator

_FENCED = re.compile(r"```[^\n`]*\n(.*?)```", re.DOTALL)
_MAX_MESSAGE = 300


def find_schema_problem(schema: Any) -> str:
    """Return what is wrong with a schema, as the end of a sentence; empty for a usable one."""
    try:
        _compile(schema)
    except ValueError as error:
        path = _format_path("schema", getattr(error, "instance_path", ()))
        return f"{path}: {_first_line(error)}"
    return ""


def parse_answer(text: str) -> Any:
    """Return the JSON in an answer, also inside a fence or other text; raises `ValueError` if there is none."""
    for candidate in _candidates(text):
        try:
            return msgspec.json.decode(candidate)
        except (msgspec.DecodeError, RecursionError):
            continue
    raise ValueError("the answer is not JSON")


def find_mismatch(value: Any, schema: Any) -> str:
    """Return the first mismatch of a value with a usable schema, with its path; empty if it matches."""
    for error in _compile(schema).iter_errors(value):
        return f"{_format_path('answer', error.instance_path)}: {_first_line(error)}"
    return ""


def _candidates(text: str) -> Iterator[str]:
    yield text
    yield from _FENCED.findall(text)
    for opening, closing in ("{}", "[]"):
        first, last = text.find(opening), text.rfind(closing)
        if 0 <= first < last:
            yield text[first : last + 1]


def _compile(schema: Any) -> "Draft202012Validator":
    """Return the validator of a schema, or raise `ValueError`.

    The schema comes from a model: references to files and servers are refused, and patterns match in linear time.
    """
    from jsonschema_rs import Draft202012Validator, RegexOptions  # noqa: PLC0415 (loaded with the first schema)

    return Draft202012Validator(schema, offline=True, pattern_options=RegexOptions())


def _format_path(root: str, path: Sequence[str | int]) -> str:
    return root + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)


def _first_line(error: Exception) -> str:
    message = str(getattr(error, "message", error)).partition("\n")[0]
    return message if len(message) <= _MAX_MESSAGE else f"{message[:_MAX_MESSAGE]}…"
