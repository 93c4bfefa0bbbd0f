"""Checks of chat network tokens: ask the network for the owner of a token."""

import asyncio
from collections.abc import Callable, Mapping
from typing import TypeVar
from urllib.parse import quote

import msgspec
from msgspec import Struct

from talaria.contracts.setup import NetworkName, ProbeResult
from talaria.core.errors import MalformedReply, ProviderUnreachable, ReplyTooLong
from talaria.http_client.client import HttpPool
from talaria.http_client.timeouts import Timeouts

CHECK_SECONDS = 8.0

T = TypeVar("T")

_REFUSED_STATUSES = {401, 403}
_SLACK_REFUSALS = {"invalid_auth", "not_authed", "account_inactive", "token_revoked", "token_expired",
                     "not_allowed_token_type", "invalid_token", "missing_scope"}  # fmt: skip
_MAX_ANSWER = 256 * 1024


class ProbeRequest(Struct, frozen=True):
    """The request that asks for the owner of a token."""

    method: str
    url: str
    headers: Mapping[str, str] = {}


class TokenOwner(Struct, frozen=True):
    """The owner of a token; without a name, the network accepted the token and returned no owner."""

    name: str = ""


class TokenRejected(Exception):
    """Error of a token that the network rejects."""


class UnexpectedAnswer(Exception):
    """Error of a response that does not come from this network."""


class NetworkProbe(Struct, frozen=True):
    """A chat network: its address, the request to send, and the parser of its response.

    A network of many servers has no ``base_url``: a token is sent to its own server only. ``owner`` gets the status and
    the body, and raises `TokenRejected` or `UnexpectedAnswer`.
    """

    title: str
    base_url: str
    ask: Callable[[str, str], ProbeRequest]
    owner: Callable[[int, bytes], TokenOwner]
    remedy: str


async def check_token(
    network: NetworkName, token: str, *, base_url: str = "", seconds: float = CHECK_SECONDS
) -> ProbeResult:
    """Return the owner of the token, or a sentence on why it is unknown; neither contains the token."""
    known = NETWORKS[network]
    base = (base_url or known.base_url).rstrip("/")
    if not base:
        return ProbeResult("odd", f"A {known.title} token belongs to a server, and no server is set.")
    if not token.isascii() or not token.isprintable() or " " in token:
        return ProbeResult("refused", f"A {known.title} token has no spaces or line breaks. {known.remedy}")
    status = 200
    try:
        async with asyncio.timeout(seconds):
            status, body = await _fetch(known.ask(base, token))
        owner = known.owner(status, body)
    except TimeoutError:
        return ProbeResult("late", f"{known.title} didn't answer within {seconds:g} s. Try again in a moment.")
    except (ProviderUnreachable, MalformedReply):
        return ProbeResult("unreachable", f"Can't reach {known.title} at {base}. Check the network and the address.")
    except TokenRejected:
        return ProbeResult("refused", f"{known.title} rejected this token. {known.remedy}")
    except UnexpectedAnswer:
        if status == 429 or status >= 500:
            return ProbeResult("odd", f"{known.title} is having problems (HTTP {status}). Try again in a moment.")
        return ProbeResult("odd", f"The server at {base} doesn't respond like {known.title} (HTTP {status}).")
    return ProbeResult(
        "right",
        f"{known.title} accepted the token: {owner.name}." if owner.name else f"{known.title} accepted the token.",
    )


async def _fetch(question: ProbeRequest) -> tuple[int, bytes]:
    """Send the request; a redirect isn't followed, because that would forward the token."""
    pool = HttpPool()
    body = b"" if question.method == "POST" else None
    try:
        async with pool.request(question.method, question.url, body, question.headers, Timeouts()) as answer:
            return answer.status, await answer.body(_MAX_ANSWER)
    except ReplyTooLong as error:
        raise UnexpectedAnswer from error
    finally:
        await pool.close()


def _telegram_request(base: str, token: str) -> ProbeRequest:
    return ProbeRequest("GET", f"{base}/bot{quote(token, safe=':')}/getMe")


def _discord_request(base: str, token: str) -> ProbeRequest:
    return ProbeRequest("GET", f"{base}/users/@me", {"Authorization": f"Bot {token}"})


def _slack_request(base: str, token: str) -> ProbeRequest:
    return ProbeRequest("POST", f"{base}/auth.test", {"Authorization": f"Bearer {token}"})


def _slack_socket_request(base: str, token: str) -> ProbeRequest:
    # The returned URL is not used: only a valid app-level token gets one.
    return ProbeRequest("POST", f"{base}/apps.connections.open", {"Authorization": f"Bearer {token}"})


def _matrix_request(base: str, token: str) -> ProbeRequest:
    return ProbeRequest("GET", f"{base}/_matrix/client/v3/account/whoami", {"Authorization": f"Bearer {token}"})


class _TelegramUser(Struct):
    first_name: str
    username: str = ""


class _TelegramAnswer(Struct):
    ok: bool
    result: _TelegramUser | None = None


class _DiscordUser(Struct):
    username: str
    id: str


class _SlackAnswer(Struct):
    ok: bool
    user: str = ""
    team: str = ""
    url: str = ""
    error: str = ""


class _MatrixAccount(Struct):
    user_id: str


def _read_telegram(status: int, body: bytes) -> TokenOwner:
    answer = _decode(body, _TelegramAnswer)
    # Telegram answers malformed tokens with 404 and revoked ones with 401.
    if not answer.ok and status in {*_REFUSED_STATUSES, 404}:
        raise TokenRejected
    if answer.result is None:
        raise UnexpectedAnswer
    return TokenOwner(f"@{answer.result.username}" if answer.result.username else answer.result.first_name)


def _read_discord(status: int, body: bytes) -> TokenOwner:
    _expect_200(status)
    return TokenOwner(_decode(body, _DiscordUser).username)


def _read_slack(status: int, body: bytes) -> TokenOwner:
    _expect_200(status)
    answer = _decode(body, _SlackAnswer)
    if answer.error in _SLACK_REFUSALS:
        raise TokenRejected
    if not answer.ok:
        raise UnexpectedAnswer
    return TokenOwner(f"{answer.user} in {answer.team}" if answer.user else "")


def _read_matrix(status: int, body: bytes) -> TokenOwner:
    _expect_200(status)
    return TokenOwner(_decode(body, _MatrixAccount).user_id)


def _expect_200(status: int) -> None:
    if status in _REFUSED_STATUSES:
        raise TokenRejected
    if status != 200:
        raise UnexpectedAnswer


def _decode(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UnexpectedAnswer from error


NETWORKS: Mapping[NetworkName, NetworkProbe] = {
    "telegram": NetworkProbe(
        "Telegram",
        "https://api.telegram.org",
        _telegram_request,
        _read_telegram,
        "Send /token to BotFather to see it again.",
    ),
    "discord": NetworkProbe(
        "Discord",
        "https://discord.com/api/v10",
        _discord_request,
        _read_discord,
        "Reset it on the Bot page of your Discord application and copy the new one.",
    ),
    "slack": NetworkProbe(
        "Slack",
        "https://slack.com/api",
        _slack_request,
        _read_slack,
        "Copy the one that starts with xoxb- from your app's OAuth & Permissions page.",
    ),
    "slack_app": NetworkProbe(
        "Slack",
        "https://slack.com/api",
        _slack_socket_request,
        _read_slack,
        "It starts with xapp- and needs the scope connections:write. Create one on your app's Basic Information page.",
    ),
    "matrix": NetworkProbe(
        "Matrix",
        "",
        _matrix_request,
        _read_matrix,
        "Log in as the bot again and use the new access token.",
    ),
}
