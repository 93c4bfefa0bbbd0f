"""The instructions an agent is given, in tiers from the most lasting to the most passing."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from talaria.core.remembered import Remembered

DEFAULT_IDENTITY = (
    "You are Talaria, a personal agent. You help the person you talk to with their files, programs and the web, through"
    " your tools. Be direct and brief. Do things rather than describe them; look before you claim; say plainly what"
    " you could not do."
)
TALKING_IDENTITY = (
    "You are Talaria, a personal agent. Here you can only talk: you have no tools. Be direct and brief, and say so when"
    " you do not know."
)
CONTEXT_FILES = (".talaria.md", "AGENTS.md", "CLAUDE.md")
_FILE_LIMIT = 20_000
_CONTEXT_LIMIT = 40_000
_INJECTED = (
    r"(?i)(ignore|disregard|forget)\s+(all\s+|any\s+)?(previous|prior|above|earlier)\s+(instructions|rules|prompts)"
    r"|do\s+not\s+tell\s+the\s+(user|person)|system\s+prompt\s+override"
    r"|curl\s[^\n]*\$\{?\w*(KEY|TOKEN|SECRET)"
)
_LEFT_OUT = "(left out: this file tries to give instructions that its reader cannot see)"
_JOINERS = "[\u200c-\u200f]"  # in use for emoji, and in Persian, Hebrew and Indian scripts
_INVISIBLE = "[\u200b\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff\U000e0000-\U000e007f]"


class Tiers(Struct, frozen=True, kw_only=True):
    """What goes into the instructions; an empty tier leaves no trace."""

    identity: str = DEFAULT_IDENTITY
    tools: str = ""
    skills: str = ""
    project: str = ""
    memory: str = ""
    surface: str = ""


def instructions(tiers: Tiers) -> str:
    """Return the tiers as one text, the lasting ones first."""
    parts = (
        ("", tiers.identity),
        ("Tools", tiers.tools),
        ("Skills", tiers.skills),
        ("About this project", tiers.project),
        ("What you remember", tiers.memory),
        ("Where you are", tiers.surface),
    )
    return "\n\n".join(f"# {title}\n{text.strip()}" if title else text.strip() for title, text in parts if text.strip())


def project_context(folder: Path) -> str:
    """Return the files that tell of a project, those nearest to the folder last, so that they have the last word.

    Looks up to the root of the repository. A file that tries to give orders behind the person's back is named
    and left out.
    """
    found: dict[str, str] = {}
    left = _CONTEXT_LIMIT
    for file in (f"{place.rstrip('/')}/{name}" for place in _upwards(str(folder)) for name in CONTEXT_FILES):
        text = _cut(_told(file), min(left, _FILE_LIMIT))
        if text and (real := os.path.realpath(file)) not in found:
            found[real] = f"## {file}\n{text}"
            left = max(left - len(text), 0)
    return "\n\n".join(reversed(found.values()))


def checked(text: str) -> str | None:
    """Return the text, or ``None`` when it holds injected orders or hidden characters."""
    if re.search(_INVISIBLE, text.removeprefix("\ufeff")) or re.search(_INJECTED, re.sub(_JOINERS, "", text)):
        return None
    return text


def _upwards(folder: str) -> Sequence[str]:
    """Return the folders up to the root of the repository; in bare strings, as every conversation begins with this."""
    places = [folder]
    while not os.path.lexists(f"{places[-1]}/.git"):
        above = os.path.dirname(places[-1])  # noqa: PTH120
        if above == places[-1]:
            return places[:1]
        places.append(above)
    return places


def _told(file: str) -> str:
    try:
        return _FILES.get(file) or ""
    except OSError:
        return ""


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}\n… cut: read the file for the rest."


def _or_remark(text: str) -> str:
    return text if checked(text) is not None else _LEFT_OUT


_FILES = Remembered(_or_remark, most=_FILE_LIMIT + 1)
