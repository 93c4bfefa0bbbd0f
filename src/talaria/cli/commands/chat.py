"""`talaria chat` and `talaria attach`: chat with the agent, ask one question, or watch a session of another surface."""

import argparse
import sys
from pathlib import Path

from talaria.cli.parser import add_completion
from talaria.cli.services import Services
from talaria.core.errors import Refused

_MEGABYTE = 1_000_000
_MAX_BYTES = 32 * _MEGABYTE  # more than the context of any model
_EPILOG = """\
  talaria "What is new?"
  talaria chat -c And in short?
  git diff | talaria -q "Review this"
  talaria "Explain @notes.md"
"""


class ChatCommand:
    """`talaria chat`: chat with the agent, or ask one question."""

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        """Describe the options."""
        parser.epilog = _EPILOG
        parser.add_argument("question", metavar="QUESTION", nargs="*", help="the question; quotes are optional")
        parser.add_argument("-q", "--query", metavar="TEXT", help="ask this, print the answer and exit")
        add_completion(
            parser.add_argument("-r", "--resume", metavar="SESSION", default="", help="continue this conversation"),
            "sessions",
        )
        parser.add_argument(
            "-c", "--continue", dest="latest", action="store_true", help="continue the terminal's latest conversation"
        )
        parser.add_argument(
            "-m", "--model", metavar="MODEL", default="", help="use this model: MODEL or PROVIDER:MODEL"
        )
        add_completion(
            parser.add_argument(
                "-i",
                "--image",
                metavar="FILE",
                type=Path,
                action="append",
                default=[],
                help="send this image with the question",
            ),
            "files",
        )
        parser.add_argument(
            "--plan", action="store_true", help="plan first: a new conversation only reads until you approve its plan"
        )
        parser.add_argument("--json", action="store_true", help="print events, one JSON object per line")
        parser.add_argument(
            "--plain", action="store_true", help="plain lines of text, for screen readers and simple terminals"
        )

    @staticmethod
    def run(arguments: argparse.Namespace, services: Services) -> int:
        """Run the chat or a one-shot question and return the exit code."""
        arguments.plan = arguments.plan or services.settings().cli.plan
        typed = _join_question(arguments)
        piped = "" if sys.stdin.isatty() else _read_input()
        if typed or piped:
            from talaria.cli.chat.one_shot import ask_once  # noqa: PLC0415 (loaded for a question: needs asyncio)

            return ask_once(arguments, services, typed, piped)
        if not sys.stdin.isatty():
            raise Refused('No question was given. Ask one, for example `talaria "What is new?"`, or pipe it in.')
        if not services.profile.exists and services.terminal.interactive:
            from talaria.cli.first_run import offer_built_in_model  # noqa: PLC0415 (loaded for the first chat)

            offer_built_in_model(services)
        if _is_plain_chat(arguments, services):
            from talaria.cli.chat.plain import open_plain_chat  # noqa: PLC0415 (loaded for a plain chat: needs asyncio)

            return open_plain_chat(arguments, services)
        from talaria.cli.chat.tui.start import open_live_chat  # noqa: PLC0415 (loaded for a live chat: needs an editor)

        return open_live_chat(arguments, services)


class AttachCommand:
    """`talaria attach`: watch a session of another surface, send messages, take it over."""

    @staticmethod
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

    @staticmethod
    def run(arguments: argparse.Namespace, services: Services) -> int:
        """Watch until the user leaves; if they took over the session, continue it here."""
        if arguments.json:
            from talaria.cli.chat.attach import print_events  # noqa: PLC0415 (loaded when it runs: needs asyncio)

            return print_events(arguments, services)
        plain = _is_plain_view(arguments, services)
        if plain:
            from talaria.cli.chat.attach import watch_in_plain_terminal  # noqa: PLC0415 (loaded when it runs: needs asyncio)

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


def _is_plain_view(arguments: argparse.Namespace, services: Services) -> bool:
    dumb = services.environment.get("TERM", "dumb") in {"", "dumb"}
    piped = not (sys.stdin.isatty() and sys.stdout.isatty())
    return arguments.plain or dumb or piped or services.settings().cli.plain


def _join_question(arguments: argparse.Namespace) -> str:
    """Return the question from the command line, with invalid UTF-8 replaced."""
    typed = "\n\n".join(part for part in (arguments.query or "", " ".join(arguments.question)) if part)
    return typed.encode(errors="surrogateescape").decode(errors="replace")


def _read_input() -> str:
    """Return piped input, with invalid UTF-8 replaced."""
    raw = sys.stdin.buffer.read(_MAX_BYTES + 1)
    if len(raw) > _MAX_BYTES:
        raise Refused(
            f"The input is larger than {_MAX_BYTES // _MEGABYTE} MB. Save it to a file and give "
            "the path instead: the agent reads the parts it needs."
        )
    return raw.decode(errors="replace").strip()


def _is_plain_chat(arguments: argparse.Namespace, services: Services) -> bool:
    """Return whether to use the plain chat: on request, or because the terminal supports nothing else."""
    if arguments.json:
        raise Refused("`--json` needs a question: give it as an argument, with -q, or pipe it in.")
    dumb = services.environment.get("TERM", "dumb") in {"", "dumb"}
    return arguments.plain or dumb or not sys.stdout.isatty() or services.settings().cli.plain
