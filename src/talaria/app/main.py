"""Entry point: handles help and version itself and imports the rest only when needed."""

import gc
import os
import sys
from collections.abc import Sequence

from talaria.app.command_line.subcommands import format_overview, format_version

REFUSED = 1
INTERRUPTED = 130

_OBJECTS_BETWEEN_COLLECTIONS = 100_000  # more than `talaria chat -q` creates


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code: 0 done, 1 failed, 2 misused, 130 interrupted."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    _open_closed_streams()
    try:
        code = _dispatch(arguments, own_process=argv is None)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 -- last resort: the user gets a message, not a traceback
        from talaria.app.command_line.errors import report_error  # noqa: PLC0415 (loaded when a command fails)

        return report_error(error, debug="--debug" in arguments)
    return code


def _open_closed_streams() -> None:
    """Open the null device for missing standard streams, so that no database gets their file descriptors."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))


def _dispatch(arguments: list[str], *, own_process: bool) -> int:
    match arguments:
        case ["-h" | "--help" | "help"]:
            sys.stdout.write(format_overview() + "\n")
        case ["-V" | "--version"]:
            sys.stdout.write(format_version() + "\n")
        case _:
            return _run_guarded(arguments, own_process=own_process)
    return 0


def _run_guarded(arguments: list[str], *, own_process: bool) -> int:
    """Run a subcommand, unless a tool of the agent started it and it is not allowed to; see docs/adr/0026."""
    from talaria.app.process_guard import find_refusal, protect_process  # noqa: PLC0415 (loaded for a subcommand)

    reason = find_refusal(arguments)
    if reason:
        sys.stderr.write(f"talaria: {reason}\n")
        return REFUSED
    if own_process:
        protect_process(arguments)
    return _run(arguments)


def _run(arguments: list[str]) -> int:
    """Run a subcommand with rare garbage collection, and none on exit.

    Imported objects live until the command ends. With Python's default threshold they are scanned repeatedly and once
    more on exit: a quarter of the time of `talaria profile list`.
    """
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    _import_msgspec()
    try:
        from talaria.app.command_line.dispatch import run  # noqa: PLC0415 (loaded for a subcommand)

        return run(arguments)
    finally:
        gc.freeze()


def _import_msgspec() -> None:
    """Import msgspec without typing_extensions, whose contents it needs are in `typing` since Python 3.11.

    That package imports inspect and ast: a tenth of the time of `talaria sessions list`.
    """
    if "msgspec" in sys.modules or "typing_extensions" in sys.modules:
        return
    sys.modules["typing_extensions"] = None  # type: ignore[assignment]  # documented: importing it fails
    try:
        import msgspec  # noqa: F401, PLC0415 (loaded for a subcommand)
    finally:
        del sys.modules["typing_extensions"]
