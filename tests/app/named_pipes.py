"""Named pipes at which a process of a test waits; the process creates the pipe in its folder."""

import asyncio
from pathlib import Path

from talaria.testing.wait import until


async def open_gate(gate: Path) -> None:
    """Let the process continue as soon as it has created its pipe."""
    await until(lambda: asyncio.to_thread(gate.is_fifo))
    await asyncio.to_thread(_open, gate)


def _open(gate: Path) -> None:
    with gate.open("w") as opened:
        opened.write("\n")
