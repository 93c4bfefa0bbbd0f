"""Connection of a session to the configured MCP servers."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from msgspec import structs

from talaria.app.mcp_logins import McpTokens
from talaria.app.session.secret_values import fill_secrets
from talaria.contracts.mcp import ServerState
from talaria.core.errors import NotFound, Refused
from talaria.settings.logins import LoginStore
from talaria.settings.profiles import Profile
from talaria.settings.secrets import Secrets
from talaria.settings.sections.tools import McpServerSettings
from talaria.tools.mcp.session_servers import SessionServers
from talaria.tools.mcp.settings import McpServer

_MISSING_NOTICE = "The MCP server {name} isn't available in this conversation: {problem}."


async def connect_servers(
    configured: Sequence[McpServer],
    unusable: dict[str, str],
    servers: SessionServers,
    log_folder: Path,
    jobs: asyncio.TaskGroup,
) -> tuple[Mapping[str, str], Sequence[str]]:
    """Connect to servers; return the problems of those not connected by name, and a sentence for each.

    ``servers`` of the session that already run are reused; new ones are tasks of ``jobs``. ``unusable`` are those with
    a problem in their settings.
    """
    try:
        _, unreachable = await servers.join(configured, log_folder, jobs)
    except NotFound as error:  # the library is missing, for all of them alike
        missing = {one.name: str(error) for one in configured}
        return missing | unusable, [*map(_explain, unusable.items()), str(error)]
    problems = unusable | unreachable
    return problems, [*map(_explain, problems.items())]


async def try_server(name: str, account: McpServerSettings, secrets: Secrets, profile: Profile) -> ServerState:
    """Connect to a server, list what it offers and disconnect."""
    servers = SessionServers()
    configured, problems = read_accounts({name: structs.replace(account, enabled=True)}, secrets, profile)
    if not configured:
        return ServerState(name=name, condition="disconnected", problem=problems[name])
    async with asyncio.TaskGroup() as jobs:
        try:
            await servers.join(configured, profile.logs_folder, jobs)
            return servers.states()[0]
        except NotFound as error:
            return ServerState(name=name, condition="disconnected", problem=str(error))
        finally:
            servers.close()


def read_accounts(
    accounts: Mapping[str, McpServerSettings],
    secrets: Secrets,
    profile: Profile,
    *,
    on_secrets: Callable[[Iterable[str]], None] = lambda _: None,
    variables: Mapping[str, str] = MappingProxyType({}),
    roots: tuple[str, ...] = (),
) -> tuple[list[McpServer], dict[str, str]]:
    """Return the enabled servers, and the problems of those with unusable settings.

    Programs get ``variables`` in their environment; ``roots`` are folders that a server may ask for. ``on_secrets``
    gets tokens to mask.
    """
    configured: list[McpServer] = []
    problems: dict[str, str] = {}
    for name, account in accounts.items():
        try:
            if account.enabled:
                server = _make_server(name, account, secrets)
                tokens = McpTokens(name, account.url, LoginStore(profile.folder), on_secrets) if account.url else None
                session = {"session_env": dict(variables), "roots": roots, "authorizer": tokens}
                configured.append(structs.replace(server, **session))
        except (NotFound, Refused) as error:
            problems[name] = str(error)
    return configured, problems


def _make_server(name: str, account: McpServerSettings, secrets: Secrets) -> McpServer:
    if bool(account.command) == bool(account.url):
        raise Refused(f"set either mcp.{name}.command or mcp.{name}.url")
    return McpServer(
        name=name,
        command=account.command,
        args=account.args,
        env={key: fill_secrets(value, secrets) for key, value in account.env.items()},
        url=account.url,
        headers={key: fill_secrets(value, secrets) for key, value in account.headers.items()},
        include=account.include,
        exclude=account.exclude,
        connect_seconds=account.connect_timeout_seconds,
        call_seconds=account.timeout_seconds,
    )


def _explain(problem: tuple[str, str]) -> str:
    name, reason = problem
    return _MISSING_NOTICE.format(name=name, problem=reason.rstrip("."))
