"""Tools that change files: write_file, and edit_file, which also finds lines equal except for spaces or quotes."""

import asyncio
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from talaria.contracts.tool import Call, Effect, ProposedAction, ToolOutput, Workspace
from talaria.core.errors import ToolFailed
from talaria.tools.files.text_file import Document, load_document, refuse_mask, save_file
from talaria.tools.output import cut_output

_TYPOGRAPHY = {
    **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032", "'"),
    **dict.fromkeys("\u201c\u201d\u201e\u201f\u2033", '"'),
    **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"),
    **dict.fromkeys("\u00a0\u2002\u2003\u2007\u2009\u202f\u3000", " "),
}
_TABLE = str.maketrans(_TYPOGRAPHY)
_BLANKS = re.compile(r"\s+")
_SIMILAR = 0.5
_COMPARED = 20_000
Likeness = Callable[[str], str]
# From strict to lax: the first one that matches decides.
LIKENESSES: tuple[Likeness, ...] = (
    str,
    str.rstrip,
    lambda line: normalize_typography(line).strip(),
    lambda line: _BLANKS.sub(" ", normalize_typography(line)).strip(),
)
_SHOWN_PLACES = 5
_HEADER = r"@@(?: -(\d+)(?:,\d+)? \+\d+(?:,\d+)?)?(?: @@.*|.*)$"
_MOST_FUZZ = 2
_LONGEST_DIFF = 4_000


def normalize_typography(text: str) -> str:
    """Return the text with plain quotation marks, hyphens and spaces, character by character."""
    return text.translate(_TABLE)


def find_block(lines: Sequence[str], block: Sequence[str], likeness: Likeness) -> list[int]:
    """Return every index at which ``block`` occurs in ``lines``."""
    if not block:
        return []
    expected = [likeness(line) for line in block]
    have = [likeness(line) for line in lines]
    starts = range(len(have) - len(expected) + 1)
    return [start for start in starts if have[start] == expected[0] and have[start : start + len(expected)] == expected]


def get_indentation(line: str) -> str:
    """Return the indentation of a line."""
    return line[: len(line) - len(line.lstrip())]


def reindent(new: Sequence[str], old: Sequence[str], found: Sequence[str]) -> list[str]:
    """Return ``new``, indented relative to the lines found as it was to the lines given."""
    pairs = ((have, want) for have, want in zip(found, old, strict=False) if want.strip())
    have, want = next(pairs, ("", ""))
    here, there = get_indentation(have), get_indentation(want)
    if here == there:
        return list(new)
    return [here + line[len(there) :] if line.strip() and line.startswith(there) else line for line in new]


def find_similar_lines(lines: Sequence[str], expected: str, *, context: int = 2) -> str:
    """Return the numbered lines most similar to ``expected``; empty if nothing is similar."""
    from difflib import SequenceMatcher  # noqa: PLC0415 (loaded when a passage is missing)

    matcher = SequenceMatcher(b=expected.strip())
    best, score = -1, _SIMILAR
    for index, line in enumerate(lines[:_COMPARED]):
        matcher.set_seq1(line.strip())
        if matcher.real_quick_ratio() > score and matcher.quick_ratio() > score and matcher.ratio() > score:
            best, score = index, matcher.ratio()
    if best < 0:
        return ""
    first = max(0, best - context)
    return "\n".join(f"{first + n + 1:>5}\t{line[:300]}" for n, line in enumerate(lines[first : best + context + 1]))


def replace_passage(text: str, old: str, new: str, *, everywhere: bool = False) -> str:
    """Return the text with ``new`` in place of ``old``, or raise `ToolFailed` with the most similar lines.

    Unless ``everywhere``, ``old`` must occur once. If it doesn't occur literally, a single passage that differs only in
    spaces, indentation or typographic marks is used.
    """
    if not old:
        raise ToolFailed("old_text is empty. Give the text to replace, or use write_file.")
    if old == new:
        raise ToolFailed("old_text and new_text are identical.")
    positions = _find_positions(text, old)
    if len(positions) == 1 or (positions and everywhere):
        return text.replace(old, new)
    if positions:
        raise _make_ambiguous_error([text.count("\n", 0, position) + 1 for position in positions])
    return _replace_alike(text, old, new)


class Hunk(Struct, frozen=True):
    """One hunk: lines starting with ``" "``, ``"-"`` or ``"+"``, expected at ``line`` if that is known."""

    line: int | None
    lines: tuple[str, ...]

    @property
    def old(self) -> list[str]:
        """Return the lines that must be present."""
        return [line[1:] for line in self.lines if line[0] != "+"]


def apply_patch(text: str, patch: str) -> str:
    """Return the text with all hunks applied, or raise `ToolFailed` naming the one that doesn't match."""
    hunks = parse_patch(patch)
    ended = text.endswith("\n")
    lines = text[:-1].split("\n") if ended else text.split("\n") if text else []
    shift, earliest = 0, 0
    for number, hunk in enumerate(hunks, 1):
        start, fitting = _find_hunk(lines, hunk, shift, earliest, number)
        replaced = _apply_hunk(fitting, lines[start : start + len(fitting.old)])
        lines[start : start + len(fitting.old)] = replaced
        shift += len(replaced) - len(fitting.old)
        earliest = start + len(replaced)
    return "\n".join(lines) + ("\n" if _ends_with_newline(hunks, patch, ended) and lines else "")


def parse_patch(patch: str) -> list[Hunk]:
    """Return the hunks of a diff of one file; file headers are skipped."""
    hunks: list[Hunk] = []
    current: list[str] | None = None
    start: int | None = None
    files = 0
    lines = patch.strip("\n").split("\n")
    for index, line in enumerate(lines):
        header = re.match(_HEADER, line)
        starts_file = line.startswith("--- ") and index + 1 < len(lines) and lines[index + 1].startswith("+++ ")
        if header or starts_file:
            _add_hunk(hunks, start, current)
            current, start = ([], _parse_line_number(header)) if header else (None, None)
            files += starts_file
        elif current is not None and not line.startswith("\\"):
            current.append(line if line[:1] in ("+", "-", " ") else f" {line}")
    _add_hunk(hunks, start, current)
    if files > 1:
        raise ToolFailed("The patch changes several files. Make one call per file.")
    if not hunks:
        raise ToolFailed("The patch has no hunks. Each starts with a line like @@ -1,4 +1,5 @@.")
    return hunks


class EditFileArguments(Struct, frozen=True):
    """A file, and either a passage with its replacement or a patch."""

    path: str
    old_text: Annotated[str, Meta(description="must occur once")] = ""
    new_text: str = ""
    replace_all: bool = False
    patch: Annotated[str, Meta(description="unified diff, instead of old_text and new_text")] = ""

    def diff(self, workspace: Workspace) -> str:
        """Return the proposed change; empty if the call would fail."""
        path = workspace.resolve(self.path)
        try:
            document = load_document(path)
            return _diff_texts(document.text, _apply_edit(document, self))
        except ToolFailed:
            return ""


class EditFile:
    """Replaces a passage or applies a patch.

    Not idempotent: repeated, it finds nothing to replace, or replaces inside its own result. An interrupted call is
    therefore reported and not repeated.
    """

    name = "edit_file"
    description = "Replace old_text with new_text in a file, or apply a patch with several hunks. Returns the diff."
    effect = Effect.IRREVERSIBLE
    arguments = EditFileArguments

    def proposed_action(self, arguments: EditFileArguments) -> ProposedAction:
        """Describe the change."""
        return ProposedAction("write", arguments.path, change=arguments)

    async def run(self, arguments: EditFileArguments, call: Call) -> ToolOutput:
        """Change the file and return what changed."""
        path = call.workspace.resolve(arguments.path)
        return await asyncio.to_thread(_edit, path, arguments)


class WriteFileArguments(Struct, frozen=True):
    """A file and its complete content."""

    path: str
    content: str

    def diff(self, workspace: Workspace) -> str:
        """Return the proposed change; empty for a new file, and for one that isn't text."""
        return _diff_replacement(workspace.resolve(self.path), self.content)


class WriteFile:
    """Creates or replaces files atomically; repeating a call gives the same result."""

    name = "write_file"
    description = "Create or overwrite a file; missing folders are created. To change parts of a file use edit_file."
    effect = Effect.IDEMPOTENT
    arguments = WriteFileArguments

    def proposed_action(self, arguments: WriteFileArguments) -> ProposedAction:
        """Describe what would be written."""
        return ProposedAction("write", arguments.path, change=arguments)

    async def run(self, arguments: WriteFileArguments, call: Call) -> ToolOutput:
        """Write the file and report how its size changed."""
        refuse_mask(arguments.content)
        path = call.workspace.resolve(arguments.path)
        return await asyncio.to_thread(_write, path, arguments.content)


def _find_positions(text: str, passage: str) -> list[int]:
    found, start = [], text.find(passage)
    while start >= 0:
        found.append(start)
        start = text.find(passage, start + len(passage))
    return found


def _replace_alike(text: str, old: str, new: str) -> str:
    positions = _find_positions(normalize_typography(text), normalize_typography(old))
    if len(positions) == 1:
        return text[: positions[0]] + new + text[positions[0] + len(old) :]
    lines, block = text.split("\n"), old.strip("\n").split("\n")
    for likeness in LIKENESSES:
        found = find_block(lines, block, likeness) if any(line.strip() for line in block) else []
        if len(found) > 1:
            raise _make_ambiguous_error([start + 1 for start in found])
        if found:
            return _replace_lines(lines, found[0], block, new.strip("\n").split("\n") if new.strip("\n") else [])
    raise _make_missing_error(lines, block)


def _replace_lines(lines: Sequence[str], start: int, old: Sequence[str], new: Sequence[str]) -> str:
    end = start + len(old)
    return "\n".join((*lines[:start], *reindent(new, old, lines[start:end]), *lines[end:]))


def _make_ambiguous_error(numbers: Sequence[int]) -> ToolFailed:
    shown = ", ".join(map(str, numbers[:_SHOWN_PLACES])) + (", …" if len(numbers) > _SHOWN_PLACES else "")
    return ToolFailed(
        f"old_text matches {len(numbers)} places (lines {shown}). Add surrounding lines, or set replace_all if "
        "it is exact."
    )


def _make_missing_error(lines: Sequence[str], block: Sequence[str]) -> ToolFailed:
    similar = find_similar_lines(lines, max(block, key=lambda line: len(line.strip())))
    what = f"Most similar:\n{similar}" if similar else "Nothing similar found. Read the file first."
    return ToolFailed(f"old_text was not found in the file. {what}")


def _parse_line_number(header: re.Match[str] | None) -> int | None:
    return int(header[1]) if header and header[1] else None


def _add_hunk(hunks: list[Hunk], start: int | None, lines: list[str] | None) -> None:
    if lines is None:
        return
    if not any(line[0] in "+-" for line in lines):
        raise ToolFailed("A hunk of the patch changes nothing. Lines start with +, - or a space.")
    hunks.append(Hunk(start, tuple(lines)))


def _find_hunk(lines: Sequence[str], hunk: Hunk, shift: int, earliest: int, number: int) -> tuple[int, Hunk]:
    """Return where a hunk matches and which part of it, never before the previous hunk."""
    if not hunk.old:
        return _find_insertion(lines, hunk, shift, number), hunk
    expected = None if hunk.line is None else hunk.line - 1 + shift
    for fuzz in range(_MOST_FUZZ + 1):
        part, cut = _trim_hunk(hunk, fuzz)
        for likeness in LIKENESSES:
            found = [start for start in find_block(lines, part.old, likeness) if start >= earliest]
            if len(found) == 1 or (found and expected is not None):
                return min(found, key=lambda start: abs(start - (expected or 0) - cut)), part
            if found:
                raise ToolFailed(f"Hunk {number} matches {len(found)} places. Add line numbers or more context.")
    similar = find_similar_lines(lines, max(hunk.old, key=lambda line: len(line.strip())))
    raise ToolFailed(
        (f"Hunk {number} doesn't match; nothing was changed.") + (f" Similar:\n{similar}" if similar else "")
    )


def _find_insertion(lines: Sequence[str], hunk: Hunk, shift: int, number: int) -> int:
    if not lines:
        return 0
    if hunk.line is None:
        raise ToolFailed(f"Hunk {number} has no context. Add the lines around the change.")
    return min(len(lines), hunk.line + shift)


def _trim_hunk(hunk: Hunk, fuzz: int) -> tuple[Hunk, int]:
    """Return the hunk with up to ``fuzz`` fewer context lines at each end, and the number removed in front."""
    lines = list(hunk.lines)
    front = 0
    for _ in range(fuzz):
        if len(lines) > 1 and lines[0][0] == " ":
            del lines[0]
            front += 1
        if len(lines) > 1 and lines[-1][0] == " ":
            del lines[-1]
    part = Hunk(hunk.line, tuple(lines))
    return (part, front) if part.old else (hunk, 0)


def _apply_hunk(hunk: Hunk, found: Sequence[str]) -> list[str]:
    """Return the replacement for the matched lines; context lines stay as they are in the file."""
    added = reindent([line[1:] for line in hunk.lines if line[0] == "+"], hunk.old, found)
    have, new = iter(found), iter(added)
    result = []
    for line in hunk.lines:
        if line[0] == "+":
            result.append(next(new))
        else:
            kept = next(have)
            result += [kept] if line[0] == " " else []
    return result


def _ends_with_newline(hunks: Sequence[Hunk], patch: str, ended: bool) -> bool:
    r"""Return whether the new text ends with a line feed, according to ``\ No newline at end of file``."""
    markers: list[str] = re.findall(r"^([ +-]).*\n\\", patch, re.MULTILINE)
    if not markers:
        return ended or not any(hunk.old for hunk in hunks)
    return markers[-1] == "-"


def _edit(path: Path, arguments: EditFileArguments) -> ToolOutput:
    refuse_mask(arguments.new_text + arguments.patch)
    document = load_document(path)
    text = _apply_edit(document, arguments)
    save_file(path, msgspec.structs.replace(document, text=text).raw)
    diff = _diff_texts(document.text, text)
    return ToolOutput(cut_output(f"{path.name}:\n{diff}", limit=_LONGEST_DIFF), diff=diff)


def _apply_edit(document: Document, arguments: EditFileArguments) -> str:
    """Return the text after the change, or raise `ToolFailed`."""
    if arguments.patch and arguments.old_text:
        raise ToolFailed("Give either old_text and new_text, or a patch.")
    if arguments.patch:
        text = apply_patch(document.text, _convert_newlines(arguments.patch))
    else:
        old, new = _convert_newlines(arguments.old_text), _convert_newlines(arguments.new_text)
        text = replace_passage(document.text, old, new, everywhere=arguments.replace_all)
    if text == document.text:
        raise ToolFailed("That wouldn't change anything.")
    return text


def _convert_newlines(text: str) -> str:
    return text.replace("\r\n", "\n")


def _diff_replacement(path: Path, content: str) -> str:
    try:
        before = load_document(path).text
    except ToolFailed:
        return ""
    return _diff_texts(before, content.replace("\r\n", "\n"))


def _write(path: Path, content: str) -> ToolOutput:
    diff = _diff_replacement(path, content)
    before = path.stat().st_size if path.is_file() else None
    raw = content.encode("utf-8", "surrogateescape")
    save_file(path, raw)
    lines = content.count("\n") + (not content.endswith("\n") and bool(content))
    size = f"{len(raw):,} bytes, {lines:,} {'line' if lines == 1 else 'lines'}."
    if before is None:
        return ToolOutput(f"Created {path}: {size}")
    return ToolOutput(f"Replaced {path}: {before:,} → {size}", diff=diff)


def _diff_texts(old: str, new: str) -> str:
    from talaria.core.text_diff import diff_texts  # noqa: PLC0415 (loaded with the first edit)

    return diff_texts(old, new)
