"""Make the Telegram adapter from an account."""

import msgspec

from talaria.contracts.platform import Platform, PlatformAccount
from talaria.core.errors import Refused
from talaria.platforms.telegram.adapter import Telegram
from talaria.platforms.telegram.albums import StoreShelf
from talaria.platforms.telegram.settings import TelegramSettings, Webhook

_WEBHOOK = "webhook_"


def open_platform(account: PlatformAccount) -> Platform:
    """Return the adapter of the bot whose token is stored; options may also be those of a webhook."""
    options = {name: value for name, value in account.options.items() if not name.startswith(_WEBHOOK)}
    webhook = {
        name.removeprefix(_WEBHOOK): value for name, value in account.options.items() if name.startswith(_WEBHOOK)
    }
    token = account.secret("TELEGRAM_BOT_TOKEN")
    if not token:
        raise Refused("Telegram needs the token of a bot: `talaria setup chat` asks for it.")
    try:
        settings = msgspec.convert({**options, "token": token, "name": account.name}, TelegramSettings, strict=False)
        hook = msgspec.convert(webhook, Webhook, strict=False) if webhook else None
    except msgspec.ValidationError as error:
        raise Refused(f"An option of platforms.{account.name} is wrong: {error}.") from error
    shelf = StoreShelf(account.store, account.name)
    platform = Telegram(msgspec.structs.replace(settings, webhook=hook), account.commands, shelf)
    account.closing.push_async_callback(platform.close)
    return platform
