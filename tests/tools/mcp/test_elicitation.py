"""Questions of MCP servers: each field is asked for, checked, skipped or declined."""

from typing import Any

import pytest
from mcp_types import ElicitRequestFormParams, ElicitRequestURLParams
from tests.tools.tool_calls import ScriptedPerson

from talaria.tools.mcp.elicitation import answer_elicitation


async def ask(
    fields: dict[str, Any], *answers: str | None, required: tuple[str, ...] = ()
) -> tuple[str, Any, ScriptedPerson]:
    person = ScriptedPerson(*answers)
    schema = {"type": "object", "properties": fields, "required": list(required)}
    result = await answer_elicitation("shop", ElicitRequestFormParams(message="Order", requested_schema=schema), person)
    return result.action, result.content, person


@pytest.mark.parametrize(
    ("field", "answer", "value"),
    [
        ({"type": "string"}, "tea", "tea"),
        ({"type": "boolean"}, "Yes", True),
        ({"type": "integer", "minimum": 1}, "3", 3),
        ({"type": "number"}, "1.5", 1.5),
        ({"type": "string", "enum": ["s", "l"], "enumNames": ["Small", "Large"]}, "Large", "l"),
        ({"type": "string", "oneOf": [{"const": "x", "title": "Ex"}]}, "Ex", "x"),
        ({"type": "array", "items": {"enum": ["a", "b"]}}, "a, b", ["a", "b"]),
    ],
)
async def test_answers_have_the_type_of_their_field(field: dict[str, Any], answer: str, value: object) -> None:
    action, content, person = await ask({"one": field}, answer)
    assert (action, content) == ("accept", {"one": value})
    assert person.questions[0][0].startswith("The MCP server shop asks: Order\none")


async def test_wrong_answers_are_asked_again_and_optional_ones_skipped() -> None:
    fields = {"n": {"type": "integer", "maximum": 5}, "more": {"type": "string"}}
    action, content, person = await ask(fields, "many", "9", "4", "Skip this", required=("n",))
    assert (action, content) == ("accept", {"n": 4})
    assert [len(choices) for _, choices in person.questions] == [1, 1, 1, 2]
    assert "whole number" in person.questions[1][0]


@pytest.mark.parametrize(("answer", "action"), [("Decline", "decline"), (None, "cancel"), ("", "cancel")])
async def test_declining_differs_from_no_answer(answer: str | None, action: str) -> None:
    assert (await ask({"one": {"type": "string"}}, answer))[:2] == (action, None)


async def test_addresses_are_shown_and_never_opened() -> None:
    request = ElicitRequestURLParams(message="Pay", url="https://pay.example/1", elicitation_id="1")
    person = ScriptedPerson("I have done that", "Decline", None)
    for action in ("accept", "decline", "cancel"):
        assert (await answer_elicitation("shop", request, person)).action == action
    assert "https://pay.example/1" in person.questions[0][0]
