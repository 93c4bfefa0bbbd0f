"""Settings of the WhatsApp adapter."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from talaria.core.errors import Refused
from talaria.platforms.webhook_endpoint import EndpointSettings, read_endpoint

PORT = 8651
API_URL = "https://graph.facebook.com"
API_VERSION = "v25.0"


class WhatsAppSecrets(Struct, frozen=True):
    """The access token, the secret of the app that signs posts, and the word by which Meta tests the address."""

    token: str
    app_secret: str
    verify_token: str


class WhatsAppSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One business number: Meta posts received messages to the ``endpoint``.

    A chat takes messages for ``window`` after the person's last one, then only a ``template`` in its ``language``,
    whose text has one parameter. With ``read_receipts``, people see that their message is read and answered.
    ``file_limit`` is the size in bytes of the largest file, in both directions. A call takes ``patience`` at most, an
    upload or download ``file_patience``.
    """

    secrets: WhatsAppSecrets
    endpoint: EndpointSettings
    phone_number_id: Annotated[str, Meta(pattern=r"^[0-9]{5,20}$")]
    name: str = "whatsapp"
    api_url: str = API_URL
    api_version: Annotated[str, Meta(pattern=r"^v[0-9]+\.[0-9]+$")] = API_VERSION
    template: str = ""
    language: str = "en_US"
    window: timedelta = timedelta(hours=24)
    read_receipts: bool = True
    file_limit: Annotated[int, Meta(ge=0, le=100 * 1024 * 1024)] = 16 * 1024 * 1024
    patience: timedelta = timedelta(seconds=15)
    file_patience: timedelta = timedelta(seconds=120)

    @property
    def base_url(self) -> str:
        """Return the address of this version of the API."""
        return f"{self.api_url}/{self.api_version}"


def read_settings(name: str, options: Mapping[str, str], secrets: WhatsAppSecrets) -> WhatsAppSettings:
    """Return the settings for these options; raises `Refused` for invalid ones."""
    endpoint, others = read_endpoint(name, options, PORT)
    if not endpoint.public_url.startswith("https://"):
        raise Refused(f"The option public_url of platforms.{name} must start with https://: Meta calls nothing else.")
    given: dict[str, object] = {**others, "secrets": secrets, "endpoint": endpoint, "name": name}
    try:
        return msgspec.convert(given, WhatsAppSettings, strict=False)
    except msgspec.ValidationError as error:
        raise Refused(f"Invalid option in platforms.{name}: {error}.") from error
