"""Create the Telegram adapter from an account."""

import msgspec

from talaria.contracts.platform import Platform, PlatformAccount
from talaria.core.errors import Refused
from talaria.platforms.telegram.adapter import Telegram
from talaria.platforms.telegram.albums import DurableAlbumStore
from talaria.platforms.telegram.settings import TelegramSettings, Webhook

_WEBHOOK = "webhook_"


def open_platform(account: PlatformAccount) -> Platform:
    """Return the adapter for the stored bot token; options may include those of a webhook."""
    options = {name: value for name, value in account.options.items() if not name.startswith(_WEBHOOK)}
    webhook = {
        name.removeprefix(_WEBHOOK): value for name, value in account.options.items() if name.startswith(_WEBHOOK)
    }
    token = account.secret("TELEGRAM_BOT_TOKEN")
    if not token:
        raise Refused("Telegram needs a bot token. Run `talaria setup chat` to enter it.")
    try:
        settings = msgspec.convert({**options, "token": token, "name": account.name}, TelegramSettings, strict=False)
        webhook_settings = msgspec.convert(webhook, Webhook, strict=False) if webhook else None
    except msgspec.ValidationError as error:
        raise Refused(f"Invalid option in platforms.{account.name}: {error}.") from error
    state_store = DurableAlbumStore(account.store, account.name)
    platform = Telegram(msgspec.structs.replace(settings, webhook=webhook_settings), account.commands, state_store)
    account.closing.push_async_callback(platform.close)
    return platform
