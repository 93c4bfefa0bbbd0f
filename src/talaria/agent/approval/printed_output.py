"""Predict the output of simple programs from their arguments."""

from collections.abc import Sequence
from pathlib import Path

from talaria.agent.approval.shell_state import FOUND, NAME, UNKNOWN, ShellState, SimpleCommand

_NAMES = frozenset(
    {
    "date", "wc", "nproc", "seq", "id", "whoami", "uname", "hostname", "uuidgen", "sha256sum", "md5sum", "sha1sum",
    "cksum", "arch", "tput", "expr", "logname",
}
)  # fmt: skip
_LISTS_FILES = (("git", {"ls-files", "--name-only"}), ("rg", {"-l", "--files", "--files-with-matches"}), ("fd", {"."}))
FIND_FILTERS = frozenset({
    "-name", "-iname", "-path", "-ipath", "-regex", "-mtime", "-mmin", "-empty", "-size", "-newer",
})  # fmt: skip


def predict_output(command: SimpleCommand, state: ShellState) -> str:
    """Return the output of a command: text, a path with ``…`` for files below it, or a mark if unknown."""
    plain = [text for text in command.arguments if not text.startswith("-")]
    match command.program:
        case "echo":
            return _echo_output(command)
        case "printf":
            return _printf_output(command.arguments)
        case "pwd":
            return state.value("PWD")
        case "basename" if plain and UNKNOWN not in plain[0]:
            return Path(plain[0]).name.removesuffix(plain[1] if plain[1:] else "")
        case "dirname" if plain and UNKNOWN not in plain[0]:
            return str(Path(plain[0]).parent)
        case "cat" if not plain and command.input is not None:
            return command.input.text
        case "git" if plain[:1] == ["rev-parse"] and "--show-toplevel" not in command.arguments:
            return NAME
        case name if name in _NAMES:
            return NAME
    return _listing_output(command, plain)


def predict_pipeline_output(commands: Sequence[SimpleCommand], state: ShellState) -> str:
    """Return the output of a pipeline: a name if its last command prints nothing else."""
    text = predict_output(commands[-1], state) if commands else UNKNOWN
    return text if text == NAME else UNKNOWN


def _echo_output(command: SimpleCommand) -> str:
    words = list(command.arguments)
    while words and words[0] in ("-n", "-e", "-E", "-ne", "-en"):
        escapes = "e" in words.pop(0)
        if escapes and any("\\" in word for word in words):
            return UNKNOWN
    return UNKNOWN if any(word.loose for word in command.words) else " ".join(words)


def _printf_output(arguments: tuple[str, ...]) -> str:
    """Return the output of printf for the simplest formats."""
    if not arguments or arguments[0] == "-v":
        return UNKNOWN
    template = arguments[0].removesuffix("\\n")
    if len(arguments) == 1 and "%" not in template and "\\" not in template:
        return template
    return arguments[1] if template == "%s" and len(arguments) == 2 else UNKNOWN


def _listing_output(command: SimpleCommand, plain: list[str]) -> str:
    """Return what a program lists: everything in a folder, or below it."""
    program, words = command.program, command.arguments
    start = plain[0] if plain else "."
    if program == "find" and not {"-printf", "-exec", "-execdir", "-ls", "-fprintf"} & set(words):
        start = start if start[:1] not in "(!" else "."
        return f"{start}/{FOUND}" if FIND_FILTERS & set(words) else start
    if program == "ls" and len(plain) < 2 and not any(word.startswith("-") and "l" in word for word in words):
        return f"{start}/*"
    if any(program == name and needed & set(words) for name, needed in _LISTS_FILES):
        return f"./{FOUND}"
    if program == "grep" and any(word.startswith("-") and not word.startswith("--") and "l" in word for word in words):
        folder = plain[1] if plain[1:] else "."
        return UNKNOWN if len(plain) > 2 else f"{folder}/{FOUND}"
    if program == "mktemp" and not plain and not {"-p", "--tmpdir", "-t"} & set(words):
        return f"/tmp/tmp.{NAME}"  # noqa: S108 -- what mktemp prints
    return UNKNOWN
