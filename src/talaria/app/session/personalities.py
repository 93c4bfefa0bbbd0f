"""Personalities of the agent: files of the profile and built-in texts."""

from collections.abc import Mapping
from pathlib import Path

from talaria.core.errors import NotFound
from talaria.settings.atomic_files import read_file

BUILT_IN: Mapping[str, str] = {
    "concise": "Answer as briefly as possible: no preamble, no repetition, no summary at the end.",
    "teacher": "Teach: explain the idea first, then give one small example, and end with a question to try.",
    "reviewer": "Look for problems first. Say what fails, where, how you know, and how to fix it.",
    "pirate": "Speak like an old sea captain, but keep every fact, number, path and piece of code exact.",
}


def read_personality(folder: Path, name: str) -> str:
    """Return the text of a personality: a file of the profile, or a built-in one.

    Raises `NotFound` if there is neither.
    """
    own = read_file(folder / "personalities" / f"{name}.md")
    if own is not None:
        return own.decode(errors="replace").strip()
    if name not in BUILT_IN:
        raise NotFound(f"There is no personality `{name}`. Available: {', '.join(sorted(personalities(folder)))}.")
    return BUILT_IN[name]


def personalities(folder: Path) -> Mapping[str, str]:
    """Return the first line of each personality, by name."""
    own = {file.stem: read_personality(folder, file.stem) for file in (folder / "personalities").glob("*.md")}
    return {name: text.partition("\n")[0] for name, text in sorted({**BUILT_IN, **own}.items())}
