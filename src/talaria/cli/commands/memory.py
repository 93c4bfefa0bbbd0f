"""`talaria memory`: list, search, change and export what the agent remembers."""

import argparse
import asyncio
from collections.abc import Iterator

import msgspec

from talaria.cli.services import Services
from talaria.commands.views import MemoryItem
from talaria.contracts.memory import MEMORY_KINDS, MemoryKind
from talaria.contracts.stores.sessions import Viewer
from talaria.core.errors import Ambiguous, NotFound

_EPILOG = """\
Entries of kind memory are notes of the agent, those of kind user are about the
person. New conversations know a change; open ones may still know the old text.
"""
_LONGEST = 80


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the actions."""
    parser.epilog = _EPILOG
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    parser.set_defaults(action="list", json=False, person="", query="")
    listing = actions.add_parser("list", help="list entries, or search them")
    listing.add_argument("query", metavar="QUERY", nargs="?", default="", help="words or a meaning to search for")
    show = actions.add_parser("show", help="show an entry with its time and source")
    edit = actions.add_parser("edit", help="replace the text of an entry")
    forget = actions.add_parser("forget", help="remove an entry")
    for action in (show, edit, forget):
        action.add_argument("entry", metavar="ENTRY", help="the entry's id, or a part of its text")
    edit.add_argument("text", metavar="TEXT", help="the new text")
    add = actions.add_parser("add", help="add an entry")
    add.add_argument("text", metavar="TEXT", help="the text")
    add.add_argument("--kind", choices=MEMORY_KINDS, default="user", help="user (the default): about the person")
    export = actions.add_parser("export", help="print all entries as JSON")
    for action in (listing, show, edit, forget, add, export):
        action.add_argument("--person", default="", metavar="NAME", help="memory of another person")
        action.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace, services: Services) -> int:
    """Do what was asked and return the exit code."""
    viewer = Viewer(arguments.person)
    match arguments.action:
        case "list":
            _list(arguments, services, viewer)
        case "export":
            services.terminal.json([_as_data(kind, one) for kind, one in _entries(services, viewer)])
        case "show":
            _report(arguments, services, *_find(services, viewer, arguments.entry))
        case "add":
            services.files().memory.edit(viewer, arguments.kind, "", arguments.text)
            _report(arguments, services, *_find(services, viewer, " ".join(arguments.text.split())))
        case "edit":
            kind, entry = _find(services, viewer, arguments.entry)
            services.files().memory.edit(viewer, kind, entry.id, arguments.text)
            _report(arguments, services, *_find(services, viewer, " ".join(arguments.text.split())))
        case "forget":
            kind, entry = _find(services, viewer, arguments.entry)
            services.files().memory.edit(viewer, kind, entry.id, "")
            if arguments.json:
                services.terminal.json(_as_data(kind, entry))
            else:
                services.terminal.line(f"Forgotten: {entry.text}")
    return 0


def _list(arguments: argparse.Namespace, services: Services, viewer: Viewer) -> None:
    entries = list(_entries(services, viewer))
    if arguments.query:
        found = [one.id for one in asyncio.run(services.files().memory.find(arguments.query, viewer))]
        entries = sorted((pair for pair in entries if pair[1].id in found), key=lambda pair: found.index(pair[1].id))
    if arguments.json:
        services.terminal.json([_as_data(kind, one) for kind, one in entries])
    elif entries:
        rows = [(one.id, kind, _when(one), one.surface, _cut(one.text)) for kind, one in entries]
        services.terminal.table(("ID", "KIND", "WRITTEN", "SOURCE", "TEXT"), rows)
    elif services.terminal.interactive:
        services.terminal.note("No entry fits." if arguments.query else "Nothing is remembered yet.")


def _report(arguments: argparse.Namespace, services: Services, kind: MemoryKind, entry: MemoryItem) -> None:
    if arguments.json:
        services.terminal.json(_as_data(kind, entry))
        return
    session = f", session {entry.session}" if entry.session else ""
    services.terminal.line(f"{entry.id} ({kind}), written {_when(entry) or 'earlier'}, source {entry.surface}{session}")
    services.terminal.line(entry.text)


def _entries(services: Services, viewer: Viewer) -> Iterator[tuple[MemoryKind, MemoryItem]]:
    for book in services.files().memory.books(viewer):
        for entry in book.entries:
            yield book.kind, entry


def _find(services: Services, viewer: Viewer, part: str) -> tuple[MemoryKind, MemoryItem]:
    """Return the one entry with this id or text; raises `NotFound` or `Ambiguous`."""
    entries = list(_entries(services, viewer))
    exact = [pair for pair in entries if part in (pair[1].id, pair[1].text)]
    found = exact[:1] or [pair for pair in entries if part.casefold() in pair[1].text.casefold()]
    if not found:
        raise NotFound(f"No memory entry contains `{part}`. `talaria memory list` shows all of them.")
    if len(found) > 1:
        raise Ambiguous(f"{len(found)} entries contain `{part}`. Use an id from `talaria memory list`.")
    return found[0]


def _when(entry: MemoryItem) -> str:
    return f"{entry.at.astimezone():%Y-%m-%d %H:%M}" if entry.at else ""


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"


def _as_data(kind: MemoryKind, entry: MemoryItem) -> dict[str, object]:
    return {"kind": kind, **msgspec.to_builtins(entry)}
