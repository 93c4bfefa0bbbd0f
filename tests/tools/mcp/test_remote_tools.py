"""Arguments of tools on an MCP server, parsed as those of built-in tools."""

from msgspec import Struct

from talaria.agent.toolbox import Toolbox
from talaria.contracts.tool import Call, Effect, ProposedAction, ToolOutput
from talaria.core.messages import ToolCall
from talaria.tools.mcp.remote_tools import define_struct, extract_values


class Search:
    """A tool whose arguments a server describes."""

    name = "search"
    description = "Search."
    effect = Effect.READS
    arguments: type[Struct] = define_struct("search", {"properties": {"query": {"type": "string"}}})

    def proposed_action(self, arguments: Struct) -> ProposedAction:
        return ProposedAction("other", str(extract_values(arguments)))

    async def run(self, arguments: Struct, call: Call) -> ToolOutput:
        return ToolOutput(str(extract_values(arguments)))


def test_unknown_arguments_of_a_remote_tool_are_dropped() -> None:
    order = Toolbox([Search()]).parse_call(ToolCall("1", "search", '{"query": "x", "more": 1}'))
    assert extract_values(order.arguments) == {"query": "x"}
