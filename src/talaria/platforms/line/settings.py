"""Settings of the LINE adapter."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from talaria.core.errors import Refused
from talaria.platforms.webhook_endpoint import EndpointSettings, read_endpoint

PORT = 8646
API_URL = "https://api.line.me"


class LineSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One channel of the Messaging API: ``token`` sends, ``secret`` signs what LINE posts to the ``endpoint``.

    In groups the account is addressed when it is mentioned (``mention``) or always (``free``). ``file_limit`` is the
    size in bytes of the largest file, in both directions. A call takes ``patience`` at most, a download
    ``file_patience``.
    """

    token: str
    secret: str
    endpoint: EndpointSettings
    name: str = "line"
    group_mode: Literal["mention", "free"] = "mention"
    api_url: str = API_URL
    data_url: str = "https://api-data.line.me"
    file_limit: Annotated[int, Meta(ge=0)] = 10 * 1024 * 1024
    patience: timedelta = timedelta(seconds=15)
    file_patience: timedelta = timedelta(seconds=120)


def read_settings(name: str, options: Mapping[str, str], token: str, secret: str) -> LineSettings:
    """Return the settings for these options; raises `Refused` for invalid ones."""
    endpoint, others = read_endpoint(name, options, PORT)
    if not endpoint.public_url.startswith("https://"):
        raise Refused(f"The option public_url of platforms.{name} must start with https://: LINE calls nothing else.")
    given: dict[str, object] = {**others, "token": token, "secret": secret, "endpoint": endpoint, "name": name}
    try:
        return msgspec.convert(given, LineSettings, strict=False)
    except msgspec.ValidationError as error:
        raise Refused(f"Invalid option in platforms.{name}: {error}.") from error
