"""A real MCP server that asks the person during a call, to be run as a process on standard input and output."""

from typing import Annotated, Literal

from mcp.server import MCPServer
from mcp.server.elicitation import AcceptedElicitation, ElicitationResult
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.resolve import Elicit, Resolve
from pydantic import BaseModel

server = MCPServer("tables", log_level="WARNING")


class Table(BaseModel):
    guests: int
    place: Literal["window", "garden"]


def ask_for_table() -> Elicit[Table]:
    """Ask as every version of the protocol does."""
    return Elicit("Which table would you like?", Table)


@server.tool()
def book(answer: Annotated[ElicitationResult[Table], Resolve(ask_for_table)]) -> str:
    """Book a table."""
    if isinstance(answer, AcceptedElicitation):
        return f"Booked for {answer.data.guests} in the {answer.data.place}."
    return f"The person chose to {answer.action}."


@server.tool()
async def book_as_before_2026(ctx: Context) -> str:
    """Book a table with a request that new versions of the protocol don't have."""
    return (await ctx.elicit("Which table would you like?", Table)).action


if __name__ == "__main__":
    server.run("stdio")
