"""Setup of SMS: an account at Twilio, a phone number, and the address that Twilio calls."""

import base64
from urllib.parse import urlencode

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
from talaria.platforms.sms.settings import (
    API_URL,
    PORT,
    SmsSettings,
    TwilioCredentials,
    account_problem,
    number_problem,
    read_settings,
)
from talaria.platforms.sms.wire import PhoneNumbers

_ACCOUNT, _NUMBER = "TWILIO_ACCOUNT_SID", "TWILIO_PHONE_NUMBER"
_TOKEN = "TWILIO_AUTH_TOKEN"  # noqa: S105 (the name of a secret)


def _make_request(base: str, trial: NetworkTrial) -> ProbeRequest:
    account, number = trial.secrets.get(_ACCOUNT, ""), trial.secrets.get(_NUMBER, "")
    path = f"/2010-04-01/Accounts/{account}/IncomingPhoneNumbers.json?{urlencode({'PhoneNumber': number})}"
    given = base64.b64encode(f"{account}:{trial.secrets[_TOKEN]}".encode()).decode()
    return ProbeRequest("GET", f"{base}{path}", {"Authorization": f"Basic {given}"})


def _read_owner(status: int, body: bytes) -> str:
    expect_200(status)
    if not (numbers := decode_answer(body, PhoneNumbers).incoming_phone_numbers):
        raise TokenRejected
    return numbers[0].phone_number


def _read(trial: NetworkTrial) -> SmsSettings:
    secrets = trial.secrets
    given = TwilioCredentials(secrets.get(_ACCOUNT, ""), secrets.get(_TOKEN, ""), secrets.get(_NUMBER, ""))
    return read_settings(trial.account or "sms", trial.options, given)


_find_problems = refusals_of(_read)

SETUP = NetworkSetup(
    title="SMS (Twilio)",
    questions=(
        SetupQuestion(
            name=_ACCOUNT,
            hint="The account SID in the Twilio console; starts with AC.",
            public=True,
            problem=account_problem,
        ),
        SetupQuestion(
            name=_NUMBER,
            hint="Your phone number at Twilio, for example +14155550100.",
            public=True,
            problem=number_problem,
        ),
        SetupQuestion(
            name=_TOKEN,
            hint="The primary auth token in the Twilio console; it also signs what Twilio posts.",
            check=TokenCheck(
                title="Twilio",
                secret=_TOKEN,
                address=lambda trial: trial.options.get("api_url", API_URL),
                request=_make_request,
                owner=_read_owner,
                remedy="Copy SID and primary token of the account that has the number from the Twilio console.",
            ),
        ),
        *endpoint_questions("Twilio", "sms", PORT, needs_tls=False),
    ),
    next_step="Start the gateway: it tells Twilio the address. Then send a text message to your number.",
    doctor=_find_problems,
)
