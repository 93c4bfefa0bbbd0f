"""Connect a session to the MCP servers of the settings."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

from talaria.app.secrecy import filled_in
from talaria.contracts.tool import Tool
from talaria.core.errors import NotFound, Refused
from talaria.settings.model import McpAccount
from talaria.settings.secrets import Secrets
from talaria.tools.mcp.session_servers import SessionServers
from talaria.tools.mcp.settings import McpServer

_WITHOUT = "The MCP server {name} is not used in this conversation: {problem}."


async def join_servers(
    accounts: Mapping[str, McpAccount],
    secrets: Secrets,
    log_folder: Path,
    servers: SessionServers,
    jobs: asyncio.TaskGroup,
    variables: Mapping[str, str],
) -> tuple[list[Tool], list[str]]:
    """Return the tools of all servers that can be reached, and a sentence for each that cannot.

    The ``servers`` of the session that run already are used as they are; new ones are tasks of ``jobs`` and find
    ``variables`` in their environment.
    """
    wanted, notes = _described(accounts, secrets, variables)
    if not wanted:
        servers.close()
        return [], notes
    try:
        tools, problems = await servers.join(wanted, log_folder, jobs)
    except NotFound as error:
        return [], [*notes, str(error)]
    return tools, [*notes, *(_without(*problem) for problem in problems.items())]


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
        env={key: filled_in(value, secrets) for key, value in account.env.items()},
        session_env=dict(variables),
        url=account.url,
        headers={key: filled_in(value, secrets) for key, value in account.headers.items()},
        include=account.include,
        exclude=account.exclude,
        connect_seconds=account.connect_timeout_seconds,
        call_seconds=account.timeout_seconds,
    )


def _without(name: str, problem: str) -> str:
    return _WITHOUT.format(name=name, problem=problem.rstrip("."))
