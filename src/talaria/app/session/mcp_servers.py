"""Connection of a session to the configured MCP servers."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

from msgspec import structs

from talaria.app.session.secret_values import fill_secrets
from talaria.contracts.tool import Tool
from talaria.core.errors import NotFound, Refused
from talaria.settings.model import McpServerSettings
from talaria.settings.secrets import Secrets
from talaria.tools.mcp.session_servers import SessionServers
from talaria.tools.mcp.settings import McpServer

_MISSING_NOTICE = "The MCP server {name} isn't available in this conversation: {problem}."


async def connect_servers(
    accounts: Mapping[str, McpServerSettings],
    secrets: Secrets,
    log_folder: Path,
    servers: SessionServers,
    jobs: asyncio.TaskGroup,
    variables: Mapping[str, str],
) -> tuple[list[Tool], list[str]]:
    """Return the tools of all reachable servers, and a sentence for each other server.

    ``servers`` of the session that already run are reused; new ones are tasks of ``jobs`` and get ``variables`` in
    their environment.
    """
    configured, notes = _read_accounts(accounts, secrets, variables)
    if not configured:
        servers.close()
        return [], notes
    try:
        tools, problems = await servers.join(configured, log_folder, jobs)
    except NotFound as error:
        return [], [*notes, str(error)]
    return tools, [*notes, *(_explain_missing(*problem) for problem in problems.items())]


async def try_server(
    name: str, account: McpServerSettings, secrets: Secrets, log_folder: Path
) -> tuple[list[Tool], str]:
    """Connect to a server, list its tools and disconnect; return the tools, and the problem if there is one."""
    servers = SessionServers()
    async with asyncio.TaskGroup() as jobs:
        try:
            enabled = structs.replace(account, enabled=True)
            tools, notes = await connect_servers({name: enabled}, secrets, log_folder, servers, jobs, {})
        finally:
            servers.close()
    return tools, " ".join(notes)


def _read_accounts(
    accounts: Mapping[str, McpServerSettings], secrets: Secrets, variables: Mapping[str, str]
) -> tuple[list[McpServer], list[str]]:
    configured: list[McpServer] = []
    notes: list[str] = []
    for name, account in accounts.items():
        try:
            if account.enabled:
                configured.append(_make_server(name, account, secrets, variables))
        except (NotFound, Refused) as error:
            notes.append(_explain_missing(name, str(error)))
    return configured, notes


def _make_server(name: str, account: McpServerSettings, secrets: Secrets, variables: Mapping[str, str]) -> McpServer:
    if bool(account.command) == bool(account.url):
        raise Refused(f"set either mcp.{name}.command or mcp.{name}.url")
    return McpServer(
        name=name,
        command=account.command,
        args=account.args,
        env={key: fill_secrets(value, secrets) for key, value in account.env.items()},
        session_env=dict(variables),
        url=account.url,
        headers={key: fill_secrets(value, secrets) for key, value in account.headers.items()},
        include=account.include,
        exclude=account.exclude,
        connect_seconds=account.connect_timeout_seconds,
        call_seconds=account.timeout_seconds,
    )


def _explain_missing(name: str, problem: str) -> str:
    return _MISSING_NOTICE.format(name=name, problem=problem.rstrip("."))
