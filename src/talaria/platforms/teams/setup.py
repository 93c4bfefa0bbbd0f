"""Setup of Microsoft Teams: the app of a bot, its tenant and secret, and the address that Teams calls."""

from datetime import UTC, datetime

from msgspec import Struct, structs

from talaria.contracts.setup import NetworkSetup, NetworkTrial, SetupQuestion
from talaria.http_client.bearer_tokens import ENTRA_AUTHORITY
from talaria.platforms.setup_checks import (
    PLACEHOLDER,
    ProbeRequest,
    TokenCheck,
    TokenRejected,
    decode_answer,
    endpoint_questions,
    expect_200,
    refusals_of,
)
from talaria.platforms.teams.settings import PORT, TENANT, TeamsSettings, read_settings

_APP_ID = "TEAMS_APP_ID"
_SECRET = "TEAMS_APP_SECRET"  # noqa: S105 (the name of a secret)


class _Granted(Struct):
    access_token: str


def _read(trial: NetworkTrial) -> TeamsSettings:
    return read_settings(
        trial.account or "teams", trial.options, trial.secrets.get(_APP_ID, ""), trial.secrets.get(_SECRET, "")
    )


def _make_request(base: str, trial: NetworkTrial) -> ProbeRequest:
    request = _read(structs.replace(trial, options={**PLACEHOLDER, **trial.options, "authority": base})).token_request
    form = request.encode(datetime.now(UTC))
    return ProbeRequest("POST", request.url(), {"Content-Type": request.content_type}, form)


def _check_answer(status: int, body: bytes) -> str:
    if status == 400:  # Entra's answer to an unknown app or tenant
        raise TokenRejected
    expect_200(status)
    decode_answer(body, _Granted)
    return ""


_find_problems = refusals_of(_read)

SETUP = NetworkSetup(
    title="Microsoft Teams",
    questions=(
        SetupQuestion(
            name=_APP_ID, prompt="App ID", hint="The Microsoft App ID on your bot's Configuration page.", public=True
        ),
        SetupQuestion(
            name="tenant",
            prompt="Tenant ID",
            hint=f"The App Tenant ID on the same page; {TENANT} for a bot that serves all tenants.",
            default=TENANT,
        ),
        SetupQuestion(
            name=_SECRET,
            hint="The value of a client secret of the app, shown once when you create it.",
            check=TokenCheck(
                title="Microsoft Entra",
                secret=_SECRET,
                address=lambda trial: trial.options.get("authority", ENTRA_AUTHORITY),
                request=_make_request,
                owner=_check_answer,
                remedy="Check App ID and tenant, or create another client secret under Certificates & secrets.",
            ),
        ),
        *endpoint_questions("Teams", "teams", PORT),
    ),
    next_step="Enter the public address as the bot's messaging endpoint, turn on its Teams channel, start the gateway.",
    doctor=_find_problems,
)
