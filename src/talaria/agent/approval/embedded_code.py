"""Shell code embedded in options or scripts of other programs."""

import re
from collections.abc import Iterator

from msgspec import Struct

from talaria.agent.approval.programs import option_values
from talaria.agent.approval.shell_state import UNKNOWN, SimpleCommand

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
