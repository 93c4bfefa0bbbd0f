"""Audit of a skill: its scripts, the command lines and addresses in its texts, and the tools it asks for."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import PurePosixPath

from talaria.contracts.skills import SkillAudit, SkillFileInfo
from talaria.core.text_formats import split_front_matter
from talaria.tools.skills.registry import HEAD

_MOST_SHOWN = 200
_LONGEST = 200
_SCRIPTS = frozenset(
    [
        ".sh",
        ".bash",
        ".zsh",
        ".fish",
        ".py",
        ".pyw",
        ".js",
        ".mjs",
        ".cjs",
        ".ts",
        ".rb",
        ".pl",
        ".php",
        ".lua",
        ".ps1",
        ".bat",
        ".cmd",
        ".exe",
        ".so",
        ".dylib",
        ".jar",
        ".wasm",
    ]
)
_SHELLS = frozenset({"sh", "bash", "shell", "zsh", "console", "terminal", "shell-session", "powershell", "fish"})
_INLINE_SHELL = re.compile(r"!`([^`\n]+)`")
_ADDRESS = re.compile(r"\b((?:https?|wss?|ftp|git|ssh)://[\w.@:\[\]-]+)")
_SCP = re.compile(r"\b(?:git|root)@[\w.-]+\.\w+:[\w./-]+")
_HIDDEN = re.compile("[\u200b\u202a-\u202e\u2060-\u2064\u2066-\u2069\U000e0000-\U000e007f]")
_ORDERS = re.compile(
    r"(?i)(ignore|disregard|forget)\s+(all\s+|any\s+)?(previous|prior|above|earlier)\s+(instructions|rules|prompts)"
    r"|do\s+not\s+tell\s+the\s+(user|person)"
)
_CREDENTIALS = re.compile(r"(?i)~/\.(ssh|aws|gnupg|netrc|kube|docker)\b|\bid_(rsa|ed25519)\b|/etc/shadow")
_PIPED = re.compile(r"(curl|wget)\b[^\n|]*\|\s*(sudo\s+)?(ba|z|da)?sh\b")
_ENCODED = re.compile(r"base64\s+(-d|--decode|-D)\b|b64decode\(|[A-Za-z0-9+/]{400,}={0,2}")
_SUSPICIOUS = (
    (_HIDDEN, "contains invisible characters"),
    (_ORDERS, "tells its reader to ignore instructions or to hide something"),
    (_PIPED, "runs a program straight from the web"),
    (_CREDENTIALS, "mentions credentials"),
    (_ENCODED, "decodes hidden content"),
)
_LISTED = re.compile(r"""["'`]?([A-Za-z_][\w.*:-]*(?:\([^)]*\))?)["'`]?""")
_NEEDED = re.compile(r'"(bins|anyBins|env)"\s*:\s*\[([^\]]*)\]')
_TOOL_FIELDS = ("allowed-tools", "allowed_tools", "tools")
_NEED_FIELDS = ("requires", "compatibility", "dependencies")

Examine = Callable[[str], Iterable[str]]


def audit_skill(files: Mapping[str, tuple[bytes, bool]], examine: Examine = lambda _: ()) -> SkillAudit:
    """Return what a skill contains and would do; ``examine`` returns the dangers of a command line, as clauses."""
    texts = {path: text for path, (content, _) in sorted(files.items()) if (text := _decode(content)) is not None}
    infos = tuple(
        SkillFileInfo(path, len(content), _is_script(path, content, executable=executable))
        for path, (content, executable) in sorted(files.items())
    )
    commands = list(dict.fromkeys(_list_commands(texts)))
    addresses = sorted({found for text in texts.values() for found in _list_addresses(text)})
    fields = split_front_matter(texts.get(HEAD, ""))[0]
    runs = bool(commands) or any(one.script for one in infos)
    return SkillAudit(
        files=infos,
        commands=tuple(commands[:_MOST_SHOWN]),
        addresses=tuple(addresses[:_MOST_SHOWN]),
        tools=_list_tools(fields, runs=runs, connects=bool(addresses)),
        requires=_list_requirements(fields),
        warnings=tuple(_list_warnings(files, texts, commands, examine)),
    )


def _decode(content: bytes) -> str | None:
    """Return the text of a file, or ``None`` if it is binary."""
    if b"\0" in content[:8_000]:
        return None
    return content.decode("utf-8", "replace")


def _is_script(path: str, content: bytes, *, executable: bool) -> bool:
    return executable or content.startswith(b"#!") or PurePosixPath(path).suffix.lower() in _SCRIPTS


def _list_commands(texts: Mapping[str, str]) -> Iterator[str]:
    """Yield the command lines in blocks of shell code, and those that are run when the skill is loaded."""
    for path, text in texts.items():
        if not path.lower().endswith((".md", ".mdx", ".txt")):
            continue
        yield from _list_shell_lines(text)
        yield from (found.strip()[:_LONGEST] for found in _INLINE_SHELL.findall(text))


def _list_shell_lines(text: str) -> Iterator[str]:
    """Yield the lines of code blocks in a shell's language; continued ones are joined."""
    fence, is_shell, begun = "", False, ""
    for line in map(str.strip, text.splitlines()):
        mark = line[:3]
        if not fence and mark in ("```", "~~~"):
            fence, is_shell, begun = mark, line.strip("`~ ").partition(" ")[0].lower() in _SHELLS, ""
        elif fence and line.startswith(fence):
            fence = ""
        elif fence and is_shell:
            command = f"{begun}{line.removeprefix('$ ').strip()}"
            begun = f"{command[:-1].rstrip()} " if command.endswith("\\") else ""
            if command and not begun and not command.startswith("#"):
                yield command[:_LONGEST]


def _list_addresses(text: str) -> Iterator[str]:
    yield from (found.rstrip(".:-") for found in _ADDRESS.findall(text))
    yield from (found.rstrip(".") for found in _SCP.findall(text))


def _list_tools(fields: Mapping[str, str], *, runs: bool, connects: bool) -> tuple[str, ...]:
    named = [
        found.rstrip(":") for field in _TOOL_FIELDS for found in _LISTED.findall(fields.get(field, "")) if found != "-"
    ]
    implied = [*(["terminal (it has scripts or command lines)"] if runs else [])]
    implied += ["web (it names addresses)"] if connects else []
    return tuple(dict.fromkeys((*named, *implied)))


def _list_requirements(fields: Mapping[str, str]) -> tuple[str, ...]:
    found = [
        f"{'variable' if kind == 'env' else 'program'} {name}"
        for kind, names in _NEEDED.findall(fields.get("metadata", ""))
        for name in re.findall(r'"([^"]+)"', names)
    ]
    return tuple(dict.fromkeys((*found, *(fields[one][:_LONGEST] for one in _NEED_FIELDS if fields.get(one)))))


def _list_warnings(
    files: Mapping[str, tuple[bytes, bool]], texts: Mapping[str, str], commands: Iterable[str], examine: Examine
) -> Iterator[str]:
    binaries = [path for path, (content, executable) in files.items() if path not in texts and executable]
    if binaries:
        yield f"It contains programs that can't be read: {', '.join(sorted(binaries))}."
    for path, text in texts.items():
        yield from (
            f"{path} {clause}." for pattern, clause in _SUSPICIOUS if pattern.search(text.removeprefix("\ufeff"))
        )
    dangers: dict[str, list[str]] = {}
    for command in list(commands)[:_MOST_SHOWN]:
        for danger in examine(command):
            dangers.setdefault(danger, []).append(command)
    for danger, found in dangers.items():
        others = f" (and {len(found) - 1} more like it)" if len(found) > 1 else ""
        yield f"`{found[0]}` {danger}{others}."
