"""Commands inside of others: run by wrappers, or in options, scripts of other programs and script files."""

import re
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from talaria.agent.approval.programs import iterate_option_values
from talaria.agent.approval.shell_state import UNKNOWN, ShellState, ShellWord, SimpleCommand, predict_output

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
ASKED_WRAPPERS = frozenset(
    {
    "pkexec", "flock", "systemd-run", "nsenter", "runuser", "setpriv", "capsh", "chrt", "taskset", "cgexec",
    "firejail", "bwrap", "unshare", "proot", "fakeroot", "fakechroot", "faketime", "strace", "ltrace", "gdb",
    "lldb", "valgrind", "perf", "rlwrap", "expect", "unbuffer", "screen", "tmux", "dtach", "abduco", "zellij",
    "start-stop-daemon", "daemonize", "daemon", "sg", "newgrp", "chpst", "softlimit", "setuidgid", "envdir",
    "setlock", "s6-setuidgid", "runsv", "dbus-run-session", "dbus-launch", "xvfb-run", "entr", "watchexec",
    "nodemon", "parallel", "script", "scriptreplay", "chroot", "toybox", "arch", "caffeinate", "coproc", "torsocks",
    "proxychains", "proxychains4", "sshpass", "linux32", "linux64", "setarch", "numactl", "prlimit", "choom",
    "uclampset", "cpulimit", "trickle", "socat", "ncat", "netcat", "machinectl", "lxc-attach", "incus", "distrobox",
    "toolbox", "gosu", "su-exec", "tini", "dumb-init", "catchsegv", "hyperfine", "rr", "bpftrace", "ptrace",
    "peekfd", "reptyr", "su", "mosh", "osascript", "open", "xdg-open",
}
)  # fmt: skip
_LOADER = re.compile(r"ld-(?:linux|musl)[\w.-]*\.so[\w.]*|ld\.so(?:\.\d+)?")
_ENVIRONMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_COMPOUND = frozenset({"if", "for", "while", "until", "case", "select", "[[", "function"})


class EmbeddedCode(Struct, frozen=True):
    """Code that a program is asked to run, `UNKNOWN` if it can't be read; ``how`` describes it for a person."""

    code: str
    how: str


def find_embedded_code(command: SimpleCommand) -> Iterator[EmbeddedCode]:
    """Yield the shell code in the arguments of programs that are not shells."""
    program, words = command.program, command.arguments
    if program in _AWK:
        yield from _find_awk_code(words)
    elif program in ("sed", "gsed"):
        yield from _find_sed_code(command)
    elif program == "git":
        yield from _find_git_code(words)
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
    for value in iterate_option_values(command, _RUNNING_OPTIONS.get(program, ())):
        if not (program in ("ssh", "scp", "sftp") and _HARMLESS_SSH.match(value)):
            code = value.partition("=")[2] if program in ("tar", "ssh", "scp", "sftp") and "=" in value else value
            yield EmbeddedCode(code, f"runs another program through {program}")


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


class _Wrapper(Struct, frozen=True):
    """The argument syntax of a wrapper: options with a value, options without, arguments before the command."""

    short: str = ""
    flags: str = ""
    long: frozenset[str] = frozenset()
    long_flags: frozenset[str] = frozenset()
    skip: int = 0


def _make_wrapper(short: str = "", flags: str = "", long: str = "", long_flags: str = "", skip: int = 0) -> _Wrapper:
    return _Wrapper(short, flags, frozenset(long.split()), frozenset(long_flags.split()), skip)


_WRAPPERS = {
    "env": _make_wrapper("uCS", "i0v", "unset chdir split-string", "ignore-environment null debug"),
    "command": _make_wrapper(flags="pvV"),
    "builtin": _make_wrapper(),
    "exec": _make_wrapper("a", "cl"),
    "nohup": _make_wrapper(),
    "nice": _make_wrapper("n", "0123456789", "adjustment"),
    "time": _make_wrapper("fo", "apvq", "format output", "append verbose portability quiet"),
    "timeout": _make_wrapper("sk", "fpv", "signal kill-after", "foreground preserve-status verbose", skip=1),
    "stdbuf": _make_wrapper("ioe", "", "input output error"),
    "setsid": _make_wrapper("", "cfw", "", "ctty fork wait"),
    "ionice": _make_wrapper("cn", "t", "class classdata", "ignore"),
    "xargs": _make_wrapper(
        "IdEnLPsa", "0rtxpo", "arg-file delimiter max-args max-procs max-chars replace max-lines eof process-slot-var",
        "null no-run-if-empty verbose exit interactive open-tty",
    ),
    "sudo": _make_wrapper(
        "ugpCDRThrtU", "AbEHKknPSsviBNl", "user group prompt chdir chroot host other-user role type command-timeout",
        "preserve-env login non-interactive stdin background set-home shell askpass",
    ),
    "doas": _make_wrapper("uC", "nsL"),
    "busybox": _make_wrapper(),
    "watch": _make_wrapper(
        "nq", "bcdegtpxrw", "interval equexit", "beep color differences errexit chgexit no-title exec"
    ),
}  # fmt: skip


class UnwrappedCommand(Struct, frozen=True):
    """The command that a wrapper runs; ``code`` is shell code it runs instead, ``doubt`` why that is uncertain."""

    command: SimpleCommand
    code: str = ""
    doubt: str = ""


def is_asked_wrapper(program: str) -> bool:
    """Return whether a program runs its arguments in ways that are not analysed here."""
    return program in ASKED_WRAPPERS or bool(_LOADER.fullmatch(program))


def unwrap(command: SimpleCommand) -> UnwrappedCommand | None:
    """Return what a wrapper like ``sudo`` or ``xargs`` runs, ``None`` for other programs."""
    program = command.program
    wrapper = _WRAPPERS.get(program)
    if wrapper is None:
        return None
    if program == "command" and {"-v", "-V"} & set(command.arguments[:1]):
        return UnwrappedCommand(replace(command, words=(), redirects=()))
    at, assignments, values, doubt = _read_options(command, wrapper)
    words = command.words[at:]
    rest = replace(command, words=words, redirects=(), assignments=(*command.assignments, *assignments))
    if program == "env" and (split := values.get("S", values.get("split-string"))) is not None:
        code = " ".join((split, *(word.text for word in words)))
        return UnwrappedCommand(replace(rest, words=()), code, doubt)
    if program == "xargs":
        rest = _add_xargs_input(rest, values)
    if program == "watch" and words:
        return UnwrappedCommand(replace(rest, words=()), " ".join(word.text for word in words), doubt)
    if program == "time" and words and words[0].text in ("{", "(", "!"):
        rest = replace(rest, words=words[1:])
    elif words and words[0].text in _COMPOUND and program == "time":
        doubt = "has a part that can't be parsed"
    return UnwrappedCommand(rest, "", doubt)


def _find_awk_code(words: tuple[str, ...]) -> Iterator[EmbeddedCode]:
    for text in words:
        if len(text) > _LONGEST_SCRIPT:
            yield EmbeddedCode(UNKNOWN, "runs a long awk program")
        elif _AWK_RUNS.search(text):
            yield EmbeddedCode("\n".join(_QUOTED.findall(text)) or UNKNOWN, "runs a command or writes a file from awk")


def _find_sed_code(command: SimpleCommand) -> Iterator[EmbeddedCode]:
    scripts = list(iterate_option_values(command, ("-e", "--expression")))
    plain = [text for text in command.arguments if not text.startswith("-")]
    for text in scripts or plain[:1]:
        if len(text) > _LONGEST_SCRIPT:
            yield EmbeddedCode(UNKNOWN, "runs a long sed script")
        else:
            yield from (EmbeddedCode(code or UNKNOWN, "runs a command from sed") for code in _find_sed_commands(text))


def _find_sed_commands(script: str) -> Iterator[str]:
    """Yield commands that a sed script may run: after the command ``e``, or as the result of a substitution."""
    yield from (found[1] or "" for found in _SED_COMMAND.finditer(script))
    for found in _SED_SUBSTITUTION.finditer(script):
        _, *pieces = script[found.end() + 1 :].split(found[1])
        if any(_SED_RUN_FLAG.match(piece) for piece in pieces[1:]):
            yield pieces[0] if len(pieces) == 2 else ""  # an escaped delimiter: the end of the parts is unknown


def _find_git_code(words: tuple[str, ...]) -> Iterator[EmbeddedCode]:
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
        value in ("-", "/dev/stdin", "/dev/fd/0")
        for value in iterate_option_values(command, ("-f", "--file", "--makefile"))
    )
    if stdin:
        text = command.input.text if command.input is not None else UNKNOWN
        lines = [line.lstrip("\t@-+ ") for line in text.splitlines() if line.startswith("\t")]
        inline = [line.partition(";")[2] for line in text.splitlines() if re.match(r"[^\t#=:]*:[^=;]*;", line)]
        yield EmbeddedCode("\n".join((*lines, *inline)) or UNKNOWN, "runs a makefile from standard input")
    for text in words:
        if text.startswith(("SHELL=", ".SHELLFLAGS=", "MAKEFLAGS=")):
            yield EmbeddedCode(text.partition("=")[2], "makes make use another shell")


def _read_options(command: SimpleCommand, wrapper: _Wrapper) -> tuple[int, list[tuple[str, str]], dict[str, str], str]:
    """Return where the command starts, its assignments, the values of options, and a doubt."""
    texts = [word.text for word in command.words]
    at, skip, doubt = 1, wrapper.skip, ""
    assignments: list[tuple[str, str]] = []
    values: dict[str, str] = {}
    while at < len(texts):
        text = texts[at]
        if text == "--":
            at += 1
            break
        assigned = _ENVIRONMENT.fullmatch(text) if command.program in ("env", "sudo", "doas") else None
        if text.startswith("-") and text != "-":
            used, unknown = _read_option(texts, at, wrapper, values)
            doubt = doubt or (f"passes {command.program} an unknown option" if unknown else "")
            at += used
        elif assigned:
            assignments.append((assigned[1], assigned[2]))
            at += 1
        elif skip:
            skip, at = skip - 1, at + 1
        else:
            break
    while skip and at < len(texts):
        skip, at = skip - 1, at + 1
    while command.program == "env" and at < len(texts) and (assigned := _ENVIRONMENT.fullmatch(texts[at])):
        assignments.append((assigned[1], assigned[2]))
        at += 1
    return at, assignments, values, doubt


def _read_option(texts: list[str], at: int, wrapper: _Wrapper, values: dict[str, str]) -> tuple[int, bool]:
    """Return how many arguments an option takes, and whether that is a guess; record its value."""
    text = texts[at]
    following = texts[at + 1] if at + 1 < len(texts) else ""
    if UNKNOWN in text:
        return 1, True
    if text.startswith("--"):
        name, equals, value = text[2:].partition("=")
        if name in wrapper.long:
            values[name] = value if equals else following
            return (1 if equals or name in ("replace", "max-lines", "eof") else 2), False
        return 1, name not in wrapper.long_flags
    for index, letter in enumerate(text[1:], 2):
        if letter in wrapper.short:
            values[letter] = text[index:] or following
            return (1 if text[index:] else 2), False
        if letter not in wrapper.flags:
            return 1, True
    return 1, False


def _add_xargs_input(rest: SimpleCommand, values: dict[str, str]) -> SimpleCommand:
    """Return the command of xargs with the arguments it reads from its input."""
    text = rest.input.text if rest.input is not None and not {"a", "arg-file"} & values.keys() else UNKNOWN
    items = [ShellWord(one, loose=UNKNOWN in one) for one in text.split()] or [ShellWord(UNKNOWN, loose=True)]
    words = rest.words or (ShellWord("echo"),)
    mark = values.get("I") or values.get("replace") or ("{}" if "replace" in values else "")
    if mark:
        item = items[0].text if len(items) == 1 else UNKNOWN
        words = tuple(replace(word, text=word.text.replace(mark, item)) for word in words)
    else:
        words = (*words, *items)
    return replace(rest, words=words, input=None)
