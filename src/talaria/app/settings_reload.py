"""Settings reload: applies changes of the profile's files while the process is running."""

import asyncio
import logging
from collections.abc import Callable

from talaria.app.application import TalariaApplication
from talaria.app.log_setup import set_level
from talaria.app.session.secret_values import iterate_secret_values
from talaria.settings.errors import SettingsInvalid
from talaria.settings.secrets import Secrets, read_secrets
from talaria.settings.watch import SettingsWatch

_PAUSE = 2.0  # seconds between two checks of the files

log = logging.getLogger(__name__)


def reload_settings(application: TalariaApplication) -> None:
    """Apply the settings, providers and keys in the profile's files to the sessions that are opened from now on."""
    application.settings_admin.reload()
    use_secrets(application, read_secrets(application.profile, application.environment))


def use_secrets(application: TalariaApplication, secrets: Secrets) -> None:
    """Use newer secrets, and the providers of the current settings."""
    application.secrets.replace(secrets)
    application.mask.add(iterate_secret_values(application.settings, application.secrets))
    application.models.reload(application.settings)


async def follow_settings(
    application: TalariaApplication, report: Callable[[str], object], pause: float = _PAUSE
) -> None:
    """Apply every changed live setting, until cancelled; ``report`` gets faults and settings that need a restart.

    Live settings are read from the application at each call or turn, so replacing them there is enough.
    """
    try:
        watch = SettingsWatch(application.profile, application.environment)
    except SettingsInvalid as error:
        log.warning("can't watch the settings for changes: %s", error)
        return
    application.settings_admin.replace(watch.loaded.settings)  # they may have changed since the process read them
    while True:
        await asyncio.sleep(pause)
        change = watch.poll()
        if change is None:
            continue
        application.settings_admin.replace(change.settings)
        use_secrets(application, change.secrets)
        set_level(change.settings.log.level)
        for key in (*change.live, *change.restart):
            log.info("settings: %s", key.sentence)
        report("; ".join([*map(str, change.faults), *(key.sentence for key in change.restart)]))
