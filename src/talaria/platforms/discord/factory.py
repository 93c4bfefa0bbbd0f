"""Create the Discord adapter from an account."""

import msgspec

from talaria.contracts.platform import Platform, PlatformAccount
from talaria.core.errors import Refused
from talaria.platforms.discord.adapter import Discord
from talaria.platforms.discord.session_state import DurableProgressStore
from talaria.platforms.discord.settings import DiscordSettings


def open_platform(account: PlatformAccount) -> Platform:
    """Return the adapter for the stored bot token."""
    token = account.secret("DISCORD_BOT_TOKEN")
    if not token:
        raise Refused("Discord needs a bot token. Run `talaria setup chat` to enter it.")
    given: dict[str, object] = dict(account.options)
    channels = account.options.get("free_channels", "")
    given["free_channels"] = [one.strip() for one in channels.split(",") if one.strip()]
    try:
        settings = msgspec.convert({**given, "token": token, "name": account.name}, DiscordSettings, strict=False)
    except msgspec.ValidationError as error:
        raise Refused(f"Invalid option in platforms.{account.name}: {error}.") from error
    platform = Discord(settings, account.commands, DurableProgressStore(account.store, account.name))
    account.closing.push_async_callback(platform.close)
    return platform
