"""What other workers have heard and this one is to act on, as the keeper of the room."""

import logging
from collections.abc import Mapping

from talaria.contracts.store import Store, Transaction
from talaria.core.errors import StoreError
from talaria.gateway.intake import Intake
from talaria.gateway.keepers import Letter, has_letters, take_letters, take_lost_letters, topic
from talaria.gateway.rooms import Rooms

log = logging.getLogger(__name__)


class Letters:
    """Opens the letters for one worker; ``intakes`` are those of the networks by name."""

    def __init__(self, store: Store, rooms: Rooms, intakes: Mapping[str, Intake]) -> None:
        self._store = store
        self._rooms = rooms
        self._intakes = intakes

    async def serve(self) -> None:
        """Open letters as they come, until cancelled."""
        async with self._store.heeding(topic(self._rooms.worker)) as rung:
            while True:
                rung.clear()
                try:
                    await self.look()
                except StoreError as error:
                    log.warning("letters of other workers wait: %s", error)
                await rung.wait()

    async def look(self) -> int:
        """Open what is there, and return how many letters that were."""
        if not await self._store.read(has_letters):
            return 0
        letters = await self._store.write(self._taken)
        for letter in letters:
            intake = self._intakes.get(letter.incoming.address.platform)
            if intake is not None:
                self._rooms.start(intake.open(letter))
        return len(letters)

    def _taken(self, tx: Transaction) -> list[Letter]:
        return [*take_lost_letters(tx), *take_letters(tx, self._rooms.worker)]
