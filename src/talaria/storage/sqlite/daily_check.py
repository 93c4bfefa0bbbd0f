"""Look for damage once a day, on a thread of its own, while a store is open."""

import logging
import threading
from pathlib import Path

from talaria.contracts.clock import Clock
from talaria.core.errors import StoreError
from talaria.storage.sqlite.check_record import CheckRecord

log = logging.getLogger(__name__)

_AFTER_START = 60.0  # seconds: programs that end sooner leave the check to others
_BETWEEN_LOOKS = 3600.0


class DailyCheck:
    """Checks a store when its last full check is more than a day old; the next start repairs what it finds."""

    def __init__(self, store: Path, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="store-check", daemon=True)

    def start(self) -> None:
        """Begin to wait for the time of a check."""
        self._thread.start()

    def stop(self) -> None:
        """End a check that is under way, and the thread."""
        self._stop.set()
        self._thread.join()

    def run_if_due(self) -> None:
        """Look for damage, unless that was done within a day."""
        record = CheckRecord(self._store)
        if record.is_due(self._clock.now()):
            try:
                self._check(record)
            except StoreError as error:
                log.warning("the daily check of the store has to wait: %s", error)

    def _serve(self) -> None:
        wait = _AFTER_START
        while not self._stop.wait(wait):
            wait = _BETWEEN_LOOKS
            self.run_if_due()

    def _check(self, record: CheckRecord) -> None:
        from talaria.storage.sqlite.recovery import examine  # noqa: PLC0415 (no start needs it)

        found = examine(self._store, thorough=False, stop=self._stop)
        if found.damage:
            record.write("damaged", self._clock.now())
            log.critical(
                "%s is damaged: %s Stop Talaria and run `talaria doctor --fix`; the next start repairs it as well.",
                self._store,
                " ".join(found.damage),
            )
        elif found.complete:
            record.write("sound", self._clock.now())
