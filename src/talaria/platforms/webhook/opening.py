"""Make the webhook adapter from an account."""

import msgspec

from talaria.contracts.platform import Platform, PlatformAccount
from talaria.core.errors import Refused
from talaria.platforms.webhook.adapter import Webhooks
from talaria.platforms.webhook.settings import WebhookSettings


def open_platform(account: PlatformAccount) -> Platform:
    """Return the adapter of all routes; they are files in the folder of the account unless an option names another."""
    told = {"routes": str(account.folder), **account.options, "name": account.name}
    try:
        settings = msgspec.convert(told, WebhookSettings, strict=False)
    except msgspec.ValidationError as error:
        raise Refused(f"An option of platforms.{account.name} is wrong: {error}.") from error
    platform = Webhooks(settings, account.secret)
    account.closing.push_async_callback(platform.close)
    return platform
