"""Shell code that programs run because an option or a script of theirs says so."""

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


class Embedded(Struct, frozen=True):
    """Code that a program is told to run, `UNKNOWN` where it cannot be read; ``how`` says it for a person."""

    code: str
    how: str


def embedded_code(command: SimpleCommand) -> Iterator[Embedded]:
    """Yield the shell code in the words of programs that are no shells."""
    program, words = command.program, command.arguments
    if program in _AWK:
        yield from _awk(words)
    elif program in ("sed", "gsed"):
        yield from _sed(command)
    elif program == "git":
        yield from _git(words)
    elif program in ("make", "gmake"):
        yield from _make(command)
    elif program in ("vim", "vi", "nvim", "ex"):
        yield from (Embedded(text[1:].lstrip("!:"), f"runs commands of {program}") for text in words if text[:1] == "+")
    elif program in ("sqlite3", "psql", "mysql") and any(
        re.search(r"\.(?:shell|system)\b|\\!", text) for text in words
    ):
        yield Embedded(UNKNOWN, f"runs a shell from within {program}")
    for value in option_values(command, _RUNNING_OPTIONS.get(program, ())):
        if not (program in ("ssh", "scp", "sftp") and _HARMLESS_SSH.match(value)):
            code = value.partition("=")[2] if program in ("tar", "ssh", "scp", "sftp") and "=" in value else value
            yield Embedded(code, f"has {program} run another program")


def _awk(words: tuple[str, ...]) -> Iterator[Embedded]:
    for text in words:
        if len(text) > _LONGEST_SCRIPT:
            yield Embedded(UNKNOWN, "has awk run a long program")
        elif _AWK_RUNS.search(text):
            yield Embedded("\n".join(_QUOTED.findall(text)) or UNKNOWN, "has awk run a command or write a file")


def _sed(command: SimpleCommand) -> Iterator[Embedded]:
    scripts = list(option_values(command, ("-e", "--expression")))
    plain = [text for text in command.arguments if not text.startswith("-")]
    for text in scripts or plain[:1]:
        if len(text) > _LONGEST_SCRIPT:
            yield Embedded(UNKNOWN, "has sed run a long script")
        else:
            yield from (Embedded(code or UNKNOWN, "has sed run a command") for code in _sed_commands(text))


def _sed_commands(script: str) -> Iterator[str]:
    """Yield what a script of sed may run: after the command ``e``, or as the result of a substitution."""
    yield from (found[1] or "" for found in _SED_COMMAND.finditer(script))
    for found in _SED_SUBSTITUTION.finditer(script):
        _, *pieces = script[found.end() + 1 :].split(found[1])
        if any(_SED_RUN_FLAG.match(piece) for piece in pieces[1:]):
            yield pieces[0] if len(pieces) == 2 else ""  # an escaped delimiter: where the parts end is not known


def _git(words: tuple[str, ...]) -> Iterator[Embedded]:
    for index, text in enumerate(words):
        following = words[index + 1] if index + 1 < len(words) else ""
        if text in ("-c", "--config-env") and not _PROGRAM_SETTINGS.match(following):
            value = following.partition("=")[2]
            yield Embedded(value.removeprefix("!") if value else UNKNOWN, "gives git a setting that may run a program")
        if text.startswith(("--exec-path=", "--upload-pack=", "--receive-pack=", "--extcmd=", "--config-env=")):
            yield Embedded(text.partition("=")[2], "has git run another program")
        if text in _GIT_COMMAND_OPTIONS and following and {"rebase", "filter-branch", "difftool"} & set(words):
            yield Embedded(following, "has git run a command")
        if (text, following) == ("bisect", "run") or (text == "foreach" and "submodule" in words):
            rest = words[index + (2 if text == "bisect" else 1) :]
            yield Embedded(" ".join(one for one in rest if one != "--recursive"), "has git run a command")


def _make(command: SimpleCommand) -> Iterator[Embedded]:
    words = command.arguments
    stdin = any(
        value in ("-", "/dev/stdin", "/dev/fd/0") for value in option_values(command, ("-f", "--file", "--makefile"))
    )
    if stdin:
        text = command.input.text if command.input is not None else UNKNOWN
        lines = [line.lstrip("\t@-+ ") for line in text.splitlines() if line.startswith("\t")]
        inline = [line.partition(";")[2] for line in text.splitlines() if re.match(r"[^\t#=]*:[^=]*;", line)]
        yield Embedded("\n".join((*lines, *inline)) or UNKNOWN, "runs a makefile from its input")
    for text in words:
        if text.startswith(("SHELL=", ".SHELLFLAGS=", "MAKEFLAGS=")):
            yield Embedded(text.partition("=")[2], "has make use another shell")
