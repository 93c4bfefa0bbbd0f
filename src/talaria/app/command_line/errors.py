"""Error messages and exit codes of failed commands."""

import errno
import os
import sys
import traceback

from talaria.cli.terminal_text import wrap
from talaria.core.errors import TalariaError

FAILED = 1
BROKEN_PIPE = 141  # as a shell reports a program ended by SIGPIPE


def report_error(error: Exception, *, debug: bool) -> int:
    """Print an error to stderr, with the traceback only if ``debug``, and return the exit code."""
    _flush_output()
    if isinstance(error, BrokenPipeError):
        return BROKEN_PIPE
    if debug:
        traceback.print_exception(error)
    sys.stderr.write(f"{_wrap_for_terminal(f'talaria: {_describe(error)}')}\n")
    return FAILED


def _describe(error: Exception) -> str:
    match error:
        case TalariaError():
            return error.for_owner
        case OSError(errno=errno.ENOSPC | errno.EDQUOT):
            return f"The disk is full{_format_location(error)}. Free some space and try again."
        case OSError(errno=errno.EACCES | errno.EPERM | errno.EROFS, strerror=str(reason)):
            return f"{reason}{_format_location(error)}. Check its owner and permissions."
        case OSError(strerror=str(reason)):
            return f"{reason}{_format_location(error)}."
        case _:
            kind = type(error).__name__
            return (
                f"Unexpected error ({kind}: {error}). Run it again with --debug for the traceback, and please "
                "report it."
            )


def _wrap_for_terminal(text: str) -> str:
    """Wrap the text at words if stderr is a terminal."""
    try:
        return wrap(text, os.get_terminal_size(sys.stderr.fileno()).columns or 80)
    except (OSError, ValueError):  # no terminal
        return text


def _format_location(error: OSError) -> str:
    return f" at {error.filename}" if error.filename else ""


def _flush_output() -> None:
    """Flush standard output; if it is broken, keep the interpreter from failing again at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
