"""Create the adapter of the loopback network from an account."""

import msgspec

from talaria.contracts.platform import Platform, PlatformAccount, PlatformCapabilities
from talaria.testing.loopback_platform.adapter import CHATTY, LoopbackPlatform, LoopbackSettings


def open_platform(account: PlatformAccount) -> Platform:
    """Return the adapter; the option ``abilities`` is their JSON."""
    options = dict(account.options)
    options_given = options.pop("abilities", "")
    abilities = msgspec.json.decode(options_given, type=PlatformCapabilities) if options_given else CHATTY
    settings = msgspec.convert({**options, "name": account.name}, LoopbackSettings, strict=False)
    platform = LoopbackPlatform(msgspec.structs.replace(settings, abilities=abilities))
    account.closing.callback(platform.close)
    return platform
