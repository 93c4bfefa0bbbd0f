"""What is said in a voice note, written down for the model."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from talaria.contracts.voice import Transcriber
from talaria.core.errors import ProviderError, TalariaError
from talaria.core.messages import Text

_NOBODY = (
    "(What is said in this voice note is not written down: nothing is set up for that. The owner of this agent can do"
    " so with the setting voice.transcribe.)"
)

log = logging.getLogger(__name__)


class Hearing:
    """Listens to voice notes; ``find`` returns who does that as the settings are now, or raises what is wrong."""

    def __init__(
        self,
        find: Callable[[], Transcriber | None],
        seconds: Callable[[], float],
        mask: Callable[[str], str] = str,
    ) -> None:
        self._find = find
        self._seconds = seconds
        self._mask = mask

    async def words(self, file: Path, media_type: str) -> Text:
        """Return what is said in a voice note, or a sentence about why that is not known."""
        try:
            transcriber = self._find()
            if transcriber is None:
                return Text(_NOBODY)
            async with asyncio.timeout(self._seconds()):
                heard = await transcriber.transcribe(file, media_type)
        except TimeoutError:
            return _unheard(f"it took longer than {self._seconds():g} s")
        except ProviderError as error:
            return _unheard(self._mask(error.public))
        except TalariaError as error:
            return _unheard(self._mask(str(error)))
        return Text(f"[voice note] {heard}" if heard else "[voice note without words]")


def _unheard(why: str) -> Text:
    log.warning("a voice note was not written down: %s", why)
    return Text(f"(What is said in this voice note could not be written down: {why.rstrip('.')}.)")
