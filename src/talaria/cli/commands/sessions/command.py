"""`talaria sessions`: list, show, search, rename, archive, move, export, delete and prune sessions."""

import argparse
from collections.abc import Callable
from typing import Any, get_args

from talaria.cli.parser import add_completion
from talaria.cli.services import Services
from talaria.cli.session_lookup import parse_span, parse_when
from talaria.core.messages import Role

_MAX_COUNT = 1_000_000
_SEARCH = """\
All words must occur. "Quotes" match a phrase, word* matches words that start
that way, -word excludes, OR matches either. Put -- before words that look like options:
  talaria sessions search --since 7d -- '"night train"' Rom* -plane
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the actions."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    parser.set_defaults(action="list")
    _add_list_arguments(actions.add_parser("list", help="list sessions, most recent first"))
    _add_show_arguments(actions.add_parser("show", help="show a session and its last messages"))
    _add_search_arguments(actions.add_parser("search", help="search messages", epilog=_SEARCH))
    _add_change_parsers(actions)
    _add_export_arguments(actions.add_parser("export", help="write sessions as Markdown, JSON or JSON lines"))
    delete = actions.add_parser("delete", help="delete sessions permanently")
    _add_sessions_argument(delete)
    delete.add_argument("--yes", action="store_true", help="don't ask for confirmation")
    _add_prune_arguments(actions.add_parser("prune", help="delete sessions that haven't been used for a long time"))


def run(arguments: argparse.Namespace, services: Services) -> int:
    """Do what was asked and return the exit code."""
    _find_action(arguments.action)(arguments, services)
    return 0


def _find_action(name: str) -> Callable[[argparse.Namespace, Services], None]:
    """Return the function of an action; loads only its module, so that `list` stays fast."""
    match name:
        case "list":
            from talaria.cli.commands.sessions.show import list_sessions  # noqa: PLC0415 (loaded with its action)

            return list_sessions
        case "show":
            from talaria.cli.commands.sessions.show import show_session  # noqa: PLC0415 (loaded with its action)

            return show_session
        case "search":
            from talaria.cli.commands.sessions.show import search_messages  # noqa: PLC0415 (loaded with its action)

            return search_messages
        case "export":
            from talaria.cli.commands.sessions.show import export_sessions  # noqa: PLC0415 (loaded with its action)

            return export_sessions
        case _:
            from talaria.cli.commands.sessions import edit  # noqa: PLC0415 (loaded with its action)

            changes = {
                "rename": edit.rename_session,
                "archive": edit.archive_sessions,
                "unarchive": edit.unarchive_sessions,
                "move": edit.move_session,
                "delete": edit.delete_sessions,
                "prune": edit.prune_sessions,
            }
            return changes[name]


def _add_list_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--matching",
        metavar="TEXT",
        default="",
        help="only sessions with this id, or with this text in the title (or first message)",
    )
    _add_source_option(parser)
    archived = parser.add_mutually_exclusive_group()
    archived.add_argument("--all", action="store_true", help="include archived sessions")
    archived.add_argument("--archived", action="store_true", help="only archived sessions")
    parser.add_argument("--limit", metavar="N", type=_parse_count, default=50, help="at most N (default: 50)")
    _add_json_option(parser)


def _add_show_arguments(parser: argparse.ArgumentParser) -> None:
    _add_session_argument(parser)
    amount = parser.add_mutually_exclusive_group()
    amount.add_argument("--last", metavar="N", type=_parse_count, default=20, help="the last N messages (default: 20)")
    amount.add_argument("--all", action="store_true", help="every message")
    _add_json_option(parser)


def _add_search_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", metavar="WORD", nargs="+", help="words to search for")
    _add_source_option(parser)
    parser.add_argument("--role", choices=get_args(Role), help="only messages of this role")
    session = parser.add_argument("--session", metavar="SESSION", help="only in this session")
    add_completion(session, "sessions")
    parser.add_argument(
        "--since", metavar="WHEN", type=parse_when, help="after this time, for example 7d, 12h or 2026-03-01"
    )
    parser.add_argument("--until", metavar="WHEN", type=parse_when, help="before this time")
    parser.add_argument("--limit", metavar="N", type=_parse_count, default=20, help="at most N (default: 20)")
    _add_json_option(parser)


def _add_change_parsers(actions: Any) -> None:
    rename = actions.add_parser("rename", help="give a session a title")
    _add_session_argument(rename)
    rename.add_argument("title", metavar="TITLE", nargs="+", help='the new title; "" removes it')
    _add_sessions_argument(actions.add_parser("archive", help="hide sessions from lists, without deleting anything"))
    _add_sessions_argument(actions.add_parser("unarchive", help="restore archived sessions to the lists"))
    move = actions.add_parser("move", help="move a session to a chat; needs a running gateway")
    _add_session_argument(move)
    move.add_argument(
        "target", metavar="TARGET", help="a network (its home chat) or NETWORK:CHAT, as for `talaria send`"
    )
    move.add_argument("--now", action="store_true", help="even during a turn; the turn moves too")
    move.add_argument(
        "--timeout", type=float, default=60.0, metavar="SECONDS", help="seconds to wait for it (default 60)"
    )
    _add_json_option(move)


def _add_export_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "JSON and JSON lines contain everything; Markdown is for reading."
    session = parser.add_argument("session", metavar="SESSION", nargs="?", help="id or title")
    add_completion(session, "sessions")
    parser.add_argument("--all", action="store_true", help="all sessions, one file each")
    parser.add_argument("--format", choices=("markdown", "json", "jsonl"), default="markdown", help="output format")
    output = parser.add_argument(
        "--output", "-o", metavar="PATH", default="-", help="file or folder to write (default: print)"
    )
    add_completion(output, "files")
    parser.add_argument("--force", action="store_true", help="overwrite existing files")


def _add_prune_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "Titled and archived sessions are kept unless you include them."
    parser.add_argument(
        "--older-than",
        metavar="AGE",
        type=parse_span,
        help="age in days, or for example 12h, 7d, 2w (default: sessions.prune_after_days; with --empty: 1d)",
    )
    _add_source_option(parser)
    parser.add_argument("--empty", action="store_true", help="only sessions without messages")
    parser.add_argument("--include-titled", action="store_true", help="include titled sessions")
    parser.add_argument("--include-archived", action="store_true", help="include archived sessions")
    parser.add_argument("--dry-run", action="store_true", help="only list what would be deleted")
    parser.add_argument("--yes", action="store_true", help="don't ask for confirmation")
    _add_json_option(parser)


def _add_session_argument(parser: argparse.ArgumentParser) -> None:
    add_completion(parser.add_argument("session", metavar="SESSION", help="id, title or part of the title"), "sessions")


def _add_sessions_argument(parser: argparse.ArgumentParser) -> None:
    add_completion(parser.add_argument("sessions", metavar="SESSION", nargs="+", help="ids or titles"), "sessions")


def _add_source_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--source", default="", help="only from this source, for example cli or telegram")


def _add_json_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def _parse_count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(_MAX_COUNT)) and 1 <= int(text) <= _MAX_COUNT):
        raise argparse.ArgumentTypeError(f"`{text}` isn't a number from 1 to {_MAX_COUNT}")
    return int(text)
