"""The entry point: answers the short questions itself and loads the rest only when it is asked for."""

import gc
import os
import sys
from collections.abc import Sequence

from talaria.app.overview import overview, version
from talaria.app.subcommands import load

REFUSED = 1
INTERRUPTED = 130

_OBJECTS_BETWEEN_COLLECTIONS = 100_000  # more than `talaria chat -q` makes


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code: 0 done, 1 failed, 2 misused, 130 interrupted."""
    words = list(sys.argv[1:] if argv is None else argv)
    _open_closed_streams()
    try:
        code = _answer(words, own_process=argv is None)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 -- the last stop: whoever typed this gets a sentence, not a traceback
        explained: int = load("talaria.app.failures").explain(error, debug="--debug" in words)
        return explained
    return code


def _open_closed_streams() -> None:
    """Fill in for streams this process was started without, before a database is opened under the number of one."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))


def _answer(words: list[str], *, own_process: bool) -> int:
    match words:
        case ["-h" | "--help" | "help"]:
            sys.stdout.write(overview() + "\n")
        case ["-V" | "--version"]:
            sys.stdout.write(version() + "\n")
        case _:
            return _guarded(words, own_process=own_process)
    return 0


def _guarded(words: list[str], *, own_process: bool) -> int:
    """Run a subcommand unless a tool of the agent has started it and must not; see docs/adr/0026."""
    guard = load("talaria.app.process_guard")
    refused: str = guard.refusal(words)
    if refused:
        sys.stderr.write(f"talaria: {refused}\n")
        return REFUSED
    if own_process:
        guard.prepare(words)
    return _run(words)


def _run(words: list[str]) -> int:
    """Run a subcommand, looking for garbage seldom, and not at all on the way out.

    What a command imports stays until it ends. At Python's own pace those objects are searched again and again,
    once more on exit: a fourth of the time of `talaria profile list`.
    """
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    _import_msgspec()
    try:
        code: int = load("talaria.app.running").run(words)
        return code
    finally:
        gc.freeze()


def _import_msgspec() -> None:
    """Import msgspec without typing_extensions, from which it takes what `typing` itself has since Python 3.11.

    That package brings inspect and ast along: a tenth of the time of `talaria sessions list`.
    """
    if "msgspec" in sys.modules or "typing_extensions" in sys.modules:
        return
    sys.modules["typing_extensions"] = None  # type: ignore[assignment]  # documented: importing it fails
    try:
        load("msgspec")
    finally:
        del sys.modules["typing_extensions"]
