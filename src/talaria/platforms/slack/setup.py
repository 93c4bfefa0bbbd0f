"""Setup of Slack: the two tokens of an app."""

from functools import partial

from msgspec import Struct

from talaria.contracts.setup import NetworkSetup, NetworkTrial, SetupQuestion
from talaria.platforms.token_check import (
    ProbeRequest,
    TokenCheck,
    TokenRejected,
    UnexpectedAnswer,
    decode_answer,
    expect_200,
)

_BOT_TOKEN = "SLACK_BOT_TOKEN"  # noqa: S105 (the name of a secret)
_APP_TOKEN = "SLACK_APP_TOKEN"  # noqa: S105 (the name of a secret)
_API = "https://slack.com/api"
_REFUSALS = {"invalid_auth", "not_authed", "account_inactive", "token_revoked", "token_expired",
             "not_allowed_token_type", "invalid_token", "missing_scope"}  # fmt: skip


class _AuthAnswer(Struct):
    ok: bool
    user: str = ""
    team: str = ""
    url: str = ""
    error: str = ""


def _request(method: str, secret: str, base: str, trial: NetworkTrial) -> ProbeRequest:
    return ProbeRequest("POST", f"{base}/{method}", {"Authorization": f"Bearer {trial.secrets[secret]}"})


def _owner(status: int, body: bytes) -> str:
    expect_200(status)
    answer = decode_answer(body, _AuthAnswer)
    if answer.error in _REFUSALS:
        raise TokenRejected
    if not answer.ok:
        raise UnexpectedAnswer
    return f"{answer.user} in {answer.team}" if answer.user else ""


def _make_check(method: str, secret: str, remedy: str) -> TokenCheck:
    return TokenCheck(
        title="Slack",
        secret=secret,
        address=lambda trial: trial.options.get("base_url", _API),
        request=partial(_request, method, secret),
        owner=_owner,
        remedy=remedy,
    )


SETUP = NetworkSetup(
    title="Slack",
    questions=(
        SetupQuestion(
            name=_BOT_TOKEN,
            hint="Starts with xoxb-; shown after you install the app of `talaria gateway slack-manifest`.",
            check=_make_check(
                "auth.test",
                _BOT_TOKEN,
                "Copy the one that starts with xoxb- from your app's OAuth & Permissions page.",
            ),
        ),
        SetupQuestion(
            name=_APP_TOKEN,
            hint="Starts with xapp-; an app-level token.",
            # The returned URL is not used: only a valid app-level token gets one.
            check=_make_check(
                "apps.connections.open",
                _APP_TOKEN,
                "It starts with xapp- and needs the scope connections:write. Create one on your app's Basic "
                "Information page.",
            ),
        ),
    ),
    next_step="Invite the app to a channel with /invite, or write to it under Apps.",
)
