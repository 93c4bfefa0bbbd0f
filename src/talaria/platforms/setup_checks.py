"""Setup of networks: checks of credentials, and questions about the address that a network calls."""

import asyncio
from collections.abc import Callable, Mapping
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from talaria.contracts.setup import NetworkTrial, ProbeResult, SetupQuestion
from talaria.core.errors import MalformedReply, ProviderUnreachable, Refused, ReplyTooLong
from talaria.http_client.client import HttpPool
from talaria.http_client.connection import Timeouts

CHECK_SECONDS = 8.0
T = TypeVar("T")
_REFUSED_STATUSES = {401, 403}
_MAX_ANSWER = 256 * 1024
PLACEHOLDER = {"public_url": "https://localhost"}  # for checks before the question about it


class ProbeRequest(Struct, frozen=True):
    """The request that asks for the owner of a token."""

    method: str
    url: str
    headers: Mapping[str, str] = {}
    body: bytes = b""


class TokenRejected(Exception):
    """Error of a token that the network rejects."""


class UnexpectedAnswer(Exception):
    """Error of a response that does not come from this network."""


class TokenCheck(Struct, frozen=True, kw_only=True):
    """The ``check`` of a setup question: one HTTP request with the token, and the parser of its response.

    ``address`` returns the network's address for these answers; a network of many servers has none without an answer.
    ``request`` gets the address without its last slash. ``owner`` gets the status and the body, returns the account's
    name or an empty text, and raises `TokenRejected` or `UnexpectedAnswer`. ``remedy`` says where to get another token.
    """

    title: str
    secret: str
    address: Callable[[NetworkTrial], str]
    request: Callable[[str, NetworkTrial], ProbeRequest]
    owner: Callable[[int, bytes], str]
    remedy: str
    seconds: float = CHECK_SECONDS

    async def __call__(self, trial: NetworkTrial) -> ProbeResult:
        """Return the owner of the token, or a sentence on why it is unknown; neither contains the token."""
        base = (trial.base_url or self.address(trial)).rstrip("/")
        if not base:
            return ProbeResult("odd", f"A {self.title} token belongs to a server, and no server is set.")
        token = trial.secrets.get(self.secret, "")
        if not token.isascii() or not token.isprintable() or " " in token:
            return ProbeResult("refused", f"A {self.title} token has no spaces or line breaks. {self.remedy}")
        status = 200
        try:
            async with asyncio.timeout(self.seconds):
                status, body = await _fetch(self.request(base, trial))
            owner = self.owner(status, body)
        except TimeoutError:
            return ProbeResult("late", f"{self.title} didn't answer within {self.seconds:g} s. Try again in a moment.")
        except (ProviderUnreachable, MalformedReply):
            sentence = f"Can't reach {self.title} at {base}. Check the network and the address."
            return ProbeResult("unreachable", sentence)
        except TokenRejected:
            return ProbeResult("refused", f"{self.title} rejected this token. {self.remedy}")
        except UnexpectedAnswer:
            if status == 429 or status >= 500:
                return ProbeResult("odd", f"{self.title} is having problems (HTTP {status}). Try again in a moment.")
            return ProbeResult("odd", f"The server at {base} doesn't respond like {self.title} (HTTP {status}).")
        return ProbeResult("right", f"{self.title} accepted the token{f': {owner}' if owner else ''}.")


def expect_200(status: int) -> None:
    """Raise `TokenRejected` for a refused token, `UnexpectedAnswer` for any other status but 200."""
    if status in _REFUSED_STATUSES:
        raise TokenRejected
    if status != 200:
        raise UnexpectedAnswer


def decode_answer(body: bytes, kind: type[T]) -> T:
    """Return the body as a struct; raises `UnexpectedAnswer` if it is something else."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UnexpectedAnswer from error


def web_address_problem(text: str) -> str:
    """Return why a text is no address of a web server; empty if it is one."""
    try:
        parts = urlsplit(text)
    except ValueError:
        parts = urlsplit("")
    valid = parts.scheme in {"http", "https"} and parts.hostname
    return "" if valid else "The address must start with http:// or https://."


async def _fetch(question: ProbeRequest) -> tuple[int, bytes]:
    """Send the request; a redirect isn't followed, because that would forward the token."""
    pool = HttpPool()
    body = question.body if question.method == "POST" else None
    try:
        async with pool.request(question.method, question.url, body, question.headers, Timeouts()) as answer:
            return answer.status, await answer.body(_MAX_ANSWER)
    except ReplyTooLong as error:
        raise UnexpectedAnswer from error
    finally:
        await pool.close()


def refusals_of(read: Callable[[NetworkTrial], object]) -> Callable[[NetworkTrial], tuple[str, ...]]:
    """Return a check that reads the settings and returns the sentence of their refusal."""

    def find_problems(trial: NetworkTrial) -> tuple[str, ...]:
        try:
            read(trial)
        except Refused as error:
            return (str(error),)
        return ()

    return find_problems


def endpoint_questions(title: str, path: str, port: int, *, needs_tls: bool = True) -> tuple[SetupQuestion, ...]:
    """Return the questions about the public address and the port."""

    def find_problem(url: str) -> str:
        if needs_tls and not url.startswith("https://"):
            return f"The address must start with https://: {title} calls nothing else."
        return web_address_problem(url)

    return (
        SetupQuestion(
            name="public_url",
            prompt="Public address",
            hint=f"Address under which {title} reaches this machine, for example https://bot.example.org/{path}.",
            problem=find_problem,
        ),
        SetupQuestion(
            name="port",
            prompt="Port",
            hint="Port on this machine to which your proxy or tunnel forwards the public address.",
            default=str(port),
            distinct=True,
            problem=_find_port_problem,
        ),
    )


def _find_port_problem(text: str) -> str:
    is_port = text.isascii() and text.isdigit() and len(text) <= 5 and 1 <= int(text) <= 65_535
    return "" if is_port else "A port is a number from 1 to 65535."
