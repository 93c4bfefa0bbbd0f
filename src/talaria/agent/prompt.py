"""The system prompt, in tiers from the most lasting to the most changeable."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from talaria.core.file_cache import FileCache

DEFAULT_IDENTITY = (
    "You are Talaria, a personal agent. You help the person you talk to with their files, programs and the "
    "web, using your tools. Be direct and brief. Do things instead of describing them; check before you claim; "
    "say plainly what you couldn't do."
)
TALKING_IDENTITY = (
    "You are Talaria, a personal agent. You have no tools here; you can only talk. Be direct and brief, and "
    "say so when you don't know."
)
CONTEXT_FILES = (".talaria.md", "AGENTS.md", "CLAUDE.md")
_FILE_LIMIT = 20_000
_CONTEXT_LIMIT = 40_000
_INJECTED = (
    r"(?i)(ignore|disregard|forget)\s+(all\s+|any\s+)?(previous|prior|above|earlier)\s+(instructions|rules|prompts)"
    r"|do\s+not\s+tell\s+the\s+(user|person)|system\s+prompt\s+override"
    r"|curl\s[^\n]*\$\{?\w*(KEY|TOKEN|SECRET)"
)
_OMITTED_NOTICE = "(omitted: this file tries to give instructions that its reader can't see)"
_JOINERS = "[\u200c-\u200f]"  # used for emoji, and in Persian, Hebrew and Indian scripts
_INVISIBLE = "[\u200b\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff\U000e0000-\U000e007f]"


class PromptTiers(Struct, frozen=True, kw_only=True):
    """The parts of the system prompt; an empty tier is left out."""

    identity: str = DEFAULT_IDENTITY
    tools: str = ""
    skills: str = ""
    project: str = ""
    memory: str = ""
    surface: str = ""


def build_instructions(tiers: PromptTiers) -> str:
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
    """Return the files that describe a project, the nearest to the folder last, so that they take precedence.

    Searches up to the root of the repository. A file that tries to give hidden instructions is named and left out.
    """
    found: dict[str, str] = {}
    remaining = _CONTEXT_LIMIT
    for file in (
        f"{place.rstrip('/')}/{name}" for place in _list_parent_folders(str(folder)) for name in CONTEXT_FILES
    ):
        text = _truncate(_read_file(file), min(remaining, _FILE_LIMIT))
        if text and (real := os.path.realpath(file)) not in found:
            found[real] = f"## {file}\n{text}"
            remaining = max(remaining - len(text), 0)
    return "\n\n".join(reversed(found.values()))


def reject_injected(text: str) -> str | None:
    """Return the text, or ``None`` if it contains injected instructions or hidden characters."""
    if re.search(_INVISIBLE, text.removeprefix("\ufeff")) or re.search(_INJECTED, re.sub(_JOINERS, "", text)):
        return None
    return text


def _list_parent_folders(folder: str) -> Sequence[str]:
    """Return the folders up to the root of the repository; as strings, since every session starts with this."""
    folders = [folder]
    while not os.path.lexists(f"{folders[-1]}/.git"):
        above = os.path.dirname(folders[-1])  # noqa: PTH120
        if above == folders[-1]:
            return folders[:1]
        folders.append(above)
    return folders


def _read_file(file: str) -> str:
    try:
        return _FILES.get(file) or ""
    except OSError:
        return ""


def _truncate(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}\n… truncated: read the file for the rest."


def _or_notice(text: str) -> str:
    return text if reject_injected(text) is not None else _OMITTED_NOTICE


_FILES = FileCache(_or_notice, most=_FILE_LIMIT + 1)
