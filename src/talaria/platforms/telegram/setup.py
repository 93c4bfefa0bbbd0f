"""Setup of Telegram: the token of a bot."""

from urllib.parse import quote

from msgspec import Struct

from talaria.contracts.setup import NetworkSetup, NetworkTrial, SetupQuestion
from talaria.platforms.setup_checks import ProbeRequest, TokenCheck, TokenRejected, UnexpectedAnswer, decode_answer

_TOKEN = "TELEGRAM_BOT_TOKEN"  # noqa: S105 (the name of a secret)
_API = "https://api.telegram.org/bot"


class _BotUser(Struct):
    first_name: str
    username: str = ""


class _BotAnswer(Struct):
    ok: bool
    result: _BotUser | None = None


def _choose_server(trial: NetworkTrial) -> str:
    return trial.options.get("base_url", _API).removesuffix("/bot")


def _make_request(base: str, trial: NetworkTrial) -> ProbeRequest:
    return ProbeRequest("GET", f"{base}/bot{quote(trial.secrets[_TOKEN], safe=':')}/getMe")


def _read_owner(status: int, body: bytes) -> str:
    answer = decode_answer(body, _BotAnswer)
    # Telegram answers malformed tokens with 404 and revoked ones with 401.
    if not answer.ok and status in {401, 403, 404}:
        raise TokenRejected
    if answer.result is None:
        raise UnexpectedAnswer
    return f"@{answer.result.username}" if answer.result.username else answer.result.first_name


SETUP = NetworkSetup(
    title="Telegram",
    questions=(
        SetupQuestion(
            name=_TOKEN,
            hint="BotFather gives it to you when you create a bot.",
            check=TokenCheck(
                title="Telegram",
                secret=_TOKEN,
                address=_choose_server,
                request=_make_request,
                owner=_read_owner,
                remedy="Send /token to BotFather to see it again.",
            ),
        ),
    ),
    next_step="Start the gateway, write to the bot, and approve the pairing code that it sends you.",
)
