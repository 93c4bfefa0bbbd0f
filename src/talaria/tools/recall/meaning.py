"""How near texts are in meaning, by the small embeddings of `wordllama`, where that is installed."""

import asyncio
import importlib
import logging
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any

_BEGINNING = 500  # characters of each text that are looked at; 400 texts take a tenth of a second
_BATCH = 16


_loading = Lock()


class Meaning:
    """Compares texts; the weights are loaded at the first comparison, once for all conversations of a process."""

    @staticmethod
    def is_installed() -> bool:
        """Return whether texts can be compared here."""
        return _is_installed()

    async def nearness(self, query: str, texts: Sequence[str]) -> list[float]:
        """Return for each text how near it is to the query: 1 is the same, 0 has nothing to do with it."""
        return await asyncio.to_thread(self._nearness, query, [text[:_BEGINNING] for text in texts])

    def _nearness(self, query: str, texts: list[str]) -> list[float]:
        with _loading:
            model = _load()
        # Batches are padded to their longest text, so texts of one length go together.
        order = sorted(range(len(texts)), key=lambda place: len(texts[place]))
        vectors = model.embed([query, *(texts[place] or "-" for place in order)], norm=True, batch_size=_BATCH)
        near = dict(zip(order, (vectors[1:] @ vectors[0]).tolist(), strict=True))
        return [near[place] for place in range(len(texts))]


@cache
def _is_installed() -> bool:
    return find_spec("wordllama") is not None


@cache
def _load() -> Any:
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    module = importlib.import_module("wordllama")
    # The package sets up logging for the whole process when it is imported.
    root.setLevel(level)
    root.handlers[:] = handlers
    # It has its tokenizer inside, but looks for it in a folder of another name, except as in a cache.
    return module.WordLlama.load(cache_dir=Path(str(module.__file__)).parent, disable_download=True)
