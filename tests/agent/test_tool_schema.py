"""Tool descriptions for the model: short, and the same bytes every time."""

import os
import subprocess
import sys
from enum import Enum
from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import Meta, Struct

from talaria.agent.toolbox import describe_tool
from talaria.contracts.tool import Call, Effect, ProposedAction, ToolOutput


class Colour(Enum):
    """For enums."""

    RED = "red"
    BLUE = "blue"


class Point(Struct, frozen=True):
    """A place on the sheet."""

    x: int
    y: int = 0


class Drawing(Struct):
    """For authors of tools; not part of the schema."""

    title: Annotated[str, Meta(description="what to write above it")]
    default: str = "a field may have the name of a keyword"
    colour: Colour = Colour.RED
    style: Literal["thin", "bold"] = "thin"
    width: Annotated[int | None, Meta(description="in pixels")] = None
    height: Annotated[int, Meta(ge=1)] | None = None
    centre: Annotated[Point, Meta(description="where its middle is")] = Point(0)
    corner: Annotated[Point | None, Meta(description="where to begin")] = None
    dots: list[Point] = []
    label: int | str | None = None


class Nothing(Struct):
    """No arguments."""


class Draw:
    """A tool with the arguments that a test needs."""

    name = "draw"
    description = "Draw something."
    effect = Effect.IDEMPOTENT

    def __init__(self, arguments: type[Struct]) -> None:
        self.arguments = arguments

    def proposed_action(self, arguments: Struct) -> ProposedAction:
        return ProposedAction("write", "sheet")

    async def run(self, arguments: Struct, call: Call) -> ToolOutput:
        return ToolOutput("drawn")


def schema_of(arguments: type[Struct]) -> Any:
    return msgspec.json.decode(bytes(describe_tool(Draw(arguments)).parameters))


POINT = {
    "type": "object",
    "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}},
    "required": ["x"],
}


@pytest.mark.parametrize(
    ("field", "described"),
    [
        ("title", {"type": "string", "description": "what to write above it"}),
        ("default", {"type": "string"}),
        ("colour", {"enum": ["blue", "red"]}),
        ("style", {"enum": ["bold", "thin"]}),
        ("width", {"type": "integer", "description": "in pixels"}),
        ("height", {"type": "integer", "minimum": 1}),
        ("centre", {**POINT, "description": "where its middle is"}),
        ("corner", {**POINT, "description": "where to begin"}),
        ("dots", {"type": "array", "items": POINT}),
        ("label", {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
    ],
)
def test_schema_of_a_field_is_short(field: str, described: object) -> None:
    assert schema_of(Drawing)["properties"][field] == described


def test_only_fields_without_a_default_are_required() -> None:
    assert schema_of(Drawing)["required"] == ["title"]


def test_schema_of_a_tool_without_arguments_is_an_empty_object() -> None:
    assert schema_of(Nothing) == {"type": "object", "properties": {}}


def test_schema_has_only_type_properties_and_required() -> None:
    assert set(schema_of(Drawing)) == {"type", "properties", "required"}


def test_same_tool_is_described_by_the_same_bytes() -> None:
    assert describe_tool(Draw(Drawing)) == describe_tool(Draw(Drawing))


def test_description_bytes_do_not_depend_on_the_process() -> None:
    program = (
        "from tests.agent.test_tool_schema import *; import sys;"
        " sys.stdout.buffer.write(bytes(describe_tool(Draw(Drawing)).parameters))"
    )
    outputs = {_output(program, seed) for seed in ("1", "2")}
    assert outputs == {bytes(describe_tool(Draw(Drawing)).parameters)}


def _output(program: str, seed: str) -> bytes:
    environment = {**os.environ, "PYTHONHASHSEED": seed}  # noqa: TID251 - a child needs ours, with another seed
    return subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, env=environment).stdout
