"""Startup wait for a store that is temporarily unusable: disk full, PostgreSQL restarting."""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress

from talaria.app.log_setup import close_log, open_log
from talaria.app.session.secret_values import iterate_secret_values
from talaria.app.store import open_writable
from talaria.contracts.store import Transaction
from talaria.contracts.values import SINGLE, NamedValue
from talaria.core.errors import StoreBusy, StoreError, StoreFull, StoreUnavailable
from talaria.settings.model import Settings
from talaria.settings.profiles import Profile
from talaria.settings.secrets import Secrets
from talaria.tools.output import SecretMask

_WAIT_SECONDS = 60.0  # seconds; waiting for a full disk has no limit, as in a running server
_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 5.0
STORE_PROBE = NamedValue("store_probe", bool)

log = logging.getLogger(__name__)


async def wait_for_store(
    settings: Settings, profile: Profile, secrets: Secrets, stop: asyncio.Event, report: Callable[[str], None]
) -> None:
    """Return when the store accepts a write, waiting is pointless, ``stop`` is set or the time is over.

    Each problem is logged and reported once. Opening the store afterwards raises what is still wrong.
    """
    deadline, pause, reported = time.monotonic() + _WAIT_SECONDS, _FIRST_PAUSE, ""
    with ExitStack() as stack:
        with suppress(StoreError, OSError):  # opening the log later reports the same error
            mask = SecretMask(iterate_secret_values(settings, secrets))
            stack.callback(close_log, open_log(profile, settings.log.level, mask, settings.log.format))
        while (error := await asyncio.to_thread(_find_problem, settings, profile)) is not None:
            if stop.is_set() or not (isinstance(error, StoreFull) or time.monotonic() < deadline):
                return
            if reported != str(error):
                reported = str(error)
                log.warning("waiting for the store: %s", error)
                report(f"Waiting for the store: {error}")
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), pause)
            pause = min(2 * pause, _LONGEST_PAUSE)


def _find_problem(settings: Settings, profile: Profile) -> StoreError | None:
    """Return why the store cannot be written, if the cause may be temporary."""
    try:
        database = open_writable(settings, profile)
        try:
            database.write(_probe)
        finally:
            database.close()
    except (StoreBusy, StoreFull) as error:
        return error
    except StoreUnavailable as error:
        return error if settings.store.url else None
    except StoreError:
        return None
    return None


def _probe(tx: Transaction) -> None:
    STORE_PROBE.write(tx, SINGLE, value=True)
    STORE_PROBE.delete(tx, SINGLE)
