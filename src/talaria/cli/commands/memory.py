"""`talaria memory`: list, search, change and export what the agent remembers."""

import argparse
import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack

import msgspec

from talaria.cli.services import Services
from talaria.contracts.memory import MEMORY_KINDS, MemoryChange, MemoryItem, MemoryKind
from talaria.contracts.stores.sessions import Viewer
from talaria.core.errors import Ambiguous, NotFound, Refused

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
    listing.add_argument(
        "query", metavar="QUERY", nargs="?", default="", help="text to search for, by words and by meaning"
    )
    show = actions.add_parser("show", help="show an entry with its time and source")
    edit = actions.add_parser("edit", help="replace the text of an entry")
    forget = actions.add_parser("forget", help="remove an entry")
    for action in (show, edit, forget):
        action.add_argument("entry", metavar="ENTRY", help="the entry's id, or a part of its text")
    edit.add_argument("text", metavar="TEXT", help="the new text")
    add = actions.add_parser("add", help="add an entry")
    add.add_argument("text", metavar="TEXT", help="the text")
    add.add_argument(
        "--kind", choices=MEMORY_KINDS, default="user", help="about the person (user, the default) or the work (memory)"
    )
    export = actions.add_parser("export", help="print all entries as JSON")
    consolidate = actions.add_parser("consolidate", help="let the model shorten a full memory; asks first")
    consolidate.add_argument("--yes", action="store_true", help="don't ask for confirmation")
    undo = actions.add_parser("undo", help="undo the last consolidation")
    undo.add_argument("--force", action="store_true", help="also if the memory was changed since; loses those changes")
    for action in (consolidate, undo):
        action.add_argument("--kind", choices=MEMORY_KINDS, help="which memory")
    for action in (listing, show, edit, forget, add, export, consolidate, undo):
        action.add_argument("--person", default="", metavar="NAME", help="memory of another person")
        action.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace, services: Services) -> int:
    """Do what was asked and return the exit code."""
    viewer = Viewer(arguments.person)
    if arguments.action in {"consolidate", "undo"}:
        return asyncio.run(_rewrite(arguments, services))
    match arguments.action:
        case "list":
            _list(arguments, services, viewer)
        case "export":
            services.terminal.json([_as_data(kind, one) for kind, one in _iterate_entries(services, viewer)])
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


async def _rewrite(arguments: argparse.Namespace, services: Services) -> int:
    """Consolidate a memory or undo that; return 1 if the person declines."""
    async with AsyncExitStack() as stack:
        knowledge = services.load_application()(stack).knowledge
        consolidator = knowledge.consolidator(Viewer(arguments.person))
        if arguments.action == "undo":
            _show_change(arguments, services, await consolidator.undo(arguments.kind, force=arguments.force))
            return 0
        if not arguments.yes and not services.terminal.interactive:
            raise Refused("There is no terminal to ask for confirmation. Add --yes to consolidate without asking.")
        change = await consolidator.propose(arguments.kind)
        _show_change(arguments, services, change)
        if not arguments.yes and not services.terminal.confirm("Replace the entries?"):
            services.terminal.note("Nothing was changed.")
            return 1
        await consolidator.apply(change)
        if not arguments.json:
            services.terminal.note("Consolidated. `talaria memory undo` undoes it.")
    return 0


def _show_change(arguments: argparse.Namespace, services: Services, change: MemoryChange) -> None:
    if arguments.json:
        texts = {"before": [one.text for one in change.before], "after": [one.text for one in change.after]}
        services.terminal.json({"kind": change.kind, **texts, "summary": change.summary, "diff": change.diff})
        return
    services.terminal.line(change.summary)
    services.terminal.line(change.diff)


def _list(arguments: argparse.Namespace, services: Services, viewer: Viewer) -> None:
    entries = list(_iterate_entries(services, viewer))
    if arguments.query:
        found = [one.id for one in asyncio.run(services.files().memory.find(arguments.query, viewer))]
        entries = sorted((pair for pair in entries if pair[1].id in found), key=lambda pair: found.index(pair[1].id))
    if arguments.json:
        services.terminal.json([_as_data(kind, one) for kind, one in entries])
    elif entries:
        rows = [(one.id, kind, _format_time(one), one.surface, _cut(one.text)) for kind, one in entries]
        services.terminal.table(("ID", "KIND", "WRITTEN", "SOURCE", "TEXT"), rows)
    elif services.terminal.interactive:
        services.terminal.note("No entry fits." if arguments.query else "Nothing is remembered yet.")


def _report(arguments: argparse.Namespace, services: Services, kind: MemoryKind, entry: MemoryItem) -> None:
    if arguments.json:
        services.terminal.json(_as_data(kind, entry))
        return
    session = f", session {entry.session}" if entry.session else ""
    services.terminal.line(
        f"{entry.id} ({kind}), written {_format_time(entry) or 'earlier'}, source {entry.surface}{session}"
    )
    services.terminal.line(entry.text)


def _iterate_entries(services: Services, viewer: Viewer) -> Iterator[tuple[MemoryKind, MemoryItem]]:
    for book in services.files().memory.books(viewer):
        for entry in book.entries:
            yield book.kind, entry


def _find(services: Services, viewer: Viewer, part: str) -> tuple[MemoryKind, MemoryItem]:
    """Return the one entry with this id or text; raises `NotFound` or `Ambiguous`."""
    entries = list(_iterate_entries(services, viewer))
    exact = [pair for pair in entries if part in (pair[1].id, pair[1].text)]
    found = exact[:1] or [pair for pair in entries if part.casefold() in pair[1].text.casefold()]
    if not found:
        raise NotFound(f"No memory entry contains `{part}`. `talaria memory list` shows all of them.")
    if len(found) > 1:
        raise Ambiguous(f"{len(found)} entries contain `{part}`. Use an id from `talaria memory list`.")
    return found[0]


def _format_time(entry: MemoryItem) -> str:
    return f"{entry.at.astimezone():%Y-%m-%d %H:%M}" if entry.at else ""


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"


def _as_data(kind: MemoryKind, entry: MemoryItem) -> dict[str, object]:
    return {"kind": kind, **msgspec.to_builtins(entry)}
