"""Ask a chat network whom a token belongs to, before anybody relies on it."""

import asyncio
from collections.abc import Callable, Mapping
from typing import TypeVar
from urllib.parse import quote

import aiohttp
import msgspec
from msgspec import Struct

from talaria.cli.setting_up.desk import NetworkName, Tried

CHECK_SECONDS = 8.0

T = TypeVar("T")

_REFUSED = {401, 403}
_REFUSED_BY_SLACK = {"invalid_auth", "not_authed", "account_inactive", "token_revoked", "token_expired",
                     "not_allowed_token_type", "invalid_token", "missing_scope"}  # fmt: skip
_LARGEST_ANSWER = 256 * 1024


class Question(Struct, frozen=True):
    """The request that asks whose token it is."""

    method: str
    url: str
    headers: Mapping[str, str] = {}


class Owner(Struct, frozen=True):
    """Whom a token belongs to; without a name the network takes the token and says no more."""

    name: str = ""


class NotIts(Exception):
    """The network does not know the token."""


class Strange(Exception):
    """What came back is not what this network says."""


class Network(Struct, frozen=True):
    """One chat network: where it is, what to ask it, and how to read its answer.

    A network of many servers has no ``base_url``: a token goes to its own server alone.
    ``owner`` gets the status and the body, and raises `NotIts` or `Strange`.
    """

    title: str
    base_url: str
    ask: Callable[[str, str], Question]
    owner: Callable[[int, bytes], Owner]
    remedy: str


async def check_token(network: NetworkName, token: str, *, base_url: str = "", seconds: float = CHECK_SECONDS) -> Tried:
    """Return whom the token belongs to, or in a sentence why that is not known; the token is in no sentence."""
    known = NETWORKS[network]
    base = (base_url or known.base_url).rstrip("/")
    if not base:
        return Tried("odd", f"A token of {known.title} belongs to a server, and which one is not known.")
    if not token.isascii() or not token.isprintable() or " " in token:
        return Tried("refused", f"A token of {known.title} has no spaces or line breaks. {known.remedy}")
    try:
        async with asyncio.timeout(seconds):
            status, body = await _fetch(known.ask(base, token))
        owner = known.owner(status, body)
    except TimeoutError:
        return Tried("late", f"{known.title} did not answer within {seconds:g} s: try again in a moment.")
    except (aiohttp.ClientError, OSError, ValueError):
        return Tried("unreachable", f"{known.title} cannot be reached at {base}: check the network and the address.")
    except NotIts:
        return Tried("refused", f"{known.title} does not know this token. {known.remedy}")
    except Strange:
        if status == 429 or status >= 500:
            return Tried("odd", f"{known.title} has trouble (HTTP {status}): try again in a moment.")
        return Tried("odd", f"What answers at {base} does not speak as {known.title} does (HTTP {status}).")
    return Tried("right", f"{known.title} knows it: {owner.name}." if owner.name else f"{known.title} takes it.")


async def _fetch(question: Question) -> tuple[int, bytes]:
    """Send the request; a redirection is not followed, since the token would go along."""
    async with (
        aiohttp.ClientSession(trust_env=True, headers={"User-Agent": "talaria"}) as session,
        session.request(question.method, question.url, headers=question.headers, allow_redirects=False) as answer,
    ):
        return answer.status, await answer.content.read(_LARGEST_ANSWER)


def _ask_telegram(base: str, token: str) -> Question:
    return Question("GET", f"{base}/bot{quote(token, safe=':')}/getMe")


def _ask_discord(base: str, token: str) -> Question:
    return Question("GET", f"{base}/users/@me", {"Authorization": f"Bot {token}"})


def _ask_slack(base: str, token: str) -> Question:
    return Question("POST", f"{base}/auth.test", {"Authorization": f"Bearer {token}"})


def _ask_slack_for_a_socket(base: str, token: str) -> Question:
    # The address that it gives is not used; it is what only a right app-level token is given.
    return Question("POST", f"{base}/apps.connections.open", {"Authorization": f"Bearer {token}"})


def _ask_matrix(base: str, token: str) -> Question:
    return Question("GET", f"{base}/_matrix/client/v3/account/whoami", {"Authorization": f"Bearer {token}"})


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


def _telegram(status: int, body: bytes) -> Owner:
    answer = _read(body, _TelegramAnswer)
    # A token that cannot be one is answered with 404, one that was withdrawn with 401.
    if not answer.ok and status in {*_REFUSED, 404}:
        raise NotIts
    if answer.result is None:
        raise Strange
    return Owner(f"@{answer.result.username}" if answer.result.username else answer.result.first_name)


def _discord(status: int, body: bytes) -> Owner:
    _expect_200(status)
    return Owner(_read(body, _DiscordUser).username)


def _slack(status: int, body: bytes) -> Owner:
    _expect_200(status)
    answer = _read(body, _SlackAnswer)
    if answer.error in _REFUSED_BY_SLACK:
        raise NotIts
    if not answer.ok:
        raise Strange
    return Owner(f"{answer.user} in {answer.team}" if answer.user else "")


def _matrix(status: int, body: bytes) -> Owner:
    _expect_200(status)
    return Owner(_read(body, _MatrixAccount).user_id)


def _expect_200(status: int) -> None:
    if status in _REFUSED:
        raise NotIts
    if status != 200:
        raise Strange


def _read(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Strange from error


NETWORKS: Mapping[NetworkName, Network] = {
    "telegram": Network(
        "Telegram",
        "https://api.telegram.org",
        _ask_telegram,
        _telegram,
        "BotFather shows it again when you ask for /token.",
    ),
    "discord": Network(
        "Discord",
        "https://discord.com/api/v10",
        _ask_discord,
        _discord,
        "Reset it on the Bot page of your Discord application, and copy the new one.",
    ),
    "slack": Network(
        "Slack",
        "https://slack.com/api",
        _ask_slack,
        _slack,
        "Copy the one that begins with xoxb- from the page OAuth & Permissions of your app.",
    ),
    "slack_app": Network(
        "Slack",
        "https://slack.com/api",
        _ask_slack_for_a_socket,
        _slack,
        "It begins with xapp- and needs the scope connections:write; Basic Information of your app makes one.",
    ),
    "matrix": Network(
        "Matrix",
        "",
        _ask_matrix,
        _matrix,
        "Log in as the bot once more and take the access token of that login.",
    ),
}
