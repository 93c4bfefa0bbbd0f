"""Descriptions of tools, and parsing of calls: repaired where that is safe, else answered with what is wrong."""

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


def understood(arguments: str, name: str = "write_letter") -> Any:
    return BOX.parse_call(ToolCall("1", name, arguments)).arguments


def complaint(arguments: str, name: str = "write_letter") -> str:
    with pytest.raises(ToolFailed) as failure:
        understood(arguments, name)
    return str(failure.value)


def test_a_call_finds_its_tool_and_its_arguments() -> None:
    order = BOX.parse_call(ToolCall("1", "write_letter", '{"to": "Ann", "copies": 2}'))
    assert isinstance(order.tool, Write)
    assert order.arguments == Letter("Ann", copies=2)


@pytest.mark.parametrize("name", ["Write_Letter", "write-letter", "functions.write_letter", "tools.Write-Letter"])
def test_a_name_that_can_only_mean_one_tool_finds_it(name: str) -> None:
    assert understood('{"to": "Ann"}', name) == Letter("Ann")


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    assert "There is no tool wrote_letter. Did you mean write_letter" in complaint("{}", "wrote_letter")


def test_a_name_near_to_nothing_is_answered_with_all() -> None:
    assert complaint("{}", "xyz").endswith("Available: burn_letter, read_letter, write_letter.")


def test_a_name_that_could_mean_two_tools_is_not_guessed() -> None:
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
def test_arguments_are_repaired_where_their_meaning_is_sure(arguments: str) -> None:
    assert understood(arguments) == Letter("Ann")


def test_no_arguments_are_an_empty_object() -> None:
    assert understood("", "read_letter") == understood("{}", "read_letter") == understood(" ", "read_letter")


def test_repair_leaves_quoted_text_unchanged() -> None:
    arguments = '{"to": "Ann", "text": "f(a, [1,], \\"{x,}\\")",}'
    assert understood(arguments).text == 'f(a, [1,], "{x,}")'


def test_valid_arguments_are_taken_unchanged() -> None:
    assert understood('{"to": "Ann", "text": "```json\\n[1,]\\n```"}').text == "```json\n[1,]\n```"


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
def test_what_is_wrong_with_arguments_is_said(arguments: str, wrong: str) -> None:
    assert wrong in complaint(arguments)


def test_arguments_that_do_not_fit_are_answered_with_what_would() -> None:
    assert '"required":["to"]' in complaint("{}")


def test_unknown_arguments_are_named_and_nothing_runs() -> None:
    said = complaint('{"to": "Ann", "subject": "Hi", "cc": ["Bo"]}')
    assert said.startswith("write_letter has no argument `subject` or `cc`. Expected: {")


def test_unknown_arguments_without_a_value_are_ignored() -> None:
    assert understood('{"to": "Ann", "subject": null}') == Letter("Ann")


def test_numbers_and_truths_in_quotes_are_taken_for_what_they_are() -> None:
    assert understood('{"to": "Ann", "copies": "2", "urgent": "true"}') == Letter("Ann", copies=2, urgent=True)


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
