"""Create the webhook adapter from an account."""

from talaria.contracts.platform import Platform, PlatformAccount
from talaria.platforms.webhook.adapter import Webhooks
from talaria.platforms.webhook.settings import read_settings


def open_platform(account: PlatformAccount) -> Platform:
    """Return the adapter of all routes; they are files in the account's folder unless an option names another."""
    platform = Webhooks(read_settings(account.name, account.options, account.folder), account.secret)
    account.closing.push_async_callback(platform.close)
    return platform
