"""The files of messages, fetched before their turns begin: a person can stop that, and nothing else is held up."""

import asyncio
from collections.abc import Sequence

from talaria.core.messages import Message
from talaria.sessions.admitted import Packed, Unpack, without_files
from talaria.sessions.company import first_error


class Unpacking:
    """What one conversation does ahead of its turns."""

    def __init__(self, unpack: Unpack) -> None:
        self._unpack = unpack
        self._fetching: asyncio.Task[Message] | None = None
        self._stopped: set[int] = set()

    @property
    def busy(self) -> bool:
        """Whether something is being fetched."""
        return self._fetching is not None

    async def unpack(self, packed: Packed) -> Message:
        """Return a message as it goes into the transcript; one that was stopped has words in place of its files."""
        try:
            async with asyncio.TaskGroup() as group:
                self._fetching = fetching = group.create_task(self._unpack(packed))
        except BaseExceptionGroup as errors:
            raise first_error(errors) from errors
        finally:
            self._fetching = None
        if fetching.cancelled():
            self._stopped.add(packed.item)
            return without_files(packed.message, "came along, and was not fetched: a person stopped that")
        return fetching.result()

    def stop(self) -> bool:
        """Fetch no more for the message that is next, whose turn is then over at once; ``False`` if none is."""
        return self._fetching is not None and self._fetching.cancel()

    def was_stopped(self, items: Sequence[int]) -> bool:
        """Tell whether a turn that works off these is over before it has begun."""
        return not self._stopped.isdisjoint(items)
