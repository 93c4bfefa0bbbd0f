"""Semantic similarity of texts, by the small embeddings of `wordllama`, where installed."""

import asyncio
import logging
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any

_BEGINNING = 500  # characters of each text that are compared; 400 texts take a tenth of a second
_BATCH = 16


_loading = Lock()


class Meaning:
    """Compares texts; the weights are loaded at the first comparison, once per process."""

    @staticmethod
    def is_installed() -> bool:
        """Return whether texts can be compared here."""
        return _is_installed()

    async def nearness(self, query: str, texts: Sequence[str]) -> list[float]:
        """Return the similarity of each text to the query: 1 is equal, 0 unrelated."""
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
    import wordllama  # type: ignore[import-untyped]  # noqa: PLC0415 (an optional package, loaded with the first comparison)

    # The package configures logging for the whole process when it is imported.
    root.setLevel(level)
    root.handlers[:] = handlers
    # It contains its tokenizer, but looks for it in a folder of another name, unless given as a cache.
    return wordllama.WordLlama.load(cache_dir=Path(str(wordllama.__file__)).parent, disable_download=True)
