"""Turn what stopped a command into a sentence and an exit code."""

import errno
import os
import sys
import traceback

from talaria.cli.cells import wrap
from talaria.core.errors import TalariaError

FAILED = 1
NOBODY_READS = 141  # what a shell reports of a program that SIGPIPE ended


def explain(error: Exception, *, debug: bool) -> int:
    """Say on stderr what went wrong, with the traceback only where ``debug`` asks for it; return the exit code."""
    _let_go_of_output()
    if isinstance(error, BrokenPipeError):
        return NOBODY_READS
    if debug:
        traceback.print_exception(error)
    sys.stderr.write(f"{_wrapped(f'talaria: {_sentence(error)}')}\n")
    return FAILED


def _sentence(error: Exception) -> str:
    match error:
        case TalariaError():
            return error.for_owner
        case OSError(errno=errno.ENOSPC | errno.EDQUOT):
            return f"The disk is full{_at(error)}: free some space and try again."
        case OSError(errno=errno.EACCES | errno.EPERM | errno.EROFS, strerror=str(reason)):
            return f"{reason}{_at(error)}: check who owns it and who may write there."
        case OSError(strerror=str(reason)):
            return f"{reason}{_at(error)}."
        case _:
            kind = type(error).__name__
            return f"This should not have happened ({kind}: {error}). Add --debug to see where, and report it."


def _wrapped(text: str) -> str:
    """Return the text wrapped at words where a person reads it."""
    try:
        return wrap(text, os.get_terminal_size(sys.stderr.fileno()).columns or 80)
    except (OSError, ValueError):  # no terminal
        return text


def _at(error: OSError) -> str:
    return f" at {error.filename}" if error.filename else ""


def _let_go_of_output() -> None:
    """Flush what can be written; where nothing can, keep the interpreter from trying again as it exits."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
