"""A mark on the message that is worked on; best effort: nothing of it holds up the turn or fails it."""

import logging
from typing import cast

from talaria.contracts.platform import MarkingPlatform, MessageRef
from talaria.core.addresses import Route
from talaria.core.errors import PlatformError
from talaria.gateway.placing import bounded
from talaria.gateway.streaming import Stage
from talaria.gateway.throttle import TYPING

AT_WORK, NOTHING = "👀", ""

log = logging.getLogger(__name__)


async def mark(stage: Stage, route: Route, emoji: str) -> None:
    """Mark the message that a turn answers, where the network has marks and there is such a message."""
    if not stage.platform.abilities.reactions or not route.reply_to or not stage.throttle.take(route.address, TYPING):
        return
    platform = cast("MarkingPlatform", stage.platform)
    try:
        await bounded(platform.react(MessageRef(route.address, route.reply_to), emoji), stage.call)
    except PlatformError as error:
        log.info("%s: a message was not marked: %s", stage.platform.name, error)
