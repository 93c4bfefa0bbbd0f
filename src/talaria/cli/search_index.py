"""Indexing of stored messages that are not indexed, for example after a restore."""

from talaria.cli.output.terminal import Terminal
from talaria.contracts.store import Database
from talaria.core.errors import StoreFull, StoreUnavailable

_BATCH_SIZE = 1000


def index_messages(database: Database, terminal: Terminal) -> None:
    """Update the search index; print a note if the store cannot be written."""
    waiting = database.read(lambda tx: tx.search.unindexed())
    if not waiting:
        return
    try:
        with terminal.progress("Indexing", waiting) as progress:
            while done := database.write(lambda tx: tx.search.catch_up(_BATCH_SIZE)):
                progress.advance(done)
    except (StoreFull, StoreUnavailable) as error:
        terminal.note(f"{waiting} messages aren't indexed yet and may not be found: {error}")
