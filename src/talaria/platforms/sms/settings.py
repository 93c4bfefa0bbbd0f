"""Settings of the SMS adapter."""

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from talaria.core.errors import Refused
from talaria.platforms.webhook_endpoint import EndpointSettings, read_endpoint

PORT = 8650
API_URL = "https://api.twilio.com"
_ACCOUNT, _NUMBER = re.compile(r"AC[0-9a-f]{32}"), re.compile(r"\+[1-9][0-9]{6,14}")


class TwilioCredentials(Struct, frozen=True):
    """An account at Twilio, its token, and the phone number that it has."""

    account: str
    token: str
    number: str


class SmsSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One phone number: Twilio posts received messages to the ``endpoint``, signed with the account's token.

    Messages are sent from the number, or by a ``messaging_service`` that has it. Every ``interval`` Twilio is asked for
    messages whose posts got lost. ``file_limit`` is the size in bytes of the largest file, in both directions. A call
    takes ``patience`` at most, a download ``file_patience``.
    """

    credentials: TwilioCredentials
    endpoint: EndpointSettings
    name: str = "sms"
    messaging_service: Annotated[str, Meta(pattern=r"^(MG[0-9a-f]{32})?$")] = ""
    api_url: str = API_URL
    interval: timedelta = timedelta(minutes=5)
    file_limit: Annotated[int, Meta(ge=0)] = 5 * 1024 * 1024
    patience: timedelta = timedelta(seconds=15)
    file_patience: timedelta = timedelta(seconds=60)

    @property
    def account_url(self) -> str:
        """Return the address of the account's resources."""
        return f"{self.api_url}/2010-04-01/Accounts/{self.credentials.account}"


def account_problem(account: str) -> str:
    """Return why a text is no account SID; empty if it is one."""
    return "" if _ACCOUNT.fullmatch(account) else "An account SID is AC and 32 digits or letters from a to f."


def number_problem(number: str) -> str:
    """Return why a text is no phone number; empty if it is one."""
    return "" if _NUMBER.fullmatch(number) else "Write the number with + and country code, for example +14155550100."


def read_settings(name: str, options: Mapping[str, str], credentials: TwilioCredentials) -> SmsSettings:
    """Return the settings for these options; raises `Refused` for invalid ones."""
    if problem := account_problem(credentials.account) or number_problem(credentials.number):
        raise Refused(f"Invalid credentials of platforms.{name}: {problem}")
    endpoint, others = read_endpoint(name, options, PORT)
    given: dict[str, object] = {**others, "credentials": credentials, "endpoint": endpoint, "name": name}
    try:
        return msgspec.convert(given, SmsSettings, strict=False)
    except msgspec.ValidationError as error:
        raise Refused(f"Invalid option in platforms.{name}: {error}.") from error
