"""Descriptions of tools, and parsing of calls: repaired if safe, otherwise answered with the error."""

from typing import Annotated, Any, Literal

import pytest
from msgspec import Meta, Struct
from tests.agent.agent_fixture import Echo

from talaria.agent.toolbox import LazyTool, Toolbox
from talaria.contracts.tool import Call, Effect, ProposedAction, ToolOutput
from talaria.core.errors import ToolFailed
from talaria.core.messages import ToolCall


class Letter(Struct, frozen=True):
    """A letter to write."""

    to: str
    text: str = ""
    copies: Annotated[int, Meta(ge=1)] = 1
    urgent: bool = False
    kind: Literal["plain", "formal"] = "plain"
    tags: list[str] = []


class Write:
    """A tool with arguments of many types."""

    name = "write_letter"
    description = "Write a letter."
    effect = Effect.IRREVERSIBLE
    arguments: type[Struct] = Letter

    def proposed_action(self, arguments: Letter) -> ProposedAction:
        return ProposedAction("other", arguments.to)

    async def run(self, arguments: Letter, call: Call) -> ToolOutput:
        return ToolOutput(arguments.text)


BOX = Toolbox([Write(), Echo("read_letter"), Echo("burn_letter")])


def parse(arguments: str, name: str = "write_letter") -> Any:
    return BOX.parse_call(ToolCall("1", name, arguments)).arguments


def error_for(arguments: str, name: str = "write_letter") -> str:
    with pytest.raises(ToolFailed) as failure:
        parse(arguments, name)
    return str(failure.value)


def test_call_is_parsed_into_tool_and_arguments() -> None:
    order = BOX.parse_call(ToolCall("1", "write_letter", '{"to": "Ann", "copies": 2}'))
    assert isinstance(order.tool, Write)
    assert order.arguments == Letter("Ann", copies=2)


@pytest.mark.parametrize("name", ["Write_Letter", "write-letter", "functions.write_letter", "tools.Write-Letter"])
def test_tool_name_with_unusual_spelling_is_matched_if_unambiguous(name: str) -> None:
    assert parse('{"to": "Ann"}', name) == Letter("Ann")


def test_error_for_an_unknown_tool_suggests_the_nearest_name() -> None:
    assert "There is no tool wrote_letter. Did you mean write_letter" in error_for("{}", "wrote_letter")


def test_error_for_a_dissimilar_tool_name_lists_all_tools() -> None:
    assert error_for("{}", "xyz").endswith("Available: burn_letter, read_letter, write_letter.")


def test_ambiguous_tool_name_is_refused() -> None:
    box = Toolbox([Echo("look_up"), Echo("Look-Up")])
    with pytest.raises(ToolFailed, match="Available: Look-Up, look_up"):
        box.parse_call(ToolCall("1", "LOOK_UP", "{}"))


@pytest.mark.parametrize(
    "arguments",
    [
        '```json\n{"to": "Ann"}\n```',
        '```\n{"to": "Ann"}```',
        '  {"to": "Ann",}\n',
        '{"to": "Ann", "tags": [],\n}',
        '"{\\"to\\": \\"Ann\\"}"',
    ],
    ids=["fenced", "fenced without language", "comma at the end", "comma and line at the end", "JSON in JSON"],
)
def test_arguments_are_repaired_if_their_meaning_is_certain(arguments: str) -> None:
    assert parse(arguments) == Letter("Ann")


def test_missing_arguments_are_parsed_as_an_empty_object() -> None:
    assert parse("", "read_letter") == parse("{}", "read_letter") == parse(" ", "read_letter")


def test_repair_leaves_quoted_text_unchanged() -> None:
    arguments = '{"to": "Ann", "text": "f(a, [1,], \\"{x,}\\")",}'
    assert parse(arguments).text == 'f(a, [1,], "{x,}")'


def test_valid_arguments_are_parsed_unchanged() -> None:
    assert parse('{"to": "Ann", "text": "```json\\n[1,]\\n```"}').text == "```json\n[1,]\n```"


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        ("{broken", "are not JSON"),
        ("to: Ann", "are not JSON"),
        ('{"to": "Ann"', "are not JSON"),
        ("[]", "Expected `object`, got `array`"),
        ("{}", "missing required field `to`"),
        ('{"to": {"name": "Ann"}}', "`$.to`"),
        ('{"to": "Ann", "copies": "many"}', "`$.copies`"),
        ('{"to": "Ann", "copies": 0}', "`$.copies`"),
        ('{"to": "Ann", "kind": "rude"}', "`$.kind`"),
        ('{"to": "Ann", "tags": [1]}', "`$.tags[0]`"),
        ('"just words"', "Expected `object`, got `str`"),
        ("null", "Expected `object`, got `null`"),
    ],
)
def test_error_for_invalid_arguments_names_the_problem(arguments: str, wrong: str) -> None:
    assert wrong in error_for(arguments)


def test_error_for_invalid_arguments_contains_the_schema() -> None:
    assert '"required":["to"]' in error_for("{}")


def test_error_for_unknown_arguments_names_them() -> None:
    error = error_for('{"to": "Ann", "subject": "Hi", "cc": ["Bo"]}')
    assert error.startswith("write_letter has no argument `subject` or `cc`. Expected: {")


def test_unknown_arguments_without_a_value_are_ignored() -> None:
    assert parse('{"to": "Ann", "subject": null}') == Letter("Ann")


def test_quoted_numbers_and_booleans_are_converted() -> None:
    assert parse('{"to": "Ann", "copies": "2", "urgent": "true"}') == Letter("Ann", copies=2, urgent=True)


def test_tools_are_listed_in_an_order_independent_of_registration() -> None:
    one, two = Echo("one"), Echo("two")
    assert Toolbox([one, two]).specs == Toolbox([two, one]).specs


def test_lazy_tool_is_described_by_its_class_and_constructed_once() -> None:
    constructed: list[Write] = []

    def construct() -> Write:
        constructed.append(Write())
        return constructed[-1]

    box = Toolbox([LazyTool(Write, construct)])
    assert box.specs == Toolbox([Write()]).specs
    invocation = box.parse_call(ToolCall("1", "write_letter", '{"to": "Ann"}'))
    assert constructed == []
    actions = [invocation.tool.proposed_action(invocation.arguments) for _ in range(2)]
    assert actions == [ProposedAction("other", "Ann")] * 2
    assert len(constructed) == 1
