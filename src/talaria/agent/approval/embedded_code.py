"""Shell code outside of the command line: in options and scripts of other programs, and in script files."""

import re
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from talaria.agent.approval.printed_output import predict_output
from talaria.agent.approval.programs import option_values
from talaria.agent.approval.shell_state import UNKNOWN, ShellState, ShellWord, SimpleCommand

_AWK = frozenset({"awk", "gawk", "mawk", "nawk"})
_LONGEST_SCRIPT = 2_000
_AWK_RUNS = re.compile(r"\bsystem\s*\(|\|\s*(?:&\s*)?(?:getline|\"|\w)|>>?\s*\"|\bprint\b[^\n}]{0,200}\|")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_SED_COMMAND = re.compile(r"(?:^|[;{}\n0-9$/,])[ \t]*+e(?:[ \t]++([^\n]*)|[ \t]*+$)", re.MULTILINE)
_SED_SUBSTITUTION = re.compile(r"s(?=([^\n\\]))")
_SED_RUN_FLAG = re.compile(r"[gpiImM0-9]*+e")
_RUNNING_OPTIONS = {
    "tar": (
        "--checkpoint-action", "--to-command", "-I", "--use-compress-program", "--rsh-command", "-F", "--info-script",
    ),
    "rsync": ("-e", "--rsh", "--rsync-path"), "scp": ("-S", "-o"), "sftp": ("-S", "-o"), "ssh": ("-o",),
    "split": ("--filter",), "sort": ("--compress-program",), "zip": ("-TT", "--unzip-command"), "man": ("-P", "-H"),
    "vim": ("-c", "--cmd", "-S"), "vi": ("-c",), "nvim": ("-c", "--cmd"), "ex": ("-c",), "emacs": ("--eval", "-f"),
    "make": ("--eval",), "gmake": ("--eval",), "rg": ("--pre",), "nc": ("-e", "-c"), "openssl": ("-engine",),
    "docker": ("--entrypoint",), "bpython": ("-c",), "ack": ("--pager",), "pip": ("--build-option",),
}  # fmt: skip
_HARMLESS_SSH = re.compile(
    r"(?:StrictHostKeyChecking|ConnectTimeout|BatchMode|UserKnownHostsFile|LogLevel|Port|User|ServerAlive\w+)[= ]"
)
_PROGRAM_SETTINGS = re.compile(
    r"(?:user\.|color\.|advice\.|core\.quotepath|commit\.gpgsign|init\.defaultbranch|safe\.directory|log\.|push\.default|"
    r"pull\.|fetch\.|protocol\.|http\.version|gc\.|diff\.(?:algorithm|renames|color\w*)|core\.(?:autocrlf|filemode|abbrev))",
    re.IGNORECASE,
)
_GIT_COMMAND_OPTIONS = frozenset({"-x", "--exec", "--tree-filter", "--index-filter", "--msg-filter", "--extcmd"})
_MAX_BYTES = 64_000
_SHEBANG = re.compile(rb"#!\s*(?:/usr/bin/env\s+(?:-S\s+)?)?\S*?\b(?:ba|z|da|k|mk|a|fi|c|tc|ya)?sh\b")


class EmbeddedCode(Struct, frozen=True):
    """Code that a program is asked to run, `UNKNOWN` if it can't be read; ``how`` describes it for a person."""

    code: str
    how: str


def embedded_code(command: SimpleCommand) -> Iterator[EmbeddedCode]:
    """Yield the shell code in the arguments of programs that are not shells."""
    program, words = command.program, command.arguments
    if program in _AWK:
        yield from _awk_code(words)
    elif program in ("sed", "gsed"):
        yield from _sed_code(command)
    elif program == "git":
        yield from _git_code(words)
    elif program in ("make", "gmake"):
        yield from _make_code(command)
    elif program in ("vim", "vi", "nvim", "ex"):
        yield from (
            EmbeddedCode(text[1:].lstrip("!:"), f"runs commands through {program}") for text in words if text[:1] == "+"
        )
    elif program in ("sqlite3", "psql", "mysql") and any(
        re.search(r"\.(?:shell|system)\b|\\!", text) for text in words
    ):
        yield EmbeddedCode(UNKNOWN, f"runs a shell inside {program}")
    for value in option_values(command, _RUNNING_OPTIONS.get(program, ())):
        if not (program in ("ssh", "scp", "sftp") and _HARMLESS_SSH.match(value)):
            code = value.partition("=")[2] if program in ("tar", "ssh", "scp", "sftp") and "=" in value else value
            yield EmbeddedCode(code, f"runs another program through {program}")


def _awk_code(words: tuple[str, ...]) -> Iterator[EmbeddedCode]:
    for text in words:
        if len(text) > _LONGEST_SCRIPT:
            yield EmbeddedCode(UNKNOWN, "runs a long awk program")
        elif _AWK_RUNS.search(text):
            yield EmbeddedCode("\n".join(_QUOTED.findall(text)) or UNKNOWN, "runs a command or writes a file from awk")


def _sed_code(command: SimpleCommand) -> Iterator[EmbeddedCode]:
    scripts = list(option_values(command, ("-e", "--expression")))
    plain = [text for text in command.arguments if not text.startswith("-")]
    for text in scripts or plain[:1]:
        if len(text) > _LONGEST_SCRIPT:
            yield EmbeddedCode(UNKNOWN, "runs a long sed script")
        else:
            yield from (EmbeddedCode(code or UNKNOWN, "runs a command from sed") for code in _sed_commands(text))


def _sed_commands(script: str) -> Iterator[str]:
    """Yield commands that a sed script may run: after the command ``e``, or as the result of a substitution."""
    yield from (found[1] or "" for found in _SED_COMMAND.finditer(script))
    for found in _SED_SUBSTITUTION.finditer(script):
        _, *pieces = script[found.end() + 1 :].split(found[1])
        if any(_SED_RUN_FLAG.match(piece) for piece in pieces[1:]):
            yield pieces[0] if len(pieces) == 2 else ""  # an escaped delimiter: the end of the parts is unknown


def _git_code(words: tuple[str, ...]) -> Iterator[EmbeddedCode]:
    for index, text in enumerate(words):
        following = words[index + 1] if index + 1 < len(words) else ""
        if text in ("-c", "--config-env") and not _PROGRAM_SETTINGS.match(following):
            value = following.partition("=")[2]
            yield EmbeddedCode(
                value.removeprefix("!") if value else UNKNOWN, "passes git a setting that may run a program"
            )
        if text.startswith(("--exec-path=", "--upload-pack=", "--receive-pack=", "--extcmd=", "--config-env=")):
            yield EmbeddedCode(text.partition("=")[2], "runs another program through git")
        if text in _GIT_COMMAND_OPTIONS and following and {"rebase", "filter-branch", "difftool"} & set(words):
            yield EmbeddedCode(following, "runs a command through git")
        if (text, following) == ("bisect", "run") or (text == "foreach" and "submodule" in words):
            rest = words[index + (2 if text == "bisect" else 1) :]
            yield EmbeddedCode(" ".join(one for one in rest if one != "--recursive"), "runs a command through git")


def _make_code(command: SimpleCommand) -> Iterator[EmbeddedCode]:
    words = command.arguments
    stdin = any(
        value in ("-", "/dev/stdin", "/dev/fd/0") for value in option_values(command, ("-f", "--file", "--makefile"))
    )
    if stdin:
        text = command.input.text if command.input is not None else UNKNOWN
        lines = [line.lstrip("\t@-+ ") for line in text.splitlines() if line.startswith("\t")]
        inline = [line.partition(";")[2] for line in text.splitlines() if re.match(r"[^\t#=:]*:[^=;]*;", line)]
        yield EmbeddedCode("\n".join((*lines, *inline)) or UNKNOWN, "runs a makefile from standard input")
    for text in words:
        if text.startswith(("SHELL=", ".SHELLFLAGS=", "MAKEFLAGS=")):
            yield EmbeddedCode(text.partition("=")[2], "makes make use another shell")


class ScriptFiles:
    """Reads scripts, each once; content written earlier by the examined code takes precedence over the file."""

    def __init__(self) -> None:
        self._written: dict[Path, str] = {}
        self._read: set[Path] = set()

    def record_write(self, paths: tuple[Path, ...] | None, command: SimpleCommand | None) -> None:
        """Record that a file is written, by the output of ``command`` if there is one."""
        for path in paths or ():
            text = UNKNOWN if command is None else predict_output(command, ShellState({}, path.parent))
            is_more = command is not None and any(">>" in one.operator for one in command.redirects)
            self._written[path] = f"{self._written.get(path, UNKNOWN)}\n{text}" if is_more else text

    def is_new(self, paths: tuple[Path, ...] | None) -> bool:
        """Return whether the examined code has written a file."""
        return any(path in self._written for path in paths or ())

    def read(self, paths: tuple[Path, ...] | None) -> str | None:
        """Return the code of a script, empty if it was read before, ``None`` if it is unknown."""
        if not paths:
            return None
        path = paths[0]
        if path in self._written:
            text = self._written[path]
            return None if UNKNOWN in text else text
        if path in self._read:
            return ""
        self._read.add(path)
        try:
            with path.open("rb") as file:
                source = file.read(_MAX_BYTES + 1) if path.is_file() else b"\0"
        except OSError:
            return None
        return None if len(source) > _MAX_BYTES or b"\0" in source else source.decode("utf-8", "replace")


def is_script(paths: tuple[Path, ...] | None) -> bool:
    """Return whether a file starts like a shell script."""
    try:
        with (paths or ())[0].open("rb") as file:
            return bool(_SHEBANG.match(file.read(80)))
    except (OSError, IndexError):
        return False


def script_of(command: SimpleCommand, with_value: str) -> tuple[ShellWord, ...]:
    """Return the first argument of a command that is not an option, and all after it."""
    skip = False
    for index, word in enumerate(command.words[1:], 1):
        if skip:
            skip = False
        elif word.text.startswith(("-", "+")) and word.text != "-":
            skip = len(word.text) == 2 and word.text[1] in with_value
        elif word.text != "-":
            return command.words[index:]
    return ()
