"""Index what is stored but not indexed: after a restore, or when a program ended before it came to it."""

from talaria.cli.terminal import Terminal
from talaria.contracts.store import Database
from talaria.core.errors import StoreFull, StoreUnavailable

_AT_ONCE = 1000


def index_messages(database: Database, terminal: Terminal) -> None:
    """Bring the word index up to date, so that search finds everything; note it where the store cannot be written."""
    waiting = database.read(lambda tx: tx.search.unindexed())
    if not waiting:
        return
    try:
        with terminal.progress("Indexing", waiting) as progress:
            while done := database.write(lambda tx: tx.search.catch_up(_AT_ONCE)):
                progress.advance(done)
    except (StoreFull, StoreUnavailable) as error:
        terminal.note(f"{waiting} messages are not indexed and may not be found: {error}")
