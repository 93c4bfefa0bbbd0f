"""Setup of SMS: an account at Twilio, a phone number, and the address that Twilio calls."""

import base64
from urllib.parse import urlencode

from talaria.contracts.setup import NetworkSetup, NetworkTrial, SetupQuestion
from talaria.core.errors import Refused
from talaria.platforms.sms.settings import (
    API_URL,
    PORT,
    TwilioCredentials,
    account_problem,
    number_problem,
    read_settings,
)
from talaria.platforms.sms.wire import PhoneNumbers
from talaria.platforms.token_check import ProbeRequest, TokenCheck, TokenRejected, decode_answer, expect_200
from talaria.platforms.webhook_endpoint import endpoint_problem

_ACCOUNT, _NUMBER = "TWILIO_ACCOUNT_SID", "TWILIO_PHONE_NUMBER"
_TOKEN = "TWILIO_AUTH_TOKEN"  # noqa: S105 (the name of a secret)


def _request(base: str, trial: NetworkTrial) -> ProbeRequest:
    account, number = trial.secrets.get(_ACCOUNT, ""), trial.secrets.get(_NUMBER, "")
    path = f"/2010-04-01/Accounts/{account}/IncomingPhoneNumbers.json?{urlencode({'PhoneNumber': number})}"
    given = base64.b64encode(f"{account}:{trial.secrets[_TOKEN]}".encode()).decode()
    return ProbeRequest("GET", f"{base}{path}", {"Authorization": f"Basic {given}"})


def _owner(status: int, body: bytes) -> str:
    expect_200(status)
    if not (numbers := decode_answer(body, PhoneNumbers).incoming_phone_numbers):
        raise TokenRejected
    return numbers[0].phone_number


def _find_problems(trial: NetworkTrial) -> tuple[str, ...]:
    secrets = trial.secrets
    given = TwilioCredentials(secrets.get(_ACCOUNT, ""), secrets.get(_TOKEN, ""), secrets.get(_NUMBER, ""))
    try:
        read_settings("sms", trial.options, given)
    except Refused as error:
        return (str(error),)
    return ()


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
                request=_request,
                owner=_owner,
                remedy="Copy SID and primary token of the account that has the number from the Twilio console.",
            ),
        ),
        SetupQuestion(
            name="public_url",
            prompt="Public address",
            hint="Address under which Twilio reaches this machine, for example https://bot.example.org/sms.",
            problem=lambda url: endpoint_problem("sms", {"public_url": url}),
        ),
        SetupQuestion(
            name="port",
            prompt="Port",
            hint="Port on this machine to which your proxy or tunnel forwards the public address.",
            default=str(PORT),
            distinct=True,
            problem=lambda port: endpoint_problem("sms", {"port": port}),
        ),
    ),
    next_step="Start the gateway: it tells Twilio the address. Then send a text message to your number.",
    doctor=_find_problems,
)
