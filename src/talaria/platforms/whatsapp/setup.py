"""Setup of WhatsApp: a business number with its token, the secret of the app, and the address that Meta calls."""

from msgspec import Struct

from talaria.contracts.setup import NetworkSetup, NetworkTrial, SetupQuestion
from talaria.platforms.setup_checks import (
    ProbeRequest,
    TokenCheck,
    TokenRejected,
    decode_answer,
    endpoint_questions,
    expect_200,
    refusals_of,
)
from talaria.platforms.whatsapp.settings import (
    API_URL,
    API_VERSION,
    PORT,
    WhatsAppSecrets,
    WhatsAppSettings,
    read_settings,
)

_TOKEN = "WHATSAPP_TOKEN"  # noqa: S105 (the name of a secret)
_APP_SECRET = "WHATSAPP_APP_SECRET"  # noqa: S105 (the name of a secret)
_VERIFY = "WHATSAPP_VERIFY_TOKEN"


class _BusinessNumber(Struct):
    display_phone_number: str
    verified_name: str = ""


def _make_request(base: str, trial: NetworkTrial) -> ProbeRequest:
    number, version = trial.options.get("phone_number_id", ""), trial.options.get("api_version", API_VERSION)
    url = f"{base}/{version}/{number}?fields=display_phone_number,verified_name"
    return ProbeRequest("GET", url, {"Authorization": f"Bearer {trial.secrets[_TOKEN]}"})


def _read_owner(status: int, body: bytes) -> str:
    if status == 400:  # a number that this token can't use
        raise TokenRejected
    expect_200(status)
    number = decode_answer(body, _BusinessNumber)
    return f"{number.verified_name} ({number.display_phone_number})"


def _read(trial: NetworkTrial) -> WhatsAppSettings:
    secrets = trial.secrets
    given = WhatsAppSecrets(secrets.get(_TOKEN, ""), secrets.get(_APP_SECRET, ""), secrets.get(_VERIFY, ""))
    return read_settings(trial.account or "whatsapp", trial.options, given)


_find_problems = refusals_of(_read)


def _find_number_problem(number: str) -> str:
    is_id = number.isascii() and number.isdigit() and 5 <= len(number) <= 20
    return "" if is_id else "The phone number ID has 5 to 20 digits. It is not the phone number."


SETUP = NetworkSetup(
    title="WhatsApp",
    questions=(
        SetupQuestion(
            name="phone_number_id",
            prompt="Phone number ID",
            hint="On the API Setup page of your app, under WhatsApp; it is not the phone number.",
            problem=_find_number_problem,
        ),
        SetupQuestion(
            name=_TOKEN,
            hint="An access token of a system user with the permission whatsapp_business_messaging.",
            check=TokenCheck(
                title="WhatsApp",
                secret=_TOKEN,
                address=lambda trial: trial.options.get("api_url", API_URL),
                request=_make_request,
                owner=_read_owner,
                remedy="Create one for a system user who can use this phone number ID.",
            ),
        ),
        SetupQuestion(name=_APP_SECRET, hint="The app secret under App settings, Basic; it signs what Meta posts."),
        SetupQuestion(name=_VERIFY, hint="A word of your choice, which you also enter as the verify token at Meta."),
        *endpoint_questions("Meta", "whatsapp", PORT),
    ),
    next_step="Start the gateway. Then enter the address and the verify token at Meta, under WhatsApp, Configuration, "
    "and subscribe to the field `messages`.",
    doctor=_find_problems,
)
