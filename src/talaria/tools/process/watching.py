"""One background process that this worker watches: a bell rings when it ends."""

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from talaria.contracts.processes import BackgroundProcess
from talaria.core.system_processes import is_same
from talaria.tools.process.files import ProcessFiles
from talaria.tools.process.matching import Lookout


class Watched:
    """A process under watch; ``silent`` is one of whose end the system does not tell: it has to be looked at."""

    def __init__(self, process: BackgroundProcess) -> None:
        self.process = process
        self.files = ProcessFiles(Path(process.place))
        self.lookout = Lookout(self.files, process.patterns, process.scanned, process.matches, process.matched_at)
        self.ended = asyncio.Event()
        self.over = False
        self.ending = False
        self.silent = True
        self._handle: int | None = None

    @property
    def runs(self) -> bool:
        """Whether it is alive."""
        return is_same(self.process.pid, self.process.started, self.process.machine)

    def listen(self, ring: Callable[[], None]) -> None:
        """Call ``ring`` when it ends, at once if it has."""
        with suppress(AttributeError, OSError):  # the system has no such bell, or the process is gone
            self._handle = os.pidfd_open(self.process.pid)
            self.silent = False
            asyncio.get_running_loop().add_reader(self._handle, ring)
        if not self.runs:
            ring()

    def close(self) -> None:
        """Give back what the system lent us, and bury the process if it was our child."""
        if self._handle is not None:
            asyncio.get_running_loop().remove_reader(self._handle)
            os.close(self._handle)
            self._handle = None
        if self.process.pid:
            with suppress(ChildProcessError):
                os.waitpid(self.process.pid, os.WNOHANG)
