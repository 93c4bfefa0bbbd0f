"""Functions as tools: their description for the model, and their calls."""

import threading
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import Meta, Struct
from tests.tools.tool_calls import call_from

from talaria.agent.toolbox import Toolbox, describe_tool
from talaria.app.library import tool
from talaria.contracts.tool import Effect, ProposedAction
from talaria.core.errors import ToolFailed
from talaria.core.messages import ToolCall


class Unit(Enum):
    METRES = "m"
    FEET = "ft"


class Point(Struct, frozen=True):
    x: int
    y: int = 0


def add(first: int, second: int = 2) -> int:
    """Add two numbers.

    Both are whole.
    """
    return first + second


def parameters(function: Any) -> Any:
    return msgspec.json.decode(describe_tool(tool(function)).parameters)


async def answer(function: Any, arguments: str = "{}") -> str:
    """Return the result that a model gets for a call with these arguments."""
    function_tool = tool(function)
    order = Toolbox([function_tool]).parse_call(ToolCall("1", function_tool.name, arguments))
    return (await function_tool.run(order.arguments, call_from(Path.cwd()))).text


def test_the_model_receives_name_and_docstring() -> None:
    spec = describe_tool(tool(add))
    assert (spec.name, spec.description) == ("add", "Add two numbers.\n\nBoth are whole.")


def test_a_function_without_a_docstring_is_described_by_its_name() -> None:
    def send_letter() -> None: ...

    assert describe_tool(tool(send_letter)).description == "send letter"


def test_types_become_the_schema_and_defaults_make_arguments_optional() -> None:
    assert parameters(add) == {
        "type": "object",
        "properties": {"first": {"type": "integer"}, "second": {"type": "integer"}},
        "required": ["first"],
    }


def test_structured_types_are_described_in_the_schema() -> None:
    def draw(
        at: Point, names: list[str], sizes: dict[str, float], kind: Literal["dot", "line"], unit: Unit, bold: bool
    ) -> None: ...

    properties = parameters(draw)["properties"]
    assert properties["at"]["properties"] == {"x": {"type": "integer"}, "y": {"type": "integer"}}
    assert properties["at"]["required"] == ["x"]
    assert properties["names"] == {"type": "array", "items": {"type": "string"}}
    assert properties["sizes"] == {"type": "object", "additionalProperties": {"type": "number"}}
    assert properties["kind"] == {"enum": ["dot", "line"]}
    assert sorted(properties["unit"]["enum"]) == ["ft", "m"]
    assert properties["bold"] == {"type": "boolean"}


def test_annotations_add_description_and_limits_of_an_argument() -> None:
    def wait(minutes: Annotated[int, Meta(description="how long", ge=1, le=60)]) -> None: ...

    assert parameters(wait)["properties"]["minutes"] == {
        "type": "integer",
        "description": "how long",
        "minimum": 1,
        "maximum": 60,
    }


def test_an_argument_without_a_type_is_text() -> None:
    def greet(name):  # type: ignore[no-untyped-def]
        return f"Hello, {name}"

    assert parameters(greet)["properties"] == {"name": {"type": "string"}}


def test_proposed_action_names_function_and_arguments() -> None:
    function_tool = tool(add)
    order = Toolbox([function_tool]).parse_call(ToolCall("1", "add", '{"first": 1}'))
    assert function_tool.proposed_action(order.arguments) == ProposedAction("other", "add(first=1, second=2)")


def test_function_is_irreversible_unless_an_effect_is_given() -> None:
    assert tool(add).effect is Effect.IRREVERSIBLE
    assert tool(add, effect=Effect.READS).effect is Effect.READS


async def test_arguments_are_converted_to_their_types() -> None:
    received: list[object] = []

    def take(at: Point, unit: Unit, times: int = 3) -> str:
        received.extend([at, unit, times])
        return "done"

    assert await answer(take, '{"at": {"x": 4}, "unit": "ft"}') == "done"
    assert received == [Point(4, 0), Unit.FEET, 3]


async def test_function_is_not_called_with_invalid_arguments() -> None:
    def wait(minutes: Annotated[int, Meta(ge=1)]) -> str:
        raise AssertionError("called")

    with pytest.raises(ToolFailed, match="Invalid arguments"):
        await answer(wait, '{"minutes": 0}')


async def test_plain_function_runs_in_another_thread() -> None:
    def where() -> bool:
        return threading.current_thread() is threading.main_thread()

    assert await answer(where) == "false"


async def test_an_async_function_is_awaited_in_the_loop() -> None:
    async def where() -> bool:
        return threading.current_thread() is threading.main_thread()

    assert await answer(where) == "true"


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ("as it is", "as it is"),
        (7, "7"),
        (None, "null"),
        ({"a": [1, 2.5]}, '{"a":[1,2.5]}'),
        (Point(1, 2), '{"x":1,"y":2}'),
        (["ä"], '["ä"]'),
    ],
)
async def test_result_that_is_not_text_is_returned_as_json(result: object, text: str) -> None:
    def give() -> object:
        return result

    assert await answer(give) == text
