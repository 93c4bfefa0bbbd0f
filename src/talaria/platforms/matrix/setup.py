"""Setup of Matrix: a homeserver, and an account's access token."""

from msgspec import Struct

from talaria.contracts.setup import NetworkSetup, NetworkTrial, SetupQuestion
from talaria.platforms.setup_checks import ProbeRequest, TokenCheck, decode_answer, expect_200, web_address_problem

_HOMESERVER = "MATRIX_HOMESERVER"
_TOKEN = "MATRIX_ACCESS_TOKEN"  # noqa: S105 (the name of a secret)


class _Whoami(Struct):
    user_id: str


def _make_request(base: str, trial: NetworkTrial) -> ProbeRequest:
    headers = {"Authorization": f"Bearer {trial.secrets[_TOKEN]}"}
    return ProbeRequest("GET", f"{base}/_matrix/client/v3/account/whoami", headers)


def _read_owner(status: int, body: bytes) -> str:
    expect_200(status)
    return decode_answer(body, _Whoami).user_id


SETUP = NetworkSetup(
    title="Matrix",
    questions=(
        SetupQuestion(
            name=_HOMESERVER,
            prompt="Matrix server",
            hint="Address of the bot account's server, for example https://matrix.org.",
            public=True,
            problem=web_address_problem,
        ),
        SetupQuestion(
            name=_TOKEN,
            hint="From a client that is logged in as the bot.",
            check=TokenCheck(
                title="Matrix",
                secret=_TOKEN,
                address=lambda trial: trial.secrets.get(_HOMESERVER, ""),
                request=_make_request,
                owner=_read_owner,
                remedy="Log in as the bot again and use the new access token.",
            ),
        ),
    ),
    next_step="Invite the bot to a room; invitations of people with access are accepted.",
)
