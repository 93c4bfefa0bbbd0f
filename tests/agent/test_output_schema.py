"""Answers checked against a JSON schema, compared with the `jsonschema` package."""

from typing import Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from talaria.runtime.delegation.task_runner import find_mismatch, find_schema_problem, parse_answer

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 2, "maxLength": 5},
        "age": {"type": ["integer", "null"], "minimum": 0, "exclusiveMaximum": 150},
        "tags": {"type": "array", "items": {"enum": ["a", 1, None]}, "maxItems": 2, "minItems": 1, "uniqueItems": True},
        "more": {"$ref": "#/$defs/more"},
    },
    "required": ["name"],
    "additionalProperties": False,
    "$defs": {"more": {"anyOf": [{"const": 1.5}, {"type": "object", "additionalProperties": {"type": "boolean"}}]}},
}
TREE = {
    "type": "object",
    "properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}, "leaf": {"type": "number"}},
    "minProperties": 1,
    "maxProperties": 2,
}
SCHEMAS: list[Any] = [
    PERSON,
    TREE,
    True,
    False,
    {"oneOf": [{"type": "integer"}, {"type": "number", "maximum": 3}]},
    {"allOf": [{"type": "string"}, {"not": {"const": "no"}}]},
    {"type": "array", "items": {"type": "array", "items": False}},
    {"type": "integer", "exclusiveMinimum": 1, "maximum": 5},
]
VALUES: list[Any] = [
    None, True, 0, 1, 1.0, 1.5, 4, 5, 2.5, 6, "no", "yes", "", [], [[]], [[1]], {}, {"name": "Ada"}, {"name": "A"},
    {"name": "Ada", "age": 36}, {"name": "Ada", "age": 36.0}, {"name": "Ada", "age": True},
    {"name": "Ada", "age": None},
    {"name": "Ada", "age": 150}, {"name": "Ada", "age": -1}, {"name": "Ada", "tags": ["a"]},
    {"name": "Ada", "tags": []},
    {"name": "Ada", "tags": ["a", 1.0]}, {"name": "Ada", "tags": [1, 1.0]}, {"name": "Ada", "tags": [True]},
    {"name": "Ada", "more": 1.5}, {"name": "Ada", "more": {"x": True}}, {"name": "Ada", "more": {"x": 1}},
    {"name": "Ada", "other": 1}, {"age": 3}, {"leaf": 1}, {"left": {"leaf": 1}, "right": {"leaf": 2}},
    {"left": {"leaf": "1"}}, {"left": {}}, {"left": {"leaf": 1}, "right": {"leaf": 2}, "leaf": 3},
]  # fmt: skip


@pytest.mark.parametrize("schema", SCHEMAS, ids=str)
def test_values_match_a_schema_exactly_if_the_jsonschema_package_agrees(schema: Any) -> None:
    assert find_schema_problem(schema) == ""
    reference = Draft202012Validator(schema)
    assert [value for value in VALUES if bool(find_mismatch(value, schema)) == reference.is_valid(value)] == []


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ({}, 'answer: "name" is a required property'),
        ({"name": "Ada", "tags": ["a", "b"]}, 'answer.tags[1]: "b" is not one of "a", 1 or null'),
        ({"name": "Ada", "age": "x"}, 'answer.age: "x" is not of types "null", "integer"'),
        ({"name": "Ada", "x": 1}, "answer: Additional properties are not allowed ('x' was unexpected)"),
        ({"name": "Adalbert"}, 'answer.name: "Adalbert" is longer than 5 characters'),
    ],
)
def test_a_mismatch_is_reported_with_its_path(value: Any, fault: str) -> None:
    assert find_mismatch(value, PERSON) == fault


def test_message_of_a_long_mismatch_is_cut() -> None:
    assert len(find_mismatch("long" * 1000, {"type": "integer"})) < 400


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"properties": {"a": {"type": "text"}}}, 'schema.properties.a.type: "text" is not valid'),
        ({"$ref": "#/$defs/none"}, "'/$defs/none' does not exist"),
        ({"items": []}, "schema.items: "),
        ({"minimum": "1"}, "schema.minimum: "),
        ({"pattern": "("}, "schema.pattern: "),
        ("text", "schema: "),
    ],
)
def test_an_invalid_schema_is_reported(schema: Any, problem: str) -> None:
    assert problem in find_schema_problem(schema)


@pytest.mark.parametrize("reference", ["http://127.0.0.1:9/schema.json", "file:///etc/hostname"])
def test_schema_with_a_remote_or_file_reference_is_refused(reference: str) -> None:
    assert "schema: " in find_schema_problem({"$ref": reference})


def test_patterns_are_checked_in_linear_time() -> None:
    assert find_mismatch("a" * 50_000 + "b", {"pattern": "^(a+)+$"})
    assert find_mismatch("aaa", {"pattern": "^(a+)+$"}) == ""


def test_check_of_an_endlessly_recursive_schema_ends() -> None:
    assert find_mismatch(1, {"$ref": "#"}) == ""
    assert find_mismatch(1, {"allOf": [{"$ref": "#"}]}) == ""
    nested: Any = {}
    for _ in range(5000):
        nested = {"not": nested}
    assert find_schema_problem(nested) == "schema: Recursion limit reached"


@pytest.mark.parametrize(
    "text", ['{"a": [1]}', ' {"a": [1]}\n', 'Sure:\n```json\n{"a": [1]}\n```\nThere.', 'It is {"a": [1]}, I think.']
)
def test_json_is_found_within_the_text_of_an_answer(text: str) -> None:
    assert parse_answer(text) == {"a": [1]}


@pytest.mark.parametrize("text", ["", "three", "{a: 1}", "[" * 100_000])
def test_answer_without_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not JSON"):
        parse_answer(text)
