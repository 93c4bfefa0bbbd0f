"""How a conversation learns what becomes of its processes."""

from collections.abc import Sequence
from typing import Protocol

from talaria.contracts.processes import BackgroundProcess
from talaria.contracts.store import Transaction


class Reporter(Protocol):
    """Who tells."""

    @property
    def topic(self) -> str:
        """That of the hints that there is something to be told."""

    def report(self, tx: Transaction, process: BackgroundProcess, name: str, text: str) -> None:
        """Let something be told to the conversation of a process, once for each name."""

    def hear(self, tx: Transaction, process: BackgroundProcess, names: Sequence[str], call_id: str) -> None:
        """Let what has these names not be told, if a tool call answers with it."""


def end_name(process: BackgroundProcess) -> str:
    """Return the name of the report of its end."""
    return f"{process.id}:end"


def match_name(process: BackgroundProcess, number: int) -> str:
    """Return the name of a report of lines that were watched for."""
    return f"{process.id}:match:{number}"
