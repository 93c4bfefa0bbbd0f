"""What well-known programs do with their words."""

import re
from collections.abc import Iterator

from msgspec.structs import replace

from talaria.agent.approval.dangers import Danger
from talaria.agent.approval.shell_commands import SimpleCommand
from talaria.agent.approval.shell_words import UNKNOWN

SHELLS = {"sh", "bash", "zsh", "dash", "ksh", "ash", "fish"}
REMOTE = {"ssh", "su", "mosh"}
INTERPRETERS = {"python", "python3", "python2", "perl", "ruby", "node", "php", "lua", "deno", "bun", "osascript"}
NETWORK = {"curl", "wget", "fetch", "aria2c", "nc", "ncat", "socat", "http", "https"}
TALKERS = {"echo", "printf", ":", "true", "false"}
HARMLESS = {
    *TALKERS, "cd", "pwd", "ls", "cat", "head", "tail", "wc", "date", "whoami", "uname", "test", "[", "[[", "grep",
    "rg", "which", "type", "basename", "dirname", "sort", "uniq", "cut", "tr", "diff", "stat", "file", "sleep", "exit",
    "break", "continue", "return", "export", "set", "read", "seq", "id", "hostname", "df", "du", "ps", "tree", "jq",
}  # fmt: skip

_WRAPPERS = {
    "env", "command", "builtin", "exec", "nohup", "nice", "time", "timeout", "stdbuf", "setsid", "ionice", "xargs",
    "sudo", "doas", "busybox", "watch", "parallel", "chroot", "unshare", "strace", "caffeinate", "arch", "script",
}  # fmt: skip
_OPTIONS_WITH_VALUE = {
    "env": "uCS", "nice": "n", "timeout": "sk", "stdbuf": "ioe", "ionice": "cnp", "xargs": "IdEnLPsa",
    "sudo": "ugpCDRT", "doas": "uC", "watch": "nd", "parallel": "jIN", "exec": "a", "strace": "eop",
}  # fmt: skip
_ARGUMENTS_FIRST = {"timeout": 1, "chroot": 1}
_SUBCOMMANDS = {
    "git", "npm", "pnpm", "yarn", "pip", "pip3", "uv", "docker", "podman", "cargo", "apt", "apt-get", "brew", "go",
    "gh", "dnf", "yum", "apk", "gem", "poetry", "conda", "kubectl", "systemctl", "make", "snap", "sudo", "npx", "pipx",
}  # fmt: skip
_INSTALLERS = {
    **dict.fromkeys(
        ("pip", "pip3", "pipx", "brew", "gem", "cargo", "go", "conda", "snap", "dnf", "yum"),
        frozenset({"install", "uninstall"}),
    ),
    **dict.fromkeys(("apt", "apt-get"), frozenset({"install", "remove", "purge", "upgrade", "full-upgrade"})),
    **dict.fromkeys(("npm", "pnpm", "yarn", "bun"), frozenset({"install", "i", "add", "ci"})),
    "uv": {"add", "sync", "tool", "pip"},
    "poetry": {"add", "install"},
    "apk": {"add", "del"},
    "pacman": {"-S", "-Syu", "-Sy", "-R", "-Rs"},
    "npx": {""},
    "uvx": {""},
}
_OPENS_HOST = re.compile(r"--privileged|(?:-v=?|--volume=|--mount=.*source=)?/(?:etc|home|root|var)?:")
_SWITCH_OFF = {"shutdown", "reboot", "halt", "poweroff", "init", "telinit"}
_RISKY_CODE = re.compile(
    r"\brmtree\b|\bsystem\s*\(|\bsubprocess\b|\bos\.exec|\bos\.kill|\bpty\.spawn\b|child_process|FileUtils\.rm|"
    r"\brmSync\b|\bqx\b|\bos\.removedirs\b"
)
_ALL_WORDS = {"rm", "rmdir", "touch", "mkdir", "tee", "truncate", "shred", "unlink", "mv", "mkfifo"}
_BUT_FIRST = {"chmod", "chown", "chgrp"}
_LAST_WORD = {"cp", "ln", "install", "rsync"}
_OUTPUT_OPTIONS = {
    "curl": ("-o", "--output", "--output-dir"), "wget": ("-O", "-P", "--output-document", "--directory-prefix"),
    "tar": ("-C", "--directory"), "unzip": ("-d",), "cp": ("-t",), "mv": ("-t",), "sort": ("-o",), "git": ("-C",),
}  # fmt: skip


def unwrapped(command: SimpleCommand) -> tuple[SimpleCommand | None, list[Danger]]:
    """Return the command that a wrapper such as ``sudo`` or ``xargs`` runs, ``None`` for what is no wrapper."""
    program = command.program
    if program not in _WRAPPERS:
        return None, []
    values, skip = _OPTIONS_WITH_VALUE.get(program, ""), _ARGUMENTS_FIRST.get(program, 0)
    index = 1
    while index < len(command.words):
        text = command.words[index].text
        if text.startswith("-") and text != "-":
            index += 2 if len(text) == 2 and text[1] in values else 1
        elif program == "env" and re.match(r"\w+=", text):
            index += 1
        elif skip:
            skip, index = skip - 1, index + 1
        else:
            break
    rest = replace(command, words=command.words[index:], redirects=())
    if program == "env" and index > 1 and command.words[index - 2].text == "-S":
        rest = replace(command, words=command.words[index - 1 :], redirects=())
    if rest.words and program in ("watch", "parallel", "env") and " " in rest.words[0].text:
        rest = replace(rest, words=(replace(rest.words[0], text="sh"), replace(rest.words[0], text="-c"), *rest.words))
    return rest, _wrapper_dangers(program, rest)


def known_dangers(command: SimpleCommand) -> Iterator[Danger]:
    """Yield what is known to be dangerous of this program with these words, wherever it runs."""
    program, words, subject = command.program, command.arguments, subject_of(command)
    if program.startswith(("mkfs", "wipefs")) or program in ("fdisk", "parted", "sgdisk", "blkdiscard"):
        yield Danger("device", f"{program} overwrites a disk", subject, fatal=program.startswith(("mkfs", "wipefs")))
    if program in _SWITCH_OFF or (program == "systemctl" and set(words) & {*_SWITCH_OFF, "suspend", "kexec"}):
        yield Danger("system", "switches the machine off or restarts it", subject)
    if program == "kill" and "-1" in [text for text in words if text != "--"][1:]:
        yield Danger("system", "kills every process of the person", fatal=True)
    if program == "crontab" and not set(words) <= {"-l"}:
        yield Danger("start-up", "changes what runs by itself: the crontab", subject)
    if program in ("chmod", "chown") and {"-R", "--recursive"} & set(words) and {"/", "/*"} & set(words):
        yield Danger("system", f"changes the rights of the whole machine with {program}", fatal=True)
    if program in ("at", "batch") and words != ("-l",):
        yield Danger("start-up", "has something run later by itself", subject)
    if program == "su" or (program in ("docker", "podman") and any(map(_OPENS_HOST.match, words))):
        yield Danger("privilege", f"runs with more rights ({program})", subject)
    if program in ("pkill", "killall") and {"-u", "--user", "-U"} & set(words):
        yield Danger("system", "kills every process of a person", subject)
    if program in ("iptables", "nft", "ufw", "mount", "umount", "useradd", "usermod", "userdel", "passwd", "visudo"):
        yield Danger("system", f"changes the machine with {program}", subject)
    yield from _git_dangers(command)
    yield from _installations(command)


def written_paths(command: SimpleCommand) -> list[str]:
    """Return the words that name what this program writes or removes."""
    program, plain = command.program, _plain_words(command)
    written = [text.partition("=")[2] for text in command.arguments if program == "dd" and text.startswith("of=")]
    if program in _ALL_WORDS:
        written += plain
    elif program in _BUT_FIRST:
        written += plain[1:]
    elif program in _LAST_WORD and len(plain) > 1:
        written += [] if ":" in plain[-1] else plain[-1:]
    elif program in ("sed", "perl") and any(re.match(r"-[a-zA-Z]*i|--in-place", text) for text in command.arguments):
        written += plain[1:]
    elif program == "find" and "-delete" in command.arguments:
        written += [text for text in plain[:1] if not text.startswith(("(", "!"))] or ["."]
    return [*written, *_option_values(command, _OUTPUT_OPTIONS.get(program, ()))]


def read_words(command: SimpleCommand) -> Iterator[str]:
    """Yield the words that may name files; what is a pattern or a message does not."""
    skip_first = command.program in ("grep", "egrep", "fgrep", "rg", "ag", "awk", "sed", "jq")
    previous = ""
    for text in command.arguments:
        value = previous in ("-name", "-iname", "-path", "-m", "--message", "-regex", "--include", "--exclude", "-e")
        previous = text
        if value or (skip_first and not text.startswith("-")):
            skip_first = False
            continue
        yield from {text, *(part for mark in "=:@" if (part := text.rpartition(mark)[2]))}


def subject_of(command: SimpleCommand) -> str:
    """Return program and subcommand, as a rule names them."""
    program, words = command.program, command.arguments
    if program in ("python", "python3") and words[:1] == ("-m",):
        return " ".join((program, *words[:3]))
    subcommand = next((text for text in words if not text.startswith("-")), "") if program in _SUBCOMMANDS else ""
    return f"{program} {subcommand}".strip().replace(UNKNOWN, "…")


def starts_programs(code: str) -> bool:
    """Return whether a program text starts other programs or deletes folders."""
    return bool(_RISKY_CODE.search(code))


def _wrapper_dangers(program: str, rest: SimpleCommand) -> list[Danger]:
    if program in ("sudo", "doas", "chroot"):
        return [Danger("privilege", f"runs with more rights ({program})", f"{program} {subject_of(rest)}".strip())]
    if program in ("xargs", "parallel") and rest.program in {*SHELLS, "eval"} and "-c" not in rest.arguments:
        return [Danger("code", "runs what another command prints as shell code", narrow=True)]
    if program == "xargs" and rest.program == "rm" and any(re.match(r"-\w*[rR]", text) for text in rest.arguments):
        return [Danger("deletion", "deletes folders whose names are computed", narrow=True)]
    return []


def _git_dangers(command: SimpleCommand) -> Iterator[Danger]:
    words = command.arguments
    if command.program == "git" and "config" in words and {"--global", "--system"} & set(words):
        yield Danger("start-up", "changes git for all projects", "git config")
    if command.program != "git" or "push" not in words:
        return
    forced = any(re.match(r"--force|--mirror|--delete|-[a-zA-Z]*[fd]|\+", text) for text in words)
    if forced:
        yield Danger("history", "overwrites or deletes what others may have (git push)", "git push")


def _installations(command: SimpleCommand) -> Iterator[Danger]:
    program, words = command.program, command.arguments
    if program in ("python", "python3") and words[:2] == ("-m", "pip"):
        program, words = "pip", words[2:]
    verbs = _INSTALLERS.get(program)
    if verbs is None:
        return
    first = next((text for text in words if not text.startswith("-") or text in verbs), "")
    if first in verbs or "" in verbs:
        yield Danger("packages", f"installs or changes software ({program})", subject_of(command))


def _plain_words(command: SimpleCommand) -> list[str]:
    words = command.arguments
    if "--" in words:
        cut = words.index("--")
        return [*(text for text in words[:cut] if not text.startswith("-")), *words[cut + 1 :]]
    return [text for text in words if not text.startswith("-")]


def _option_values(command: SimpleCommand, options: tuple[str, ...]) -> Iterator[str]:
    words = command.arguments
    for index, text in enumerate(words):
        if text in options and index + 1 < len(words):
            yield words[index + 1]
        yield from (text[len(option) + 1 :] for option in options if text.startswith(f"{option}="))
