"""Report the test that leaves a subprocess open when its event loop ends.

Python reports such a subprocess when its transport is collected as garbage, which fails the test that runs then.
"""

import asyncio.base_subprocess
import gc
import os
import warnings
from collections.abc import Iterator
from weakref import WeakKeyDictionary

import pytest


class OpenSubprocesses:
    """The subprocess transports that tests of a folder open in this process, each with its test."""

    def __init__(self, folder: str) -> None:
        opened = self._opened = WeakKeyDictionary[asyncio.SubprocessTransport, str]()
        start = asyncio.base_subprocess.BaseSubprocessTransport.__init__

        def start_and_note(transport: asyncio.SubprocessTransport, *arguments: object, **options: object) -> None:
            start(transport, *arguments, **options)  # type: ignore[arg-type] # passed through
            test = os.environ.get("PYTEST_CURRENT_TEST", "")  # noqa: TID251 (set by pytest)
            if test.startswith(folder):
                opened[transport] = f"{test.rpartition(' ')[0]} opened {arguments[2]!r}"

        asyncio.base_subprocess.BaseSubprocessTransport.__init__ = start_and_note  # type: ignore[method-assign,assignment]

    def check(self) -> None:
        """Fail if a subprocess is open whose event loop has ended, so that no other test fails because of it."""
        left = list(self._take_left())
        if left:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ResourceWarning)
                gc.collect()
            pytest.fail("a subprocess was still open when its event loop ended: " + "; ".join(left), pytrace=False)

    def _take_left(self) -> Iterator[str]:
        for transport, opening in list(self._opened.items()):
            loop = getattr(transport, "_loop", None)  # none after the end of the process and its pipes
            if not transport.is_closing() and (loop is None or loop.is_closed()):
                del self._opened[transport]
                yield opening
