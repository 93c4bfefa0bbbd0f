"""MCP servers of a session: connections, and sign-ins with OAuth 2.1 whose tokens all processes share."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from urllib.parse import urlsplit

from msgspec import structs

from talaria.app.logins import (
    LoginAuthorizer,
    paste_redirect,
    run_with_pool,
    sign_in_by_pasting,
    sign_in_with_browser,
    sign_out,
    store_login,
)
from talaria.app.session.secret_values import fill_secrets
from talaria.contracts.mcp import ServerState
from talaria.contracts.setup import SignInSurface, SignInWay
from talaria.core.errors import NotFound, Refused, SignInNeeded
from talaria.http_client.client import HttpPool
from talaria.providers.login_clients import OAuthClient
from talaria.providers.oauth import AuthorizationServer
from talaria.settings.logins import LoginStore, StoredLogin, login_name
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


class McpTokens:
    """Access tokens of the sign-in to one server; implements `TokenSource`. Without a sign-in there are none.

    Only one process renews a token; the others use what it stored. A failed renewal leaves the stored tokens as they
    are. Tokens are sent only to the server that they were granted for.
    """

    def __init__(
        self, name: str, url: str, store: LoginStore, on_secrets: Callable[[Iterable[str]], None] = lambda _: None
    ) -> None:
        self._name = name
        self._url = url
        self._store = store
        self._on_secrets = on_secrets

    async def headers(self, method: str, url: str, body: bytes) -> Mapping[str, str]:
        """Return the headers for one request; none without a sign-in."""
        login = self._store.get(login_name(self._name))
        if login is None:
            return {}
        if _get_origin(login.base_url) != _get_origin(self._url):
            raise SignInNeeded(
                f"The sign-in is for {login.base_url}, but the address of {self._name} has changed since. Sign in"
                f" again with `talaria mcp login {self._name}`."
            )
        http = HttpPool()
        try:
            return await self._make_authorizer(http).headers(method, url, body)
        finally:
            await http.close()

    async def renew(self, headers: Mapping[str, str]) -> bool:
        """Replace a token that the server has rejected, unless another process has done so."""
        http = HttpPool()
        try:
            return await self._make_authorizer(http).renew(headers)
        finally:
            await http.close()

    def _make_authorizer(self, http: HttpPool) -> LoginAuthorizer:
        return LoginAuthorizer(login_name(self._name), self._store, http, self._on_secrets)


class McpSignIn:
    """Signing in to one server; ``headers`` are those of its settings."""

    def __init__(
        self, name: str, server: McpServerSettings, headers: Mapping[str, str], secret: str, store: LoginStore
    ) -> None:
        if not server.url:
            raise Refused(f"{name} is a program on this computer; only a server with an address has a sign-in.")
        self._name = name
        self._server = server
        self._headers = headers
        self._secret = secret
        self._store = store
        self._client = OAuthClient(
            name=login_name(name),
            title=name,
            provider="",
            client_id=server.client_id,
            client_secret=secret,
            redirect_path="/callback",
            redirect_ports=(server.redirect_port,) if server.redirect_port else (),
            command=f"talaria mcp login {name}",
        )

    def run(self, surface: SignInSurface, way: SignInWay, wait: timedelta) -> StoredLogin:
        """Let a person sign in, and store the tokens; raises `Refused` with the reason if that fails."""
        from talaria.tools.mcp.authorization import discover_authorization, register_client  # noqa: PLC0415 (needs mcp)

        found = asyncio.run(discover_authorization(self._name, self._server.url, self._headers))
        scope = self._server.scope or found.scope
        consent = {"prompt": "consent"} if "offline_access" in scope.split() else {}
        described = structs.replace(
            self._client,
            issuer=found.issuer,
            authorize_url=found.authorize_url,
            token_url=found.token_url,
            revoke_url=found.revoke_url,
            scope=scope,
            parameters={"resource": found.resource, **consent},
            token_parameters={"resource": found.resource},
        )

        async def register(redirect_uri: str) -> OAuthClient:
            if described.client_id:
                return described
            made = await register_client(self._name, structs.replace(found, scope=scope), redirect_uri)
            return structs.replace(described, **structs.asdict(made))

        if way == "paste" or not surface.has_browser:
            client = asyncio.run(register(paste_redirect(described)))
            granted = sign_in_by_pasting(client, surface)
        else:
            client, granted = run_with_pool(
                lambda http: sign_in_with_browser(AuthorizationServer(described, http), surface, wait, register)
            )
        return run_with_pool(lambda _: store_login(self._store, client, granted, {}, self._server.url))


def sign_out_of_server(name: str, store: LoginStore) -> bool:
    """Revoke and delete the tokens of a server; return whether there were any."""
    return run_with_pool(lambda http: sign_out(store, login_name(name), http))


def _get_origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc.rpartition("@")[2].lower()


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
