"""Commands of one's own: Markdown files that say something to the agent, or run something in a shell."""

import difflib
import re
import signal
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from msgspec import structs

from talaria.commands.command import Command, Errand, Run
from talaria.commands.markdown import shortened
from talaria.commands.registry import REGISTRY
from talaria.commands.words import fill_in, split_words
from talaria.core.errors import Refused
from talaria.core.front_matter import split_front_matter
from talaria.core.messages import Text
from talaria.sessions.transcripts import fenced

SECONDS = 120.0
_FIELDS = ("help", "hint", "aliases", "run")
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_MOST_BYTES = 100_000
_HELP_LENGTH = 80


def load_custom(folders: Sequence[Path]) -> tuple[tuple[Command, ...], tuple[str, ...]]:
    """Return the commands in these folders, and a sentence for each file with which something is wrong.

    The first of a name counts. Names of built-in commands stay with those.
    """
    taken = {name: "a built-in command" for command in REGISTRY for name in command.names}
    commands: list[Command] = []
    remarks: list[str] = []
    for file in _files(folders):
        try:
            command, doubts = _read(file)
            command, clashes = _named_apart(command, taken)
        except Refused as error:
            remarks.append(f"{file}: {error}")
            continue
        remarks += [f"{file}: {doubt}" for doubt in (*doubts, *clashes)]
        taken |= dict.fromkeys(command.names, str(file))
        commands.append(command)
    return tuple(commands), tuple(remarks)


def _files(folders: Iterable[Path]) -> list[Path]:
    return [file for folder in folders for file in sorted(folder.glob("*.md"))]


def _read(file: Path) -> tuple[Command, list[str]]:
    """Return the command in a file and what is doubtful about it, or raise `Refused`."""
    name = file.stem.lower()
    if not _NAME.fullmatch(name):
        raise Refused("its name is none for a command: letters, digits, `-` and `_` make one.")
    text = _text(file)
    fields, body = split_front_matter(text)
    if not fields and text.lstrip("\ufeff").startswith("---\n"):
        raise Refused("its first lines have no end: a line `---` is missing.")
    line = fields.get("run", "")
    if not line and ("run" in fields or not body):
        raise Refused("it neither says nor runs anything.")
    run: Run = partial(_run_line, line) if line else partial(_say, body)
    command = Command(
        name=name,
        category="Your own",
        help=fields.get("help") or _first_line(f"Run `{line}`" if line else body),
        hint=fields.get("hint", ""),
        aliases=tuple(re.findall(r"[a-z0-9][a-z0-9_-]*", fields.get("aliases", "").lower())),
        who="owner" if line else "anyone",
        run=run,
    )
    return command, [_unknown(field) for field in fields if field not in _FIELDS]


def _text(file: Path) -> str:
    if not file.is_file():
        raise Refused("it is not a file.")
    try:
        with file.open("rb") as opened:
            raw = opened.read(_MOST_BYTES + 1)
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Refused("it is not a text in UTF-8.") from error
    except OSError as error:
        raise Refused(f"it cannot be read: {error.strerror}.") from error
    if len(raw) > _MOST_BYTES:
        raise Refused(f"it is longer than {_MOST_BYTES:,} bytes.")
    return text.replace("\r\n", "\n")


def _named_apart(command: Command, taken: dict[str, str]) -> tuple[Command, list[str]]:
    """Return the command without aliases that others have; raises `Refused` where its name is another's."""
    if command.name in taken:
        raise Refused(f"`/{command.name}` is {_owner(taken[command.name])} already; give the file another name.")
    free = tuple(alias for alias in dict.fromkeys(command.aliases) if alias not in taken and alias != command.name)
    clashes = [f"`/{alias}` is {_owner(taken[alias])} already." for alias in command.aliases if alias in taken]
    return structs.replace(command, aliases=free), clashes


def _owner(owner: str) -> str:
    return owner if owner.startswith("a ") else f"a command of {owner}"


def _unknown(field: str) -> str:
    near = difflib.get_close_matches(field, _FIELDS, n=1)
    meant = f"did you mean `{near[0]}:`?" if near else f"there are {', '.join(f'`{one}:`' for one in _FIELDS)}."
    return f"`{field}:` means nothing here; {meant}"


def _first_line(text: str) -> str:
    return shortened(text.partition("\n")[0].strip("# "), _HELP_LENGTH)


async def _say(body: str, errand: Errand) -> None:
    await errand.seat.put(Text(fill_in(body, errand.words)), sender=errand.sender)


async def _run_line(line: str, errand: Errand) -> None:
    workspace = errand.seat.chat.workspace
    ran = await errand.house.shell.run(line, split_words(errand.words), workspace, seconds=SECONDS)
    parts = [fenced(ran.output)] if ran.output.strip() else []
    if ran.code is None:
        parts.append(f"It was stopped after {SECONDS:.0f} s.")
    elif ran.code:
        parts.append(f"Exit code {ran.code}." if ran.code > 0 else f"Ended by {signal.Signals(-ran.code).name}.")
    errand.place.show("\n\n".join(parts) or "Done; it printed nothing.")
