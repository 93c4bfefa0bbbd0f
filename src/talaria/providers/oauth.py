"""OAuth 2.0 client for signing in: PKCE, device codes, refresh, exchange and revocation of tokens."""

import asyncio
import base64
import hashlib
import secrets
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, TypeVar
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import msgspec
from msgspec import Struct

from talaria.contracts.clock import Clock, SystemClock
from talaria.core.errors import MalformedReply, ProviderError, ProviderUnreachable, Refused, SignInNeeded
from talaria.http_client.client import HttpPool
from talaria.http_client.connection import Timeouts
from talaria.providers.login_clients import OAuthClient

DEVICE_CODE_LIFE = timedelta(minutes=15)
_TIMEOUTS = Timeouts(connect=timedelta(seconds=10), first_byte=timedelta(seconds=20), silence=timedelta(seconds=20))
_FORM = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
_JSON = {"Content-Type": "application/json", "Accept": "application/json"}
_DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
_LARGEST_ANSWER = 200_000
_DEFAULT_LIFE = timedelta(hours=1)
_DEFAULT_INTERVAL = 5.0
_SLOWER = 5.0  # seconds that RFC 8628 adds when the server asks to slow down
_TOO_MANY = 429
_OPENAI_PENDING = frozenset({403, 404})
_T = TypeVar("_T")
_REJECTED = frozenset({"invalid_grant", "refresh_token_expired", "refresh_token_reused", "refresh_token_invalidated"})


class TokenSet(Struct, frozen=True, kw_only=True):
    """Granted tokens; ``claims`` are those of the ID token, or of the access token."""

    access_token: str
    refresh_token: str
    expires_at: datetime
    claims: Mapping[str, Any] = {}
    base_url: str = ""


class DeviceCode(Struct, frozen=True, kw_only=True):
    """A code that a person enters on ``page``; ``secret`` is what this program polls with, ``interval`` in seconds."""

    user_code: str
    page: str
    secret: str
    interval: float
    expires_at: datetime


class Pkce(Struct, frozen=True):
    """A proof of having asked for a code (RFC 7636), and a state that ties an answer to it."""

    verifier: str
    state: str

    @classmethod
    def create(cls) -> "Pkce":
        """Return a new random one."""
        return cls(secrets.token_urlsafe(64), secrets.token_urlsafe(24))

    @property
    def challenge(self) -> str:
        """Return the hash of the verifier, as sent with the first request."""
        return base64.urlsafe_b64encode(hashlib.sha256(self.verifier.encode()).digest()).rstrip(b"=").decode()


def authorize_url(client: OAuthClient, redirect_uri: str, pkce: Pkce) -> str:
    """Return the address at which a person signs in with a browser."""
    query = {
        "response_type": "code",
        "client_id": client.client_id,
        "redirect_uri": redirect_uri,
        "scope": client.scope,
        "code_challenge": pkce.challenge,
        "code_challenge_method": "S256",
        "state": pkce.state,
        **client.parameters,
    }
    return f"{client.authorize_url}?{urlencode(query)}"


class AuthorizationServer:
    """The server that grants tokens to a client; every method raises `Refused` with the reason, or `SignInNeeded`."""

    def __init__(self, client: OAuthClient, http: HttpPool, clock: Clock | None = None) -> None:
        self.client = client
        self._http = http
        self._clock = clock or SystemClock()

    def with_client(self, client: OAuthClient) -> "AuthorizationServer":
        """Return the same server for another client."""
        return AuthorizationServer(client, self._http, self._clock)

    async def redeem(self, answer: Mapping[str, str], redirect_uri: str, pkce: Pkce) -> TokenSet:
        """Return the tokens for the parameters with which the browser came back."""
        self._check_redirect(answer, pkce)
        return await self._redeem_code(answer["code"], redirect_uri, pkce.verifier)

    async def start_device(self) -> DeviceCode:
        """Ask for a code that a person can enter on any device."""
        client = self.client
        if client.device_flow == "openai":
            return await self._start_openai_device()
        form = {"client_id": client.client_id, "scope": client.scope}
        status, body = await self._post_form(client.device_url, form)
        found = _decode(body, _DeviceStarted)
        if status != 200 or found is None or not found.device_code:
            raise self._make_refusal("gave no sign-in code", status, body)
        return DeviceCode(
            user_code=found.user_code,
            page=found.verification_uri_complete or found.verification_uri,
            secret=found.device_code,
            interval=found.interval or _DEFAULT_INTERVAL,
            expires_at=self._clock.now() + timedelta(seconds=found.expires_in or 900),
        )

    async def wait_for_device(self, code: DeviceCode) -> TokenSet:
        """Poll until the person has entered the code, declined, or let it expire."""
        interval = code.interval
        while self._clock.now() < code.expires_at:
            await asyncio.sleep(interval)
            try:
                granted = await self._poll_device(code)
            except _SlowDown:
                interval += _SLOWER
                continue
            except ProviderUnreachable:  # a short outage; the code stays valid
                continue
            if granted is not None:
                return granted
        raise Refused(f"Nobody entered the code in time. Run `{self.client.sign_in_command}` again.")

    async def refresh(self, refresh_token: str) -> TokenSet:
        """Return new tokens; raises `SignInNeeded` if the server no longer accepts the old one."""
        if self.client.exchange_url:
            return await self.exchange(refresh_token)
        form = {
            "grant_type": "refresh_token",
            "refresh_token": refresh_token,
            "client_id": self.client.client_id,
            **self.client.token_parameters,
            **self._make_secret_field(),
        }
        status, body = await self._post_form(self.client.token_url, form)
        return self._read_tokens(status, body, refresh_token)

    async def exchange(self, token: str) -> TokenSet:
        """Return the short-lived token for a granted one, as Copilot requires."""
        headers = {"Authorization": f"token {token}", "Accept": "application/json", **self.client.headers}
        status, body = await self._request("GET", self.client.exchange_url, None, headers)
        found = _decode(body, _Exchanged)
        if status == 401:
            raise self._needs_sign_in()
        if status != 200 or found is None or not found.token:
            raise self._make_refusal("gave no access to this account", status, body)
        expires_at = datetime.fromtimestamp(found.expires_at, self._clock.now().tzinfo) if found.expires_at else None
        return TokenSet(
            access_token=found.token,
            refresh_token=token,
            expires_at=expires_at or self._clock.now() + _DEFAULT_LIFE,
            base_url=found.endpoints.get("api", ""),
        )

    async def revoke(self, token: str) -> bool:
        """Ask the server to forget a token (RFC 7009), and return whether it did."""
        if not self.client.revoke_url:
            return False
        form = {"token": token, "client_id": self.client.client_id, **self._make_secret_field()}
        try:
            status, _ = await self._post_form(self.client.revoke_url, form)
        except ProviderError:
            return False
        return status == 200

    async def _start_openai_device(self) -> DeviceCode:
        body = msgspec.json.encode({"client_id": self.client.client_id})
        status, answer = await self._request("POST", f"{self.client.device_url}/usercode", body, _JSON)
        found = _decode(answer, _OpenAiDevice)
        if status != 200 or found is None or not found.device_auth_id:
            raise self._make_refusal("gave no sign-in code", status, answer)
        return DeviceCode(
            user_code=found.user_code or found.usercode,
            page=self.client.device_page,
            secret=found.device_auth_id,
            interval=_parse_seconds(found.interval) or _DEFAULT_INTERVAL,
            expires_at=self._clock.now() + DEVICE_CODE_LIFE,
        )

    async def _poll_device(self, code: DeviceCode) -> TokenSet | None:
        """Return the tokens, or nothing while the person hasn't finished."""
        if self.client.device_flow == "openai":
            return await self._poll_openai_device(code)
        form = {
            "grant_type": _DEVICE_GRANT,
            "device_code": code.secret,
            "client_id": self.client.client_id,
            **self._make_secret_field(),
        }
        status, body = await self._post_form(self.client.token_url, form)
        match (_decode(body, _Granted) or _Granted()).error:
            case "authorization_pending":
                return None
            case "slow_down":
                raise _SlowDown
            case "expired_token":
                raise Refused(f"The code has expired. Run `{self.client.sign_in_command}` again.")
        return await self._finish(self._read_tokens(status, body, ""))

    async def _poll_openai_device(self, code: DeviceCode) -> TokenSet | None:
        asked = msgspec.json.encode({"device_auth_id": code.secret, "user_code": code.user_code})
        status, body = await self._request("POST", f"{self.client.device_url}/token", asked, _JSON)
        if status in _OPENAI_PENDING:
            return None
        found = _decode(body, _OpenAiCode)
        if status != 200 or found is None or not found.authorization_code:
            raise self._make_refusal("refused the sign-in", status, body)
        redirect_uri = f"{self.client.issuer}/deviceauth/callback"
        return await self._redeem_code(found.authorization_code, redirect_uri, found.code_verifier)

    async def _redeem_code(self, code: str, redirect_uri: str, verifier: str) -> TokenSet:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "client_id": self.client.client_id,
            "code_verifier": verifier,
            **self.client.token_parameters,
            **self._make_secret_field(),
        }
        status, body = await self._post_form(self.client.token_url, form)
        return await self._finish(self._read_tokens(status, body, ""))

    async def _finish(self, granted: TokenSet) -> TokenSet:
        """Exchange a new token where the server requires it; the granted one is then what later exchanges need."""
        return await self.exchange(granted.access_token) if self.client.exchange_url else granted

    def _check_redirect(self, answer: Mapping[str, str], pkce: Pkce) -> None:
        if not secrets.compare_digest(answer.get("state", ""), pkce.state):
            raise Refused("That address belongs to another sign-in. Copy the one of this sign-in.")
        if answer.get("error") == "access_denied":
            raise Refused(f"The sign-in to {self.client.title} was declined. Nothing has changed.")
        if "code" not in answer:
            reason = answer.get("error_description") or answer.get("error") or "no code"
            raise Refused(f"{self.client.title} refused the sign-in: {reason}")
        if self.client.issuer and answer.get("iss", self.client.issuer).rstrip("/") != self.client.issuer.rstrip("/"):
            raise Refused(f"The sign-in was answered by {answer['iss']}, not by {self.client.issuer}.")

    def _read_tokens(self, status: int, body: bytes, refresh_token: str) -> TokenSet:
        found = _decode(body, _Granted) or _Granted()
        if found.error_code() in _REJECTED or (refresh_token and status in {400, 401} and not found.access_token):
            raise self._needs_sign_in() if refresh_token else self._make_refusal("refused the sign-in", status, body)
        if found.error_code() == "access_denied":
            raise Refused(f"The sign-in to {self.client.title} was declined. Nothing has changed.")
        if not found.access_token:
            raise self._make_refusal("gave no token", status, body)
        life = timedelta(seconds=found.expires_in) if found.expires_in else _DEFAULT_LIFE
        return TokenSet(
            access_token=found.access_token,
            refresh_token=found.refresh_token or refresh_token or "",
            expires_at=self._clock.now() + life,
            claims=read_claims(found.id_token) or read_claims(found.access_token),
        )

    def _needs_sign_in(self) -> SignInNeeded:
        return SignInNeeded(
            f"The sign-in to {self.client.title} has expired or was revoked."
            f" Sign in again with `{self.client.sign_in_command}`."
        )

    def _make_refusal(self, what: str, status: int, body: bytes) -> ProviderError | Refused:
        """Return the error for an answer that isn't the expected one; a failing server may recover."""
        if status >= 500 or status == _TOO_MANY:
            return ProviderUnreachable(
                f"{self.client.title} answered {status}", cause=f"its sign-in server answered HTTP {status}"
            )
        return Refused(f"{self.client.title} {what} (HTTP {status}): {_read_reason(body)}")

    def _make_secret_field(self) -> Mapping[str, str]:
        client = self.client
        return {"client_secret": client.client_secret} if client.client_secret and not client.secret_in_header else {}

    def _make_basic_header(self) -> Mapping[str, str]:
        """Return the header that proves which client asks, for servers that want it there (RFC 6749, 2.3.1)."""
        if not self.client.secret_in_header:
            return {}
        pair = f"{quote(self.client.client_id, safe='')}:{quote(self.client.client_secret, safe='')}"
        return {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}

    async def _post_form(self, url: str, form: Mapping[str, str]) -> tuple[int, bytes]:
        return await self._request("POST", url, urlencode(form).encode(), {**_FORM, **self._make_basic_header()})

    async def _request(
        self, method: str, url: str, body: bytes | None, headers: Mapping[str, str]
    ) -> tuple[int, bytes]:
        async with self._http.request(method, url, body, headers, _TIMEOUTS) as answer:
            return answer.status, await answer.body(_LARGEST_ANSWER)


async def discover(client: OAuthClient, issuer: str, http: HttpPool) -> OAuthClient:
    """Return a client for another issuer, with the endpoints that it publishes and any loopback port."""
    url = f"{issuer.rstrip('/')}/.well-known/openid-configuration"
    async with http.get(url, {"Accept": "application/json"}, _TIMEOUTS) as answer:
        found = _decode(await answer.body(_LARGEST_ANSWER), _Metadata)
    if answer.status != 200 or found is None or not found.token_endpoint:
        raise MalformedReply(f"{url} doesn't describe an authorization server")
    return msgspec.structs.replace(
        client,
        issuer=found.issuer,
        authorize_url=found.authorization_endpoint,
        token_url=found.token_endpoint,
        device_url=found.device_authorization_endpoint,
        device_flow="standard" if found.device_authorization_endpoint else "",
        revoke_url=found.revocation_endpoint,
        redirect_ports=(),
    )


def read_claims(token: str) -> Mapping[str, Any]:
    """Return the claims of a token, empty if it isn't a JWT.

    They are shown and sent back, never trusted: the token came from its issuer over TLS, so its signature needn't be
    checked.
    """
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    with suppress(ValueError, msgspec.MsgspecError):
        found = msgspec.json.decode(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        if isinstance(found, dict):
            return found
    return {}


def read_claim(claims: Mapping[str, Any], path: tuple[str, ...]) -> str:
    """Return the text that a path of names leads to, empty if there is none."""
    found: object = claims
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    return found if path and isinstance(found, str) else ""


def read_redirect(url: str) -> Mapping[str, str]:
    """Return the parameters of an address that a browser was redirected to."""
    return dict(parse_qsl(urlsplit(url.strip()).query))


class _SlowDown(Exception):
    """Signal that the server wants to be polled less often."""


class _Granted(Struct):
    access_token: str = ""
    refresh_token: str | None = None
    id_token: str = ""
    expires_in: float | None = None
    error: str | dict[str, Any] | None = None
    error_description: str | None = None

    def error_code(self) -> str:
        """Return the code of the error: OpenAI wraps it in an object."""
        return str(self.error.get("code") or "") if isinstance(self.error, dict) else self.error or ""


class _DeviceStarted(Struct):
    device_code: str = ""
    user_code: str = ""
    verification_uri: str = ""
    verification_uri_complete: str = ""
    expires_in: float = 0
    interval: float = 0


class _OpenAiDevice(Struct):
    device_auth_id: str = ""
    user_code: str = ""
    usercode: str = ""
    interval: str | float = 0


class _OpenAiCode(Struct):
    authorization_code: str = ""
    code_verifier: str = ""


class _Exchanged(Struct):
    token: str = ""
    expires_at: float = 0
    endpoints: dict[str, str] = {}


class _Metadata(Struct):
    issuer: str = ""
    authorization_endpoint: str = ""
    token_endpoint: str = ""
    device_authorization_endpoint: str = ""
    revocation_endpoint: str = ""


class _Failure(Struct):
    error: str | dict[str, Any] | None = None
    error_description: str | None = None
    message: str | None = None

    def reason(self) -> str:
        """Return what the server says about the error."""
        inner = self.error.get("message") if isinstance(self.error, dict) else self.error
        return str(self.error_description or inner or self.message or "no reason given")


def _decode(body: bytes, shape: type[_T]) -> _T | None:
    try:
        return msgspec.json.decode(body, type=shape)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _read_reason(body: bytes) -> str:
    reason = (_decode(body, _Failure) or _Failure(message="its answer isn't JSON")).reason()
    return f"{' '.join(reason.split())[:200].rstrip('.')}."


def _parse_seconds(value: str | float) -> float:
    try:
        return float(value)
    except ValueError:
        return 0.0
