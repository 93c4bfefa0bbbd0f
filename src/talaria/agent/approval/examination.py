"""Examine a shell line: what each of its programs would do, where it is now known to be."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec.structs import replace

from talaria.agent.approval.dangers import Danger
from talaria.agent.approval.places import Places, is_device, mentions_credentials
from talaria.agent.approval.programs import (
    HARMLESS,
    INTERPRETERS,
    NETWORK,
    REMOTE,
    SHELLS,
    TALKERS,
    known_dangers,
    read_words,
    starts_programs,
    subject_of,
    unwrapped,
    written_paths,
)
from talaria.agent.approval.shell_commands import SimpleCommand, inner_commands, parse_line
from talaria.agent.approval.shell_words import UNKNOWN, Word

_DEEPEST = 8
_FILTERS = {"-name", "-iname", "-path", "-regex", "-mtime", "-mmin", "-empty", "-size", "-newer"}


class Examination:
    """Goes through one line as a shell would, and notes what is dangerous."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._folder: Path | None = places.folder
        self._variables = {"HOME": str(places.home), "PWD": str(places.folder), "IFS": " "}
        self._downloads: set[str] = set()
        self._depth = 0
        self.found: list[Danger] = []
        self.subjects: list[str] = []

    def examine(self, line: str) -> None:
        """Note the dangers of a line in ``found``, and its programs in ``subjects``."""
        if self._depth >= _DEEPEST:
            self._note(Danger("code", "nests commands too deeply to be understood", narrow=True))
            return
        self._depth += 1
        parsed = parse_line(line, self._variables)
        for command in parsed.commands:
            self._command(command)
            if command.before and command.program in parsed.functions and command.before.program == command.program:
                self._note(Danger("system", "starts copies of itself without end", fatal=True))
        self._depth -= 1

    def _command(self, command: SimpleCommand) -> None:
        for inner in inner_commands(command):
            self._aside(inner)
        for word in command.redirects:
            if word.text in (">", ">>", ">|", "<>", ">&") and not word.target.text.isdigit():
                self._write(word.target.text, command)
            elif word.text == "<":
                self._read(word.target.text, command)
        while command.words:
            rest, dangers = unwrapped(command)
            for danger in dangers:
                self._note(danger)
            if rest is None:
                break
            command = rest
        if command.words:
            self._program(command)

    def _program(self, command: SimpleCommand) -> None:
        program = command.program
        self.subjects += [] if program in HARMLESS else [subject_of(command)]
        if UNKNOWN in program:
            self._note(Danger("code", "runs a program whose name is computed", narrow=True))
        if program in ("cd", "pushd"):
            self._move(command)
        elif program in {*SHELLS, *INTERPRETERS, *REMOTE, "eval", "source", ".", "trap", "alias"}:
            self._code(command)
        self._find_exec(command)
        for danger in known_dangers(command):
            self._note(danger)
        for text in written_paths(command):
            self._write(text, command)
        for text in read_words(command) if program not in TALKERS else ():
            self._read(text, command)
        if program in ("rm", "rmdir", "shred", "unlink", "find"):
            self._delete(command)
        self._run_download(command)

    def _aside(self, line: str) -> None:
        """Examine what runs in a subshell: where it goes does not matter afterwards."""
        folder = self._folder
        self.examine(line)
        self._folder = folder

    def _move(self, command: SimpleCommand) -> None:
        where = next((text for text in command.arguments if not text.startswith("-")), "~")
        self._folder = self._places.path(where, self._folder) if self._folder else None
        if command.arguments[:1] == ("-",):
            self._folder = None
        self._variables["PWD"] = str(self._folder) if self._folder else UNKNOWN

    def _code(self, command: SimpleCommand) -> None:
        """Examine code that a shell or an interpreter is given: as an argument, by a pipe, by a here-document."""
        if command.program in INTERPRETERS:
            self._interpreted(command)
            return
        given = list(_given_code(command))
        for word in given:
            if UNKNOWN in word.text:
                self._note(_hidden_code(_all_inner(word.inner), "runs what another command prints as shell code"))
            else:
                self._aside(word.text) if command.program in {*SHELLS, *REMOTE} else self.examine(word.text)
        reads_pipe = command.before is not None and command.program in SHELLS
        if reads_pipe and not given and not _script(command):
            self._note(_hidden_code(_pipeline(command), "pipes text into a shell"))

    def _interpreted(self, command: SimpleCommand) -> None:
        if command.before is not None and not [text for text in command.arguments if text != "-"]:
            self._note(_hidden_code(_pipeline(command), f"pipes text into {command.program}"))
        computed = [word for word in command.words[1:] if word.inner]
        if computed:
            self._note(_hidden_code(_all_inner(computed[0].inner), "runs what another command prints as code"))
        bodies = (one.target.text for one in command.redirects if one.text in ("<<body", "<<<"))
        code = "\n".join((*bodies, *(text for text in command.arguments if " " in text or "(" in text)))
        if mentions_credentials(code):
            self._note(Danger("credentials", "runs code that names a place of credentials", subject_of(command)))
        if starts_programs(code):
            self._note(Danger("code", "runs code that starts programs or deletes folders", subject_of(command)))

    def _find_exec(self, command: SimpleCommand) -> None:
        if command.program != "find":
            return
        start = next(iter(command.arguments), ".")
        found = Word("./…" if start.startswith("-") else f"{start}/…")
        words = tuple(found if word.text == "{}" else word for word in command.words)
        for index, word in enumerate(words):
            if word.text in ("-exec", "-execdir", "-ok", "-okdir"):
                self._command(replace(command, words=words[index + 1 :], redirects=()))

    def _write(self, text: str, command: SimpleCommand) -> None:
        path = self._path(text)
        if path is None:
            return
        subject = subject_of(command)
        if is_device(path):
            self._note(Danger("device", f"overwrites the device {path}", subject, fatal=True))
        elif self._places.is_secret(path):
            self._note(Danger("credentials", f"writes where credentials are kept: {path}", subject))
        elif self._places.is_start_up(path):
            self._note(Danger("start-up", f"changes what runs by itself: {path}", subject))
        elif self._places.is_outside(path):
            self._note(Danger("outside", f"writes outside the working folder: {path}", subject))

    def _read(self, text: str, command: SimpleCommand) -> None:
        path = self._path(text)
        if path is not None and self._places.is_secret(path):
            self._note(Danger("credentials", f"touches credentials: {path}", subject_of(command)))

    def _delete(self, command: SimpleCommand) -> None:
        if not _is_recursive(command):
            return
        for text in written_paths(command):
            self._delete_tree(text)

    def _delete_tree(self, text: str) -> None:
        whole = text.rstrip("/*") or ("/" if text.startswith("/") else ".")
        path = self._path(whole)
        if path is None:
            self._note(Danger("deletion", "deletes a folder whose name is computed", narrow=True))
        elif self._places.is_vital(path):
            self._note(Danger("deletion", f"deletes {path} with all that is in it", fatal=True))
        elif self._places.folder.is_relative_to(path) or path.name == ".git" or self._places.is_shared(path):
            self._note(Danger("deletion", f"deletes all of {path}", narrow=True))
        elif self._places.is_outside(path):
            self._note(Danger("deletion", f"deletes {path}, outside the working folder", narrow=True))

    def _run_download(self, command: SimpleCommand) -> None:
        """Note the download of a program that the same line runs."""
        if any(one.program in NETWORK for one in (command, *_pipeline(command))):
            redirects = (one.target.text for one in command.redirects if one.text.startswith(">"))
            self._downloads |= {Path(text).name for text in (*written_paths(command), *redirects)}
            self._downloads |= {text.rpartition("/")[2] for text in command.arguments if "://" in text}
            return
        started = _script(command) if command.program in {*SHELLS, *INTERPRETERS, "source", "."} else command.program
        if started and Path(started).name in self._downloads:
            self._note(Danger("code", "runs a program that it downloads", narrow=True))

    def _path(self, text: str) -> Path | None:
        if self._folder is None and not text.startswith(("/", "~")):
            return None
        return self._places.path(text, self._folder)

    def _note(self, danger: Danger) -> None:
        if danger not in self.found:
            self.found.append(danger)


def _given_code(command: SimpleCommand) -> Iterator[Word]:
    words = command.words[1:]
    if command.program in ("eval", "trap"):
        text = " ".join(word.text for word in (words if command.program == "eval" else words[:1]))
        yield Word(text, tuple(inner for word in words for inner in word.inner))
    elif command.program == "alias":
        yield from (replace(word, text=word.text.partition("=")[2]) for word in words if "=" in word.text)
    elif command.program in ("source", "."):
        yield from (word for word in words[:1] if word.inner or word.text == "/dev/stdin")
    elif command.program == "ssh":
        plain = [word.text for word in words if not word.text.startswith("-")]
        yield Word(" ".join(plain[1:]))
    else:
        yield from _shell_code(words)
    if command.program in SHELLS:
        told = (one for one in command.redirects if one.text in ("<<body", "<<<") or one.target.inner)
        yield from (one.target for one in told if not one.text.startswith(">"))


def _shell_code(words: tuple[Word, ...]) -> Iterator[Word]:
    for index, word in enumerate(words):
        if word.text.startswith("-") and not word.text.startswith("--"):
            if "c" in word.text and index + 1 < len(words):
                yield words[index + 1]
                return
        elif word.inner:
            yield word
            return


def _script(command: SimpleCommand) -> str:
    """Return the file that a shell or an interpreter is told to run."""
    plain = [text for text in command.arguments if not text.startswith("-")]
    return plain[0] if plain and "-s" not in command.arguments else ""


def _hidden_code(sources: Iterable[SimpleCommand], reason: str) -> Danger:
    if any(command.program in NETWORK for command in sources):
        reason = "runs code that comes from the network"
    return Danger("code", reason, narrow=True)


def _pipeline(command: SimpleCommand) -> Iterator[SimpleCommand]:
    before = command.before
    while before is not None:
        yield before
        before = before.before


def _all_inner(texts: Iterable[str]) -> Iterator[SimpleCommand]:
    for text in texts:
        yield from parse_line(text, {}).commands


def _is_recursive(command: SimpleCommand) -> bool:
    options = [text for text in command.arguments if text.startswith("-")]
    if command.program == "find":
        return "-delete" in options and not _FILTERS & set(options)
    short = "".join(option for option in options if not option.startswith("--"))
    return command.program == "rm" and (bool(set("rR") & set(short)) or "--recursive" in options)
