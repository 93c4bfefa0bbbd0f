"""`talaria sessions`: list, show, search, rename, archive, move, export, delete and prune conversations."""

import argparse
from importlib import import_module
from typing import Any, get_args

from talaria.cli.arguments import completing
from talaria.cli.services import Services
from talaria.cli.timing import parse_span, parse_when
from talaria.core.messages import Role

_MOST = 1_000_000
_SEARCH = """\
All words must occur. "Quotes" make a phrase, word* matches words that begin
like that, -word excludes, OR gives a choice. After -- nothing is read as an option:
  talaria sessions search --since 7d -- '"night train"' Rom* -plane
"""
# Each kind of action in a module of its own: `list` does not wait for what only `export` needs.
_ACTIONS = {
    "list": ("listing", "list_sessions"),
    "show": ("showing", "show_session"),
    "search": ("searching", "search_messages"),
    "rename": ("changing", "rename_session"),
    "archive": ("changing", "archive_sessions"),
    "unarchive": ("changing", "unarchive_sessions"),
    "export": ("exporting", "export_sessions"),
    "move": ("moving", "move_session"),
    "delete": ("removing", "delete_sessions"),
    "prune": ("pruning", "prune_sessions"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the actions."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    parser.set_defaults(action="list")
    _describe_list(actions.add_parser("list", help="list sessions, last used first"))
    _describe_show(actions.add_parser("show", help="show a session and its last messages"))
    _describe_search(actions.add_parser("search", help="search messages", epilog=_SEARCH))
    _describe_changes(actions)
    _describe_export(actions.add_parser("export", help="write sessions as Markdown, JSON or JSON lines"))
    delete = actions.add_parser("delete", help="delete sessions permanently")
    _take_sessions(delete)
    delete.add_argument("--yes", action="store_true", help="don't ask for confirmation")
    _describe_prune(actions.add_parser("prune", help="delete sessions that have not been used for long"))


def run(arguments: argparse.Namespace, services: Services) -> int:
    """Do what was asked and return the exit code."""
    module, function = _ACTIONS[arguments.action]
    getattr(import_module(f"talaria.cli.session_actions.{module}"), function)(arguments, services)
    return 0


def _describe_list(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--matching",
        metavar="TEXT",
        default="",
        help="only with this in the title (or first message, without a title), or this id",
    )
    _take_source(parser)
    archived = parser.add_mutually_exclusive_group()
    archived.add_argument("--all", action="store_true", help="archived ones too")
    archived.add_argument("--archived", action="store_true", help="only archived ones")
    parser.add_argument("--limit", metavar="N", type=_count, default=50, help="at most N (default: 50)")
    _take_json(parser)


def _describe_show(parser: argparse.ArgumentParser) -> None:
    _take_session(parser)
    much = parser.add_mutually_exclusive_group()
    much.add_argument("--last", metavar="N", type=_count, default=20, help="the last N messages (default: 20)")
    much.add_argument("--all", action="store_true", help="every message")
    _take_json(parser)


def _describe_search(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", metavar="WORD", nargs="+", help="the words to search for")
    _take_source(parser)
    parser.add_argument("--role", choices=get_args(Role), help="only messages of this role")
    session = parser.add_argument("--session", metavar="SESSION", help="only in this session")
    completing(session, "sessions")
    parser.add_argument(
        "--since", metavar="WHEN", type=parse_when, help="after this time, for example 7d, 12h or 2026-03-01"
    )
    parser.add_argument("--until", metavar="WHEN", type=parse_when, help="before this time")
    parser.add_argument("--limit", metavar="N", type=_count, default=20, help="at most N (default: 20)")
    _take_json(parser)


def _describe_changes(actions: Any) -> None:
    rename = actions.add_parser("rename", help="give a session a title")
    _take_session(rename)
    rename.add_argument("title", metavar="TITLE", nargs="+", help='the new title; "" removes it')
    _take_sessions(actions.add_parser("archive", help="hide sessions from lists, without deleting anything"))
    _take_sessions(actions.add_parser("unarchive", help="bring archived sessions back"))
    move = actions.add_parser("move", help="move a session to a chat; needs a running gateway")
    _take_session(move)
    move.add_argument(
        "target", metavar="TARGET", help="a network (your home there), or NETWORK:CHAT, as for `talaria send`"
    )
    move.add_argument("--now", action="store_true", help="even mid-turn; the turn moves along")
    move.add_argument(
        "--timeout", type=float, default=60.0, metavar="SECONDS", help="how long to wait for that (default 60)"
    )
    _take_json(move)


def _describe_export(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "JSON and JSON lines contain everything; Markdown is for reading."
    session = parser.add_argument("session", metavar="SESSION", nargs="?", help="its id or title")
    completing(session, "sessions")
    parser.add_argument("--all", action="store_true", help="every session, each in a file of its own")
    parser.add_argument("--format", choices=("markdown", "json", "jsonl"), default="markdown", help="how to write it")
    output = parser.add_argument(
        "--output", "-o", metavar="PATH", default="-", help="a file or folder (default: print)"
    )
    completing(output, "files")
    parser.add_argument("--force", action="store_true", help="replace files that are there")


def _describe_prune(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "Titled and archived sessions stay unless you include them."
    parser.add_argument(
        "--older-than",
        metavar="AGE",
        type=parse_span,
        help="days, or for example 12h, 7d, 2w (default: sessions.prune_after_days; with --empty: 1d)",
    )
    _take_source(parser)
    parser.add_argument("--empty", action="store_true", help="only sessions without messages")
    parser.add_argument("--include-titled", action="store_true", help="titled sessions too")
    parser.add_argument("--include-archived", action="store_true", help="archived ones too")
    parser.add_argument("--dry-run", action="store_true", help="only list what would be deleted")
    parser.add_argument("--yes", action="store_true", help="don't ask for confirmation")
    _take_json(parser)


def _take_session(parser: argparse.ArgumentParser) -> None:
    completing(parser.add_argument("session", metavar="SESSION", help="its id or title, or a part of it"), "sessions")


def _take_sessions(parser: argparse.ArgumentParser) -> None:
    completing(parser.add_argument("sessions", metavar="SESSION", nargs="+", help="their ids or titles"), "sessions")


def _take_source(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--source", default="", help="only from this source, for example cli or telegram")


def _take_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(_MOST)) and 1 <= int(text) <= _MOST):
        raise argparse.ArgumentTypeError(f"`{text}` is not a number from 1 to {_MOST}")
    return int(text)
