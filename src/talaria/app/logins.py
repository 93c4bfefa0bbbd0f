"""Sign-ins of a profile: signing in and out, and access tokens that are renewed once for all processes."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from talaria.contracts.clock import Clock, SystemClock
from talaria.contracts.setup import LoginState, SignInSurface, SignInWay
from talaria.core.errors import NotFound, ProviderError, ProviderUnreachable, Refused, SignInNeeded
from talaria.http_client.client import HttpPool
from talaria.providers.login_clients import LOGIN_CLIENTS, OAuthClient, find_login_client
from talaria.providers.loopback_redirect import LoopbackRedirect
from talaria.providers.oauth import (
    AuthorizationServer,
    Pkce,
    TokenSet,
    authorize_url,
    discover,
    read_claim,
    read_redirect,
)
from talaria.settings.errors import build_unknown_fault
from talaria.settings.logins import LoginStore, StoredLogin, choose_renewal
from talaria.settings.model import Settings
from talaria.settings.sections.providers import LoginSettings

_PASTE_REDIRECT = "http://localhost:1455"  # nothing listens there: the person copies the address
_GOOGLE_AUTH = "https://accounts.google.com/o/oauth2/auth"  # as the files of the console name it
_ACCOUNT_CLAIMS = ("email", "preferred_username", "name", "sub")
_OWN_CLIENT_NEEDED = (
    "Google allows this only with an OAuth client of your own. Create one of the type Desktop app in the Google Cloud"
    " console, download its JSON file, and run `talaria login google --client FILE`. An API key is simpler:"
    " `talaria config set GEMINI_API_KEY -`."
)
T = TypeVar("T")
Registration = Callable[[str], Awaitable[OAuthClient]]  # registers a client for a redirect address


class LoginAuthorizer:
    """Access tokens of a stored sign-in, for the requests of a provider.

    A token is renewed shortly before it expires, or when the provider rejects it. Only one process renews: the others
    wait for its lock and use what it stored. ``on_secrets`` is called with tokens that must be masked.
    """

    def __init__(
        self,
        name: str,
        store: LoginStore,
        http: HttpPool,
        on_secrets: Callable[[Iterable[str]], None] = lambda _: None,
        clock: Clock | None = None,
    ) -> None:
        self._name = name
        self._store = store
        self._http = http
        self._on_secrets = on_secrets
        self._clock = clock or SystemClock()
        self._masked = ""

    async def headers(self, method: str, url: str, body: bytes) -> Mapping[str, str]:
        """Return the headers for one request; raises `SignInNeeded` if the owner has to sign in."""
        login = self._read()
        if not login.is_fresh(self._clock.now()):
            try:
                login = await self._renew(login.access_token)
            except ProviderUnreachable:
                if self._clock.now() >= login.expires_at:
                    raise
        return {"Authorization": f"Bearer {login.access_token}", **login.headers}

    async def renew(self, headers: Mapping[str, str]) -> bool:
        """Replace the token of rejected headers, unless that has happened since; return true."""
        rejected = headers.get("Authorization", "").removeprefix("Bearer ")
        await self._renew(rejected)
        return True

    async def _renew(self, stale: str) -> StoredLogin:
        async with self._store.lock(self._name):
            login = self._read()
            if login.access_token != stale and login.is_fresh(self._clock.now()):
                return login
            if not login.refresh_token:
                raise self._needs_sign_in()
            renewed = await _finish(self._refresh(login))
        self._mask(renewed)
        return renewed

    async def _refresh(self, login: StoredLogin) -> StoredLogin:
        """Exchange the refresh token and store the new ones."""
        server = AuthorizationServer(_restore_client(login), self._http, self._clock)
        try:
            granted = await server.refresh(login.refresh_token)
        except SignInNeeded as error:
            self._store.put(msgspec.structs.replace(login, problem=str(error)))
            raise
        renewed = _apply_grant(login, granted, self._clock.now())
        self._store.put(renewed)
        return renewed

    def _read(self) -> StoredLogin:
        login = self._store.get(self._name)
        if login is None:
            raise self._needs_sign_in()
        if login.problem:
            raise SignInNeeded(login.problem)
        self._mask(login)
        return login

    def _mask(self, login: StoredLogin) -> None:
        if login.access_token != self._masked:
            self._masked = login.access_token
            self._on_secrets(login.secret_values())

    def _needs_sign_in(self) -> SignInNeeded:
        client = find_login_client(self._name)
        title = client.title if client else self._name
        return SignInNeeded(f"You aren't signed in to {title}. Sign in with `talaria login {self._name}`.")


async def _finish(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of ``work``; cancellations, even several, wait for it.

    A refresh token can be used once: without the answer, the sign-in would be lost.
    """
    working = asyncio.ensure_future(work)
    is_cancelled = False
    while not working.done():
        try:
            await asyncio.wait([working])
        except asyncio.CancelledError:
            is_cancelled = True
    if is_cancelled:
        working.exception()  # marks it as seen
        raise asyncio.CancelledError
    return working.result()


class ProfileLogins:
    """Signing in and out for the commands of one profile; each call opens its connections and closes them again."""

    def __init__(self, settings: Settings, profile_folder: Path) -> None:
        self._settings = settings
        self._store = LoginStore(profile_folder)

    def status(self) -> list[LoginState]:
        """Return the state of every sign-in, existing or not."""
        return [self._describe(client) for client in LOGIN_CLIENTS]

    def sign_in(
        self,
        name: str,
        surface: SignInSurface,
        *,
        way: SignInWay = "auto",
        client_file: Path | None = None,
        wait: timedelta = timedelta(minutes=5),
    ) -> LoginState:
        """Let a person sign in and store the tokens; raises `Refused` with the reason if that fails."""
        client = self._find_client(name)
        headers: Mapping[str, str] = {}
        if client_file is not None:
            client, headers = _read_client_file(client, client_file)
        elif not client.client_id and (known := self._store.get(name)):
            client, headers = _restore_client(known), known.headers
        client = run_with_pool(lambda http: self._configure(client, http))
        if not client.client_id:
            raise Refused(_OWN_CLIENT_NEEDED)
        granted = self._get_tokens(client, surface, _choose_way(client, way, surface), wait)
        run_with_pool(lambda _: store_login(self._store, client, granted, headers))
        return self._describe(client)

    def _get_tokens(self, client: OAuthClient, surface: SignInSurface, way: SignInWay, wait: timedelta) -> TokenSet:
        if way == "paste":  # outside the event loop, so that Ctrl-C ends the question
            return sign_in_by_pasting(client, surface)
        if way == "device":
            return run_with_pool(lambda http: _sign_in_by_code(AuthorizationServer(client, http), surface))
        return run_with_pool(lambda http: sign_in_with_browser(AuthorizationServer(client, http), surface, wait))[1]

    def sign_out(self, name: str) -> bool:
        """Revoke the tokens where the server supports it, and delete them; return whether there were any."""
        self._find_client(name)
        return run_with_pool(lambda http: sign_out(self._store, name, http))

    def _describe(self, client: OAuthClient) -> LoginState:
        state = LoginState(name=client.name, title=client.title, provider=client.provider)
        try:
            login = self._store.get(client.name)
        except Refused as error:
            return msgspec.structs.replace(state, condition="needs sign-in", problem=str(error))
        if login is None:
            return state
        return msgspec.structs.replace(
            state,
            condition="needs sign-in" if login.problem else "signed in",
            account=login.account,
            plan=login.plan,
            expires_at=login.expires_at,
            file=str(self._store.path(client.name)),
            problem=login.problem,
        )

    def _find_client(self, name: str) -> OAuthClient:
        client = find_login_client(name)
        if client is None:
            fault = build_unknown_fault("sign-in", name, [one.name for one in LOGIN_CLIENTS])
            raise NotFound(f"{fault.problem} `talaria login` lists them.")
        return client

    async def _configure(self, client: OAuthClient, http: HttpPool) -> OAuthClient:
        """Return the client with the changes of the settings."""
        changes = self._settings.logins.get(client.name, LoginSettings())
        if changes.issuer:
            client = await discover(client, changes.issuer, http)
        return msgspec.structs.replace(
            client,
            client_id=changes.client_id or client.client_id,
            scope=changes.scope or client.scope,
            exchange_url=changes.exchange_url or client.exchange_url,
        )


def run_with_pool(work: Callable[[HttpPool], Awaitable[T]]) -> T:
    """Run a coroutine with connections of its own; errors of the server become `Refused`."""

    async def run() -> T:
        http = HttpPool()
        try:
            return await work(http)
        except ProviderError as error:
            raise error if isinstance(error, SignInNeeded) else _explain_failure(error) from error
        finally:
            await http.close()

    return asyncio.run(run())


async def store_login(
    store: LoginStore, client: OAuthClient, granted: TokenSet, headers: Mapping[str, str], base_url: str = ""
) -> StoredLogin:
    """Store the tokens of a new sign-in and return it."""
    login = _build_stored_login(client, granted, headers)
    login = msgspec.structs.replace(login, base_url=base_url or login.base_url)
    async with store.lock(login.name):
        store.put(login)
    return login


async def sign_out(store: LoginStore, name: str, http: HttpPool) -> bool:
    """Revoke the tokens where the server supports it, and delete them; return whether there were any."""
    if not store.exists(name):
        return False
    async with store.lock(name):
        try:
            login = store.get(name)
        except Refused:  # damaged: nothing to revoke
            login = None
        if login is not None and login.refresh_token and not login.exchange_url:
            await AuthorizationServer(_restore_client(login), http).revoke(login.refresh_token)
        return store.remove(name)


def _explain_failure(error: ProviderError) -> Refused:
    cause = error.cause if isinstance(error, ProviderUnreachable) and error.cause else str(error)
    return Refused(f"The sign-in failed: {cause.rstrip('.')}. Check the network connection and try again.")


def _choose_way(client: OAuthClient, way: SignInWay, surface: SignInSurface) -> SignInWay:
    """Return how to sign in: with a browser, else with a code, else by copying an address."""
    if way == "device" and not client.device_flow:
        raise Refused(f"{client.title} has no sign-in with a code. Leave out --device, or use --paste.")
    if way == "paste" and not client.has_browser_flow:
        raise Refused(f"{client.title} has no address to paste. Leave out --paste.")
    if way != "auto":
        return way
    if client.has_browser_flow and surface.has_browser:
        return "browser"
    return "device" if client.device_flow else "paste"


async def sign_in_with_browser(
    server: AuthorizationServer, surface: SignInSurface, wait: timedelta, register: Registration | None = None
) -> tuple[OAuthClient, TokenSet]:
    """Let a person sign in with a browser; return the client, which ``register`` may have made, and the tokens."""
    client, pkce = server.client, Pkce.create()
    redirect = LoopbackRedirect(client.redirect_path, pkce.state)
    async with redirect.listen(client.redirect_ports):
        if register is not None:
            client = await register(redirect.uri)
            server = server.with_client(client)
        url = authorize_url(client, redirect.uri, pkce)
        opened = surface.open_browser(url)
        verb = "Opening your browser. If nothing happens, open" if opened else "Open"
        surface.show(f"{verb} this address on this computer to sign in to {client.title}:\n{url}")
        surface.show("Waiting for the sign-in; Ctrl-C stops.")
        try:
            answer = await redirect.wait(wait)
        except TimeoutError as error:
            device = ", or add --device to use a code" if client.device_flow else ""
            minutes = f"{wait.total_seconds() / 60:g} minutes"
            raise Refused(f"Nobody signed in within {minutes}. Run the command again{device}.") from error
    return client, await server.redeem(answer, redirect.uri, pkce)


async def _sign_in_by_code(server: AuthorizationServer, surface: SignInSurface) -> TokenSet:
    code = await server.start_device()
    surface.show(f"Open this address on any device to sign in to {server.client.title}:\n{code.page}")
    surface.show(f"Enter this code there: {code.user_code}")
    surface.show("Enter it only if you started this yourself. Waiting for the sign-in; Ctrl-C stops.")
    return await server.wait_for_device(code)


def paste_redirect(client: OAuthClient) -> str:
    """Return the address to which a browser is sent if the person copies it; nothing listens there."""
    return f"{_PASTE_REDIRECT}{client.redirect_path}"


def sign_in_by_pasting(client: OAuthClient, surface: SignInSurface) -> TokenSet:
    """Let a person sign in with a browser anywhere, and copy the address that it ends up at."""
    pkce, redirect_uri = Pkce.create(), paste_redirect(client)
    answer = _ask_for_address(client, surface, authorize_url(client, redirect_uri, pkce))
    return run_with_pool(lambda http: AuthorizationServer(client, http).redeem(answer, redirect_uri, pkce))


def _ask_for_address(client: OAuthClient, surface: SignInSurface, url: str) -> Mapping[str, str]:
    surface.show(f"Open this address on any device to sign in to {client.title}:\n{url}")
    surface.show("At the end, the browser shows a page that can't be loaded. Copy its whole address and paste it here.")
    pasted = surface.ask("Address: ")
    if not pasted.strip():
        raise Refused("No address was given. Nothing has changed.")
    return read_redirect(pasted)


def _build_stored_login(client: OAuthClient, granted: TokenSet, headers: Mapping[str, str]) -> StoredLogin:
    account_id = read_claim(granted.claims, client.account_claim)
    return StoredLogin(
        name=client.name,
        access_token=granted.access_token,
        refresh_token=granted.refresh_token,
        expires_at=granted.expires_at,
        renew_at=choose_renewal(SystemClock().now(), granted.expires_at),
        client_id=client.client_id,
        client_secret=client.client_secret,
        token_url=client.token_url,
        revoke_url=client.revoke_url,
        exchange_url=client.exchange_url,
        account=next((found for name in _ACCOUNT_CLAIMS if (found := read_claim(granted.claims, (name,)))), ""),
        plan=read_claim(granted.claims, client.plan_claim),
        headers={**headers, **({client.account_header: account_id} if account_id else {})},
        base_url=granted.base_url,
        title=client.title,
        command=client.command,
        token_parameters=dict(client.token_parameters),
        secret_in_header=client.secret_in_header,
    )


def _apply_grant(login: StoredLogin, granted: TokenSet, now: datetime) -> StoredLogin:
    return msgspec.structs.replace(
        login,
        access_token=granted.access_token,
        refresh_token=granted.refresh_token,
        expires_at=granted.expires_at,
        renew_at=choose_renewal(now, granted.expires_at),
        base_url=granted.base_url or login.base_url,
        problem="",
    )


def _restore_client(login: StoredLogin) -> OAuthClient:
    """Return the client that a sign-in was made with."""
    known = find_login_client(login.name) or OAuthClient(name=login.name, title=login.title, provider="")
    return msgspec.structs.replace(
        known,
        command=login.command,
        token_parameters=login.token_parameters,
        secret_in_header=login.secret_in_header,
        client_id=login.client_id,
        client_secret=login.client_secret,
        token_url=login.token_url or known.token_url,
        revoke_url=login.revoke_url,
        exchange_url=login.exchange_url,
    )


class _ClientFile(Struct):
    client_id: str
    client_secret: str = ""
    project_id: str = ""
    auth_uri: str = ""
    token_uri: str = ""


class _ClientFileEnvelope(Struct):
    installed: _ClientFile


def _read_client_file(client: OAuthClient, file: Path) -> tuple[OAuthClient, Mapping[str, str]]:
    """Return the client of a file that the Google Cloud console offers, and the headers that name its project."""
    if client.name != "google":
        raise Refused(f"--client is for `talaria login google`; {client.title} has its own client.")
    try:
        found = msgspec.json.decode(file.expanduser().read_bytes(), type=_ClientFileEnvelope).installed
    except OSError as error:
        raise Refused(f"{file} can't be read: {error.strerror}.") from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Refused(f"{file} isn't the JSON file of an OAuth client of the type Desktop app.") from error
    changed = msgspec.structs.replace(
        client,
        client_id=found.client_id,
        client_secret=found.client_secret,
        authorize_url=found.auth_uri or client.authorize_url,
        token_url=found.token_uri or client.token_url,
        issuer=client.issuer if found.auth_uri in {"", _GOOGLE_AUTH, client.authorize_url} else "",
    )
    return changed, {"x-goog-user-project": found.project_id} if found.project_id else {}
