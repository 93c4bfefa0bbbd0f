"""Join the MCP servers of the settings to a conversation, for as long as it is open."""

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path

from talaria.app.secrecy import filled_in
from talaria.contracts.tool import Tool
from talaria.core.errors import NotFound, Refused
from talaria.settings.model import McpAccount
from talaria.settings.secrets import Secrets
from talaria.tools.mcp.servers import McpServers
from talaria.tools.mcp.settings import McpServer

_TO_CLEAN_UP = 2.0  # seconds that a server which did not answer may take to end
_WITHOUT = "The MCP server {name} is not used in this conversation: {problem}."


async def join_servers(
    accounts: Mapping[str, McpAccount],
    secrets: Secrets,
    log_folder: Path,
    closing: AsyncExitStack,
    jobs: asyncio.TaskGroup,
    variables: Mapping[str, str],
) -> tuple[list[Tool], list[str]]:
    """Return the tools of all servers that can be reached, and a sentence for each that cannot.

    They stay connected, by a task of ``jobs``, until ``closing`` ends. Those that run here find ``variables`` in their
    environment.
    """
    wanted, notes = _described(accounts, secrets, variables)
    if not wanted:
        return [], notes
    try:
        servers = McpServers(wanted, log_folder)
    except NotFound as error:
        return [], [*notes, str(error)]
    serving = jobs.create_task(servers.serve())
    closing.callback(serving.cancel)
    try:
        async with asyncio.timeout(max(server.connect_seconds for server in wanted) + _TO_CLEAN_UP):
            await servers.ready()
    except TimeoutError:
        notes.append("Not every MCP server has answered in time.")
    return servers.tools, [*notes, *(_without(*problem) for problem in servers.problems.items())]


def _described(
    accounts: Mapping[str, McpAccount], secrets: Secrets, variables: Mapping[str, str]
) -> tuple[list[McpServer], list[str]]:
    wanted: list[McpServer] = []
    notes: list[str] = []
    for name, account in accounts.items():
        try:
            if account.enabled:
                wanted.append(_server(name, account, secrets, variables))
        except (NotFound, Refused) as error:
            notes.append(_without(name, str(error)))
    return wanted, notes


def _server(name: str, account: McpAccount, secrets: Secrets, variables: Mapping[str, str]) -> McpServer:
    if bool(account.command) == bool(account.url):
        raise Refused(f"set either mcp.{name}.command or mcp.{name}.url")
    return McpServer(
        name=name,
        command=account.command,
        args=account.args,
        env={**variables, **{key: filled_in(value, secrets) for key, value in account.env.items()}},
        url=account.url,
        headers={key: filled_in(value, secrets) for key, value in account.headers.items()},
        include=account.include,
        exclude=account.exclude,
        connect_seconds=account.connect_timeout_seconds,
        call_seconds=account.timeout_seconds,
    )


def _without(name: str, problem: str) -> str:
    return _WITHOUT.format(name=name, problem=problem.rstrip("."))
