"""Knowledge about common programs: dangers, and the paths they read and write."""

import re
from collections.abc import Iterator

from talaria.agent.approval.grants import Danger
from talaria.agent.approval.shell_state import FIND_FILTERS, UNKNOWN, SimpleCommand
from talaria.core.own_commands import OwnCommand, is_policy_variable, judge_own_command

_PYTHONS = ("python", "pypy")


def find_own_command_dangers(command: SimpleCommand) -> Iterator[Danger]:
    """Yield the dangers of a command that runs Talaria."""
    words = _find_own_arguments(command)
    if words is None:
        return
    judged = judge_own_command(words)
    computed = any(UNKNOWN in word for word in words)
    if judged is OwnCommand.REFUSED or any(is_policy_variable(name) for name, _ in command.assignments):
        yield Danger(
            "privilege", "changes the agent's own permissions, which only a person may do, in a terminal", fatal=True
        )
    elif judged is OwnCommand.ACTS or computed:
        yield Danger("privilege", "runs the talaria command", f"talaria {words[0] if words else ''}".strip())


def find_variable_dangers(name: str) -> Iterator[Danger]:
    """Yield the dangers of setting a variable."""
    if is_policy_variable(name):
        yield Danger("privilege", f"sets {name}, which overrides the agent's settings", name)


def _find_own_arguments(command: SimpleCommand) -> tuple[str, ...] | None:
    """Return the arguments after ``talaria``, however it is started; ``None`` for other programs."""
    words = command.arguments
    if command.program == "talaria":
        return words
    if not command.program.startswith(_PYTHONS):
        return None
    for index, word in enumerate(words):
        module = words[index + 1] if word == "-m" and index + 1 < len(words) else word[2:] if word[:2] == "-m" else ""
        if module == "talaria" or module.startswith("talaria."):
            return words[index + (2 if word == "-m" else 1) :]
        if not word.startswith("-"):
            script = word.rstrip("/").rpartition("/")[2]
            inside = script in ("talaria", "__main__.py") and "talaria" in word
            return words[index + 1 :] if inside else None
    return None


SHELLS = frozenset({
    "sh", "bash", "zsh", "dash", "ksh", "mksh", "ash", "fish", "rbash", "csh", "tcsh", "yash",
})  # fmt: skip


INTERPRETERS = frozenset(
    {
    "python", "python3", "python2", "pypy", "pypy3", "perl", "ruby", "node", "nodejs", "php", "lua", "luajit",
    "deno", "bun", "tclsh", "wish", "guile", "Rscript", "julia",
}
)  # fmt: skip


NETWORK = frozenset({
    "curl", "wget", "fetch", "aria2c", "nc", "ncat", "netcat", "socat", "http", "https",
})  # fmt: skip


PRINTING_PROGRAMS = frozenset(("echo", "printf", ":", "true", "false"))
HARMLESS = PRINTING_PROGRAMS | frozenset(
    {
    "cd", "pwd", "ls", "cat", "head", "tail", "wc", "date", "whoami", "uname", "test", "[", "[[", "grep", "rg",
    "which", "type", "basename", "dirname", "sort", "uniq", "cut", "tr", "diff", "stat", "file", "sleep", "exit",
    "break", "continue", "return", "export", "set", "read", "seq", "id", "hostname", "df", "du", "ps", "tree", "jq",
    "unset", "local", "declare", "typeset", "readonly", "shift", "wait", "jobs", "let", "shopt", "pushd", "popd",
    "dirs", "getopts", "mapfile", "readarray", "hash", "ulimit", "umask",
}
)  # fmt: skip


_SUBCOMMANDS = frozenset(
    {
    "git", "npm", "pnpm", "yarn", "pip", "pip3", "uv", "docker", "podman", "cargo", "apt", "apt-get", "brew", "go",
    "gh", "dnf", "yum", "apk", "gem", "poetry", "conda", "kubectl", "systemctl", "make", "snap", "sudo", "npx",
    "pipx", "talaria", "aws", "gcloud", "terraform", "helm", "rustup",
}
)  # fmt: skip


_INSTALLERS = {
    **dict.fromkeys(
        ("pip", "pip3", "pipx", "brew", "gem", "cargo", "go", "conda", "snap", "dnf", "yum"),
        frozenset({"install", "uninstall"}),
    ),
    **dict.fromkeys(("apt", "apt-get"), frozenset({"install", "remove", "purge", "upgrade", "full-upgrade"})),
    **dict.fromkeys(("npm", "pnpm", "yarn", "bun"), frozenset({"install", "i", "add", "ci", "exec", "dlx"})),
    "uv": {"add", "sync", "tool", "pip"},
    "poetry": {"add", "install"},
    "apk": {"add", "del"},
    "pacman": {"-S", "-Syu", "-Sy", "-R", "-Rs"},
    "npx": {""},
    "uvx": {""},
    "bunx": {""},
}


_RUNS_BY_GIT = re.compile(
    r"alias\.|core\.(?!quotepath|autocrlf|filemode|ignorecase|bare)|filter\.|diff\..*(?:command|textconv)|merge\..*driver|"
    r"(?:pager|editor|sequence|credential|gpg|include|url)\b",
    re.IGNORECASE,
)


_OPENS_HOST = re.compile(r"--privileged|(?:-v=?|--volume=|--mount=.*source=)?/(?:etc|home|root|var)?:")
_SHUTDOWN_PROGRAMS = frozenset({"shutdown", "reboot", "halt", "poweroff", "init", "telinit"})
_SERVICE_QUERIES = frozenset({
    "status", "show", "list-units", "list-unit-files", "is-active", "is-enabled", "is-failed", "cat", "help",
})  # fmt: skip


_CHANGES_MACHINE = frozenset(
    {
    "iptables", "ip6tables", "nft", "ufw", "firewall-cmd", "mount", "umount", "useradd", "usermod", "userdel",
    "groupadd", "adduser", "deluser", "passwd", "chpasswd", "visudo", "insmod", "modprobe", "rmmod", "sysctl",
    "swapoff", "losetup", "cryptsetup", "lvremove", "vgremove", "zfs", "zpool", "setcap", "chattr",
}
)  # fmt: skip


_RISKY_CODE = re.compile(
    r"\brmtree\b|\bsystem\s*\(|\bsubprocess\b|\bos\.(?:exec|spawn|kill|popen|remove|unlink|rmdir|removedirs)|\bpty\.spawn\b|"
    r"child_process|FileUtils\.rm|\brm(?:dir)?Sync\b|\bunlink|\bqx\b|\bPopen\b|\bexecSync\b|\b__import__\b|\bexec\s*\(|"
    r"\bFile\.delete\b|\bctypes\b|\bshell_exec\b|\bpassthru\b|`"
)


_SHOWS_CREDENTIALS = (
    ("gh", "auth", "token"), ("gh", "auth", "status"), ("gcloud", "auth", "print-access-token"),
    ("gcloud", "auth", "print-identity-token"), ("gcloud", "auth", "application-default"), ("aws", "configure", "get"),
    ("aws", "configure", "export-credentials"), ("aws", "sts", "get-session-token"),
    ("aws", "ecr", "get-login-password"),
    ("az", "account", "get-access-token"), ("git", "credential"), ("kubectl", "config", "view"), ("security",),
    ("pass",), ("op", "read"), ("op", "item"), ("bw", "get"), ("secret-tool",), ("vault", "kv"), ("vault", "read"),
    ("vault", "token"), ("heroku", "auth"), ("flyctl", "auth"), ("fly", "auth"), ("doctl", "auth"), ("npm", "token"),
    ("keyring", "get"), ("gpg", "--export-secret-keys"), ("ssh-add", "-L"), ("docker", "login"), ("glab", "auth"),
)  # fmt: skip


_WRITES_ALL_ARGUMENTS = frozenset({
    "rm", "rmdir", "touch", "mkdir", "tee", "truncate", "shred", "unlink", "mv", "mkfifo",
})  # fmt: skip


_WRITES_ALL_BUT_FIRST = frozenset({"chmod", "chown", "chgrp"})
_WRITES_LAST_ARGUMENT = frozenset({"cp", "ln", "install", "rsync", "scp", "link"})
_OUTPUT_OPTIONS = {
    "curl": ("-o", "--output", "--output-dir"), "wget": ("-O", "-P", "--output-document", "--directory-prefix"),
    "tar": ("-C", "--directory"), "unzip": ("-d",), "cp": ("-t", "--target-directory"),
    "mv": ("-t", "--target-directory"), "sort": ("-o", "--output"),
    "git": ("-C", "--work-tree", "--git-dir"), "make": ("-C", "--directory"), "npm": ("--prefix",), "yarn": ("--cwd",),
    "find": ("-fprint", "-fprint0", "-fprintf", "-fls"), "ln": ("-t",), "install": ("-t",),
}  # fmt: skip


_BUNDLERS = frozenset({
    "tar", "zip", "7z", "rsync", "scp", "cp", "grep", "rg", "ag", "ack", "cpio", "pax", "rclone",
})  # fmt: skip


def find_program_dangers(command: SimpleCommand) -> Iterator[Danger]:
    """Yield the known dangers of this program with these arguments, wherever it runs."""
    program, words, subject = command.program, command.arguments, subject_of(command)
    if program.startswith(("mkfs", "wipefs")) or program in ("fdisk", "parted", "sgdisk", "blkdiscard", "mkswap"):
        yield Danger("device", f"{program} overwrites a disk", subject, fatal=program.startswith(("mkfs", "wipefs")))
    if program in _SHUTDOWN_PROGRAMS or (
        program == "systemctl" and set(words) & {*_SHUTDOWN_PROGRAMS, "suspend", "kexec"}
    ):
        yield Danger("system", "shuts down or restarts the machine", subject)
    elif program in ("systemctl", "service", "launchctl") and not _SERVICE_QUERIES & set(words):
        yield Danger("system", f"changes system services with {program}", subject)
    if program == "kill" and "-1" in [text for text in words if text != "--"][1:]:
        yield Danger("system", "kills all of your processes", fatal=True)
    if program == "su" or (program in ("docker", "podman") and any(map(_OPENS_HOST.match, words))):
        yield Danger("privilege", f"runs with elevated privileges ({program})", subject)
    if program in ("pkill", "killall") and {"-u", "--user", "-U"} & set(words):
        yield Danger("system", "kills all processes of a user", subject)
    if program in _CHANGES_MACHINE:
        yield Danger("system", f"changes the system with {program}", subject)
    if any((program, *words)[: len(shown)] == shown for shown in _SHOWS_CREDENTIALS):
        yield Danger("credentials", f"shows credentials ({subject})", subject)
    yield from _schedule_dangers(command)
    yield from _find_git_dangers(command)
    yield from _install_dangers(command)


def list_written_paths(command: SimpleCommand) -> list[str]:
    """Return the arguments that name what this program writes or removes."""
    program, plain = command.program, _list_positional_arguments(command)
    written = [text.partition("=")[2] for text in command.arguments if program == "dd" and text.startswith("of=")]
    if program in _WRITES_ALL_ARGUMENTS:
        written += plain
    elif program in _WRITES_ALL_BUT_FIRST:
        written += plain[1:]
    elif program in _WRITES_LAST_ARGUMENT and len(plain) > 1:
        written += [] if re.match(r"[\w.@-]+:", plain[-1]) else plain[-1:]
    elif program in ("sed", "perl") and any(re.match(r"-[a-zA-Z]*i|--in-place", text) for text in command.arguments):
        written += plain if {"-e", "-f"} & set(command.arguments) else plain[1:]
    elif program == "find" and "-delete" in command.arguments:
        written += [text for text in plain[:1] if not text.startswith(("(", "!"))] or ["."]
    return [*written, *iterate_option_values(command, _OUTPUT_OPTIONS.get(program, ()))]


def list_read_paths(command: SimpleCommand) -> Iterator[str]:
    """Yield the arguments that may name files, not patterns or messages."""
    skip_first = command.program in ("grep", "egrep", "fgrep", "rg", "ag", "awk", "gawk", "mawk", "sed", "jq")
    previous = ""
    for text in command.arguments:
        value = previous in ("-name", "-iname", "-path", "-m", "--message", "-regex", "--include", "--exclude", "-e")
        previous = text
        if value or (skip_first and not text.startswith("-")):
            skip_first = False
            continue
        yield from {text, *(part for mark in "=:@" if (part := text.rpartition(mark)[2]))}


def list_bundled_paths(command: SimpleCommand) -> list[str]:
    """Return the arguments of a program that reads whole folders: an archiver, a copy, a search."""
    if command.program not in _BUNDLERS:
        return []
    recursive = any(re.match(r"-\w*[rRa]|--recursive|--archive", text) for text in command.arguments)
    if command.program in ("cp", "grep", "scp", "zip") and not recursive:
        return []
    plain = _list_positional_arguments(command)
    return plain[1:] if command.program in ("grep", "rg", "ag", "ack") else plain


def list_link_targets(command: SimpleCommand) -> list[str]:
    """Return the target of a symbolic link being created."""
    if command.program != "ln" or not any(re.match(r"-\w*s|--symbolic", text) for text in command.arguments):
        return []
    plain = _list_positional_arguments(command)
    return plain[:1] if len(plain) < 3 else plain[:-1]


def changes_rights_below(command: SimpleCommand) -> bool:
    """Return whether a program changes owner or mode of a whole folder."""
    recursive = any(re.match(r"-\w*R|--recursive", text) for text in command.arguments)
    return command.program in _WRITES_ALL_BUT_FIRST and recursive


def subject_of(command: SimpleCommand) -> str:
    """Return program and subcommand, as rules name them."""
    program, words = command.program, command.arguments
    if program in ("python", "python3") and words[:1] == ("-m",):
        return " ".join((program, *words[:3]))
    subcommand = next((text for text in words if not text.startswith("-")), "") if program in _SUBCOMMANDS else ""
    return f"{program} {subcommand}".strip().replace(UNKNOWN, "…")


def hides_subcommand(command: SimpleCommand) -> bool:
    """Return whether the subcommand of a program can't be determined."""
    if command.program in ("find", "tar", "rsync"):
        return any(word.loose for word in command.words[1:])
    if command.program not in _SUBCOMMANDS:
        return False
    first = next((word for word in command.words[1:] if not word.text.startswith("-")), None)
    return first is not None and UNKNOWN in first.text


def starts_programs(code: str) -> bool:
    """Return whether code starts other programs or deletes files."""
    return bool(_RISKY_CODE.search(code))


def is_recursive(command: SimpleCommand) -> bool:
    """Return whether a program deletes whole folders."""
    options = [text for text in command.arguments if text.startswith("-")]
    if command.program == "find":
        return "-delete" in options and not FIND_FILTERS & set(options)
    short = "".join(option for option in options if not option.startswith("--"))
    long = any("--recursive".startswith(option) and len(option) > 3 for option in options)
    return command.program == "rm" and (long or bool(set("rR") & set(short)))


def iterate_option_values(command: SimpleCommand, options: tuple[str, ...]) -> Iterator[str]:
    """Yield the values of some options, separate or joined with ``=`` or, for short ones, directly."""
    words = command.arguments
    for index, text in enumerate(words):
        if text in options and index + 1 < len(words):
            yield words[index + 1]
        yield from (text[len(option) + 1 :] for option in options if text.startswith(f"{option}="))
        yield from (text[2:] for one in options if len(one) == 2 and text.startswith(one) and text[2:])


def _schedule_dangers(command: SimpleCommand) -> Iterator[Danger]:
    program, words, subject = command.program, command.arguments, subject_of(command)
    if program == "crontab" and not set(words) <= {"-l"}:
        yield Danger("start-up", "changes the crontab", subject)
    if program in ("at", "batch") and words != ("-l",):
        yield Danger("start-up", "schedules a command to run later", subject)


def _find_git_dangers(command: SimpleCommand) -> Iterator[Danger]:
    words = command.arguments
    if command.program != "git":
        return
    if "config" in words and {"--global", "--system"} & set(words):
        yield Danger("start-up", "changes the global git configuration", "git config")
    elif "config" in words and any(map(_RUNS_BY_GIT.match, words)):
        yield Danger("start-up", "changes which programs git runs automatically", "git config")
    if "push" not in words:
        return
    forced = any(re.match(r"--force|--mirror|--delete|-[a-zA-Z]*[fd]|\+", text) for text in words)
    if forced:
        yield Danger("history", "overwrites or deletes other people's work (git push)", "git push")


def _install_dangers(command: SimpleCommand) -> Iterator[Danger]:
    program, words = command.program, command.arguments
    if program in ("python", "python3") and words[:2] == ("-m", "pip"):
        program, words = "pip", words[2:]
    verbs = _INSTALLERS.get(program)
    if verbs is None:
        return
    first = next((text for text in words if not text.startswith("-") or text in verbs), "")
    if first in verbs or "" in verbs:
        yield Danger("packages", f"installs or changes software ({program})", subject_of(command))


def _list_positional_arguments(command: SimpleCommand) -> list[str]:
    words = command.arguments
    if "--" in words:
        cut = words.index("--")
        return [*(text for text in words[:cut] if not text.startswith("-")), *words[cut + 1 :]]
    return [text for text in words if not text.startswith("-")]
