"""A gate at which a process of a test waits: a named pipe in its folder, which the process makes itself."""

import asyncio
from pathlib import Path

from talaria.testing.wait import until


async def open_gate(gate: Path) -> None:
    """Let the process go on, as soon as it has made its gate."""
    await until(lambda: asyncio.to_thread(gate.is_fifo))
    await asyncio.to_thread(_open, gate)


def _open(gate: Path) -> None:
    with gate.open("w") as opened:
        opened.write("\n")
