"""Setup of Mattermost: a server, and the token of a bot account."""

from msgspec import Struct, structs

from talaria.contracts.setup import NetworkSetup, NetworkTrial, SetupQuestion
from talaria.platforms.mattermost.settings import PORT, read_settings
from talaria.platforms.setup_checks import (
    ProbeRequest,
    TokenCheck,
    decode_answer,
    endpoint_questions,
    expect_200,
    refusals_of,
    web_address_problem,
)

_URL = "MATTERMOST_URL"
_TOKEN = "MATTERMOST_TOKEN"  # noqa: S105 (the name of a secret)


class _BotAccount(Struct):
    id: str
    username: str


def _make_request(base: str, trial: NetworkTrial) -> ProbeRequest:
    return ProbeRequest("GET", f"{base}/api/v4/users/me", {"Authorization": f"Bearer {trial.secrets[_TOKEN]}"})


def _read_owner(status: int, body: bytes) -> str:
    expect_200(status)
    return f"@{decode_answer(body, _BotAccount).username}"


_find_problems = refusals_of(
    lambda trial: read_settings(
        trial.account or "mattermost",
        trial.options,
        trial.secrets.get(_URL, "https://localhost"),
        trial.secrets.get(_TOKEN, ""),
    )
)
_ENDPOINT = endpoint_questions("Mattermost", "mattermost", PORT, needs_tls=False)

SETUP = NetworkSetup(
    title="Mattermost",
    questions=(
        SetupQuestion(
            name=_URL,
            prompt="Mattermost server",
            hint="Its address in the browser, without a team.",
            public=True,
            problem=web_address_problem,
        ),
        SetupQuestion(
            name=_TOKEN,
            hint="Shown once when you create the bot account.",
            check=TokenCheck(
                title="Mattermost",
                secret=_TOKEN,
                address=lambda trial: trial.secrets.get(_URL, ""),
                request=_make_request,
                owner=_read_owner,
                remedy="Create a new token on the Bot Accounts page of the integrations.",
            ),
        ),
        *(structs.replace(one, required=False) for one in _ENDPOINT[:1]),
        *(structs.replace(one, only_with="public_url") for one in _ENDPOINT[1:]),
    ),
    doctor=_find_problems,
    next_step="Start the gateway, add the bot to your team and send it a direct message.",
)
