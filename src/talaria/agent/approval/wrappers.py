"""Wrappers: programs that run another command, and those that always need approval."""

import re

from msgspec import Struct
from msgspec.structs import replace

from talaria.agent.approval.shell_state import UNKNOWN, ShellWord, SimpleCommand


class _Wrapper(Struct, frozen=True):
    """The argument syntax of a wrapper: options with a value, options without, arguments before the command."""

    short: str = ""
    flags: str = ""
    long: frozenset[str] = frozenset()
    long_flags: frozenset[str] = frozenset()
    skip: int = 0


def _wrapper(short: str = "", flags: str = "", long: str = "", long_flags: str = "", skip: int = 0) -> _Wrapper:
    return _Wrapper(short, flags, frozenset(long.split()), frozenset(long_flags.split()), skip)


_WRAPPERS = {
    "env": _wrapper("uCS", "i0v", "unset chdir split-string", "ignore-environment null debug"),
    "command": _wrapper(flags="pvV"),
    "builtin": _wrapper(),
    "exec": _wrapper("a", "cl"),
    "nohup": _wrapper(),
    "nice": _wrapper("n", "0123456789", "adjustment"),
    "time": _wrapper("fo", "apvq", "format output", "append verbose portability quiet"),
    "timeout": _wrapper("sk", "fpv", "signal kill-after", "foreground preserve-status verbose", skip=1),
    "stdbuf": _wrapper("ioe", "", "input output error"),
    "setsid": _wrapper("", "cfw", "", "ctty fork wait"),
    "ionice": _wrapper("cn", "t", "class classdata", "ignore"),
    "xargs": _wrapper(
        "IdEnLPsa", "0rtxpo", "arg-file delimiter max-args max-procs max-chars replace max-lines eof process-slot-var",
        "null no-run-if-empty verbose exit interactive open-tty",
    ),
    "sudo": _wrapper(
        "ugpCDRThrtU", "AbEHKknPSsviBNl", "user group prompt chdir chroot host other-user role type command-timeout",
        "preserve-env login non-interactive stdin background set-home shell askpass",
    ),
    "doas": _wrapper("uC", "nsL"),
    "busybox": _wrapper(),
    "watch": _wrapper("nq", "bcdegtpxrw", "interval equexit", "beep color differences errexit chgexit no-title exec"),
}  # fmt: skip

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
        rest = _with_xargs_input(rest, values)
    if program == "watch" and words:
        return UnwrappedCommand(replace(rest, words=()), " ".join(word.text for word in words), doubt)
    if program == "time" and words and words[0].text in ("{", "(", "!"):
        rest = replace(rest, words=words[1:])
    elif words and words[0].text in _COMPOUND and program == "time":
        doubt = "has a part that can't be parsed"
    return UnwrappedCommand(rest, "", doubt)


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
            used, unknown = _option(texts, at, wrapper, values)
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


def _option(texts: list[str], at: int, wrapper: _Wrapper, values: dict[str, str]) -> tuple[int, bool]:
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
    for place, letter in enumerate(text[1:], 2):
        if letter in wrapper.short:
            values[letter] = text[place:] or following
            return (1 if text[place:] else 2), False
        if letter not in wrapper.flags:
            return 1, True
    return 1, False


def _with_xargs_input(rest: SimpleCommand, values: dict[str, str]) -> SimpleCommand:
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
