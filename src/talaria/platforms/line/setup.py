"""Setup of LINE: the access token and the secret of a channel, and the address that LINE calls."""

from msgspec import Struct

from talaria.contracts.setup import NetworkSetup, NetworkTrial, SetupQuestion
from talaria.platforms.line.settings import API_URL, PORT, read_settings
from talaria.platforms.setup_checks import (
    ProbeRequest,
    TokenCheck,
    decode_answer,
    endpoint_questions,
    expect_200,
    refusals_of,
)

_TOKEN = "LINE_CHANNEL_TOKEN"  # noqa: S105 (the name of a secret)
_SECRET = "LINE_CHANNEL_SECRET"  # noqa: S105 (the name of a secret)


class _BotInfo(Struct, rename="camel"):
    basic_id: str
    display_name: str


def _make_request(base: str, trial: NetworkTrial) -> ProbeRequest:
    return ProbeRequest("GET", f"{base}/v2/bot/info", {"Authorization": f"Bearer {trial.secrets[_TOKEN]}"})


def _read_owner(status: int, body: bytes) -> str:
    expect_200(status)
    info = decode_answer(body, _BotInfo)
    return f"{info.display_name} ({info.basic_id})"


_find_problems = refusals_of(
    lambda trial: read_settings(
        trial.account or "line", trial.options, trial.secrets.get(_TOKEN, ""), trial.secrets.get(_SECRET, "")
    )
)

SETUP = NetworkSetup(
    title="LINE",
    questions=(
        SetupQuestion(
            name=_TOKEN,
            hint="The long-lived channel access token on the Messaging API page of your channel.",
            check=TokenCheck(
                title="LINE",
                secret=_TOKEN,
                address=lambda trial: trial.options.get("api_url", API_URL),
                request=_make_request,
                owner=_read_owner,
                remedy="Issue a new channel access token on the Messaging API page of your channel.",
            ),
        ),
        SetupQuestion(name=_SECRET, hint="The channel secret on the Basic settings page; it signs what LINE sends."),
        *endpoint_questions("LINE", "line", PORT),
    ),
    next_step="In the LINE Developers console, turn on `Use webhook` and `Webhook redelivery`, then start the gateway.",
    doctor=_find_problems,
)
