"""Setup of ntfy: a server, topics, and a token for protected topics."""

from urllib.parse import quote

from msgspec import Struct

from talaria.contracts.setup import NetworkSetup, NetworkTrial, ProbeResult, SetupQuestion
from talaria.core.errors import Refused
from talaria.platforms.ntfy.settings import PUBLIC_SERVER, read_settings
from talaria.platforms.setup_checks import (
    ProbeRequest,
    TokenCheck,
    TokenRejected,
    UnexpectedAnswer,
    decode_answer,
    web_address_problem,
)

_TOPIC = "NTFY_TOPIC"
_TOKEN = "NTFY_TOKEN"  # noqa: S105 (the name of a secret)


class _TopicAccess(Struct):
    success: bool = False


def _choose_server(trial: NetworkTrial) -> str:
    return trial.options.get("server", PUBLIC_SERVER)


def _make_request(base: str, trial: NetworkTrial) -> ProbeRequest:
    topic = trial.secrets[_TOPIC].partition(",")[0].strip()
    token = trial.secrets.get(_TOKEN, "")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return ProbeRequest("GET", f"{base}/{quote(topic, safe='')}/auth", headers)


def _check_answer(status: int, body: bytes) -> str:
    if status in {401, 403}:
        raise TokenRejected
    if status != 200 or not decode_answer(body, _TopicAccess).success:
        raise UnexpectedAnswer
    return ""


def _find_topic_problem(topics: str) -> str:
    try:
        read_settings("ntfy", {}, topics, "")
    except Refused as error:
        return str(error)
    return ""


_CHECK = TokenCheck(
    title="ntfy",
    secret=_TOKEN,
    address=_choose_server,
    request=_make_request,
    owner=_check_answer,
    remedy="Create one with `ntfy token add`, or in the account page of the server's web app.",
)


async def _check_topic(trial: NetworkTrial) -> ProbeResult:
    """Ask whether the topic can be read; a protected one that needs a token is fine at this point."""
    result = await _CHECK(trial)
    if result.right:
        return ProbeResult("right", "ntfy accepted the topic.")
    if result.outcome == "refused" and not trial.secrets.get(_TOKEN):
        return ProbeResult("right", "The topic is protected, so it needs a token.")
    return result


SETUP = NetworkSetup(
    title="ntfy",
    questions=(
        SetupQuestion(
            name="server",
            prompt="ntfy server",
            hint="Address of the ntfy server.",
            default=PUBLIC_SERVER,
            problem=web_address_problem,
        ),
        SetupQuestion(
            name=_TOPIC,
            hint="Topics separated by commas. Choose names that are hard to guess: a topic works like a password.",
            problem=_find_topic_problem,
            check=_check_topic,
        ),
        SetupQuestion(
            name=_TOKEN,
            hint="Starts with tk_; needed for protected topics only.",
            required=False,
            check=_CHECK,
        ),
    ),
    next_step="Subscribe to the topic in the ntfy app; the agent answers messages that you publish there.",
)
