"""Setup of Discord: the token of a bot."""

from msgspec import Struct

from talaria.contracts.setup import NetworkSetup, NetworkTrial, SetupQuestion
from talaria.platforms.setup_checks import ProbeRequest, TokenCheck, decode_answer, expect_200

_TOKEN = "DISCORD_BOT_TOKEN"  # noqa: S105 (the name of a secret)
_API = "https://discord.com/api/v10"


class _Owner(Struct):
    username: str
    id: str


def _make_request(base: str, trial: NetworkTrial) -> ProbeRequest:
    return ProbeRequest("GET", f"{base}/users/@me", {"Authorization": f"Bot {trial.secrets[_TOKEN]}"})


def _read_owner(status: int, body: bytes) -> str:
    expect_200(status)
    return decode_answer(body, _Owner).username


SETUP = NetworkSetup(
    title="Discord",
    questions=(
        SetupQuestion(
            name=_TOKEN,
            hint="Shown on the Bot page of your Discord application.",
            check=TokenCheck(
                title="Discord",
                secret=_TOKEN,
                address=lambda trial: trial.options.get("api_url", _API),
                request=_make_request,
                owner=_read_owner,
                remedy="Reset it on the Bot page of your Discord application and copy the new one.",
            ),
        ),
    ),
    next_step="Invite the bot to a server, or write to it. It needs the message content intent to read channels.",
)
