"""Settings of a running process: changes of the files of its profile are taken over while it serves."""

import asyncio
import logging
from collections.abc import Callable

from talaria.app.house import House
from talaria.app.logs import set_level
from talaria.settings.errors import SettingsInvalid
from talaria.settings.watch import SettingsWatch

_PAUSE = 2.0  # seconds between two looks at the files

log = logging.getLogger(__name__)


async def follow_settings(house: House, report: Callable[[str], object], pause: float = _PAUSE) -> None:
    """Take over every live setting that is changed, until cancelled; ``report`` gets what waits for a restart.

    Everything that is live is read from the house at each call or turn, so that replacing its settings is enough.
    """
    try:
        watch = SettingsWatch(house.profile, house.environment)
    except SettingsInvalid as error:
        log.warning("changes of the settings are not followed: %s", error)
        return
    house.settings_rack.current = watch.loaded.settings  # they may have been changed since the process read them
    while True:
        await asyncio.sleep(pause)
        change = watch.poll()
        if change is None:
            continue
        house.settings_rack.current = change.settings
        set_level(change.settings.log.level)
        for key in (*change.live, *change.restart):
            log.info("settings: %s", key.sentence)
        report("; ".join([*map(str, change.faults), *(key.sentence for key in change.restart)]))
