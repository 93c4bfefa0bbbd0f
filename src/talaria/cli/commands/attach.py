"""`talaria attach`: watch a session of another surface, send messages, take it over."""

import argparse
import sys

from talaria.cli.parser import add_completion
from talaria.cli.services import Services


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options."""
    parser.epilog = (
        "While attached, what you type is sent to the conversation. /stop, /steer TEXT, /take "
        "and /detach work; Ctrl-D leaves."
    )
    session = parser.add_argument("session", metavar="SESSION", help="id, title or part of the title")
    add_completion(session, "sessions")
    parser.add_argument("--json", action="store_true", help="print events, one JSON object per line")
    parser.add_argument(
        "--plain", action="store_true", help="plain lines of text, for screen readers and simple terminals"
    )


def run(arguments: argparse.Namespace, services: Services) -> int:
    """Watch until the user leaves; if they took over the session, continue it here."""
    if arguments.json:
        from talaria.cli.chat.attach_plain import print_events  # noqa: PLC0415 (loaded when it runs: needs asyncio)

        return print_events(arguments, services)
    plain = _is_plain(arguments, services)
    if plain:
        from talaria.cli.chat.attach_plain import watch_in_plain_terminal  # noqa: PLC0415 (loaded when it runs: needs asyncio)

        taken = watch_in_plain_terminal(arguments, services)
    else:
        from talaria.cli.chat.tui.attach import watch_live  # noqa: PLC0415 (loaded when it runs: needs an editor)

        taken = watch_live(arguments, services)
    if not taken:
        return 0
    chat = argparse.Namespace(resume=taken, latest=False, model="", image=[], json=False, plain=plain, plan=False)
    if plain:
        from talaria.cli.chat.plain import open_plain_chat  # noqa: PLC0415 (loaded when the session is taken over)

        return open_plain_chat(chat, services)
    from talaria.cli.chat.tui.start import open_live_chat  # noqa: PLC0415 (loaded when the session is taken over)

    return open_live_chat(chat, services)


def _is_plain(arguments: argparse.Namespace, services: Services) -> bool:
    dumb = services.environment.get("TERM", "dumb") in {"", "dumb"}
    piped = not (sys.stdin.isatty() and sys.stdout.isatty())
    return arguments.plain or dumb or piped or services.settings().cli.plain
