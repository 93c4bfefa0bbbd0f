"""Daily integrity check of an open store, on its own thread."""

import logging
import threading
from pathlib import Path

from talaria.contracts.clock import Clock
from talaria.core.errors import StoreError
from talaria.storage.sqlite.check_record import CheckRecord

log = logging.getLogger(__name__)

_START_DELAY = 60.0  # seconds; short-lived programs skip the check
_POLL_INTERVAL = 3600.0


class DailyCheck:
    """Integrity check that runs when the last full check is more than a day old.

    Damage is recorded and logged; the next start repairs it.
    """

    def __init__(self, store: Path, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="store-check", daemon=True)

    def start(self) -> None:
        """Start the thread; the first check runs after a minute at the earliest."""
        self._thread.start()

    def stop(self) -> None:
        """Interrupt a running check and wait for the thread to end."""
        self._stop.set()
        self._thread.join()

    def run_if_due(self) -> None:
        """Check for damage, unless a check within the last day found none."""
        record = CheckRecord(self._store)
        if record.is_due(self._clock.now()):
            try:
                self._check(record)
            except StoreError as error:
                log.warning("the daily check of the store is postponed: %s", error)

    def _serve(self) -> None:
        wait = _START_DELAY
        while not self._stop.wait(wait):
            wait = _POLL_INTERVAL
            self.run_if_due()

    def _check(self, record: CheckRecord) -> None:
        from talaria.storage.sqlite.recovery import examine  # noqa: PLC0415 (not needed at startup)

        found = examine(self._store, thorough=False, stop=self._stop)
        if found.damage:
            record.write("damaged", self._clock.now())
            log.critical(
                "%s is damaged: %s Stop Talaria and run `talaria doctor --fix`, or let the next start repair it.",
                self._store,
                " ".join(found.damage),
            )
        elif found.complete:
            record.write("sound", self._clock.now())
