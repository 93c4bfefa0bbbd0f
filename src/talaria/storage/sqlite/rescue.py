"""Copying of a deleted store file that a process still has open."""

import logging
import os
from contextlib import closing
from pathlib import Path

import apsw

from talaria.core.ids import new_id

log = logging.getLogger(__name__)

_RESCUED = "Its contents were saved to {copy}. "
_LOST = "Its contents couldn't be saved ({error}) and are lost when this program stops: back them up first. "


def rescue(path: Path, raw: apsw.Connection) -> str:
    """Copy the connection's database to a new file next to ``path`` and return a sentence for the user.

    Errors are reported in the sentence, not raised.
    """
    copy = path.with_name(f"{path.name}.rescued-{new_id()}")
    try:
        os.close(os.open(copy, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        with closing(apsw.Connection(str(copy))) as target, target.backup("main", raw, "main") as backup:
            backup.step()
        sentence = _RESCUED.format(copy=copy)
    except (OSError, apsw.Error) as error:
        copy.unlink(missing_ok=True)
        sentence = _LOST.format(error=error)
    log.critical("%s was deleted while it was in use. %s", path, sentence.rstrip())
    return sentence
