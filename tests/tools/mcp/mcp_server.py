"""A small real MCP server, to be run as a process: ``mcp_server.py stdio`` or ``mcp_server.py http <port>``."""

import asyncio
import os
import sys
from typing import Annotated, Literal

from mcp.server import MCPServer
from mcp.server.mcpserver import Context, Elicit, Resolve
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ImageContent, ToolAnnotations
from pydantic import BaseModel

server = MCPServer("kitchen", log_level="WARNING")


class Item(BaseModel):
    name: str
    grams: int = 100


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def add(a: int, b: int = 1) -> str:
    """Add two numbers."""
    return str(a + b)


@server.tool(annotations=ToolAnnotations(idempotent_hint=True))
def order(items: list[Item], note: str | None = None) -> str:
    """Order things."""
    return f"{', '.join(f'{item.grams} g {item.name}' for item in items)}; {note}"


@server.tool(structured_output=False)
def picture() -> list[ImageContent]:
    """Draw."""
    return [ImageContent(type="image", data="aGk=", mime_type="image/png")]


@server.tool()
def fail() -> str:
    """Fail."""
    raise ToolError("burnt")


@server.tool()
def pid() -> str:
    """Tell the process."""
    sys.stderr.write("asked for the process\n")
    sys.stderr.flush()
    return str(os.getpid())


@server.tool()
async def bake(ctx: Context) -> str:
    """Take forever."""
    await ctx.report_progress(1, 3, "kneading")
    await asyncio.Event().wait()
    return "done"


class Drink(BaseModel):
    drink: Literal["tea", "coffee"]


def ask_drink() -> Elicit[Drink]:
    return Elicit("What to drink?", Drink)


@server.tool()
def choose(drink: Annotated[Drink, Resolve(ask_drink)]) -> str:
    """Ask what to drink."""
    return f"chosen: {drink.drink}"


@server.resource("notes://today")
def today() -> str:
    """What is to be cooked."""
    return "Soup."


@server.prompt()
def greet(name: str) -> str:
    """Greet somebody."""
    return f"Say hello to {name}."


if __name__ == "__main__":
    if sys.argv[1] == "http":
        server.run("streamable-http", port=int(sys.argv[2]))
    else:
        server.run("stdio")
