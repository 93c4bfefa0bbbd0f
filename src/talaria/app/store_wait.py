"""Wait for a store that cannot be used yet when a server starts: a full disk, a PostgreSQL server that restarts."""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress

from talaria.app.logs import close_log, open_log
from talaria.app.secrecy import secret_values
from talaria.app.stores import open_writable
from talaria.contracts.store import Transaction
from talaria.core.errors import StoreBusy, StoreError, StoreFull, StoreUnavailable
from talaria.settings.model import Settings
from talaria.settings.profiles import Profile
from talaria.settings.secrets import Secrets
from talaria.tools.output import masking

_PATIENCE = 60.0  # seconds; a full disk is waited for without a limit, as in a server that is running
_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 5.0
_PROBE = "store:probe"

log = logging.getLogger(__name__)


async def wait_for_store(
    settings: Settings, profile: Profile, secrets: Secrets, stop: asyncio.Event, report: Callable[[str], None]
) -> None:
    """Return when the store takes a write, when waiting cannot help, when ``stop`` is set or the time is over.

    Each trouble is logged and reported once. Opening the store afterwards raises what is still wrong.
    """
    deadline, pause, told = time.monotonic() + _PATIENCE, _FIRST_PAUSE, ""
    with ExitStack() as stack:
        with suppress(StoreError, OSError):  # opening the log again says what is wrong with it
            mask = masking(secret_values(settings, secrets))
            stack.callback(close_log, open_log(profile, settings.log.level, mask, settings.log.format))
        while (error := await asyncio.to_thread(_trouble, settings, profile)) is not None:
            if stop.is_set() or not (isinstance(error, StoreFull) or time.monotonic() < deadline):
                return
            if told != str(error):
                told = str(error)
                log.warning("waiting for the store: %s", error)
                report(f"Waiting for the store: {error}")
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), pause)
            pause = min(2 * pause, _LONGEST_PAUSE)


def _trouble(settings: Settings, profile: Profile) -> StoreError | None:
    """Return why the store cannot be written, if that may be over soon."""
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
    tx.state.put(_PROBE, "")
    tx.state.delete(_PROBE)
