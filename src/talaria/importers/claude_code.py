"""Home of Claude Code: ``projects/*/*.jsonl``, ``CLAUDE.md``, ``settings.json``, commands, skills and MCP servers."""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from talaria.contracts.imports import ForeignHome, ForeignSession, ForeignSkill, ForeignTranscript
from talaria.core.errors import Refused
from talaria.core.messages import Message, ToolResult, Usage
from talaria.core.text_formats import split_front_matter
from talaria.importers.foreign_files import (
    ForeignFiles,
    as_count,
    as_list,
    as_table,
    as_text,
    read_json_lines,
    read_time,
)
from talaria.importers.foreign_settings import convert_server
from talaria.importers.wire_parts import read_content

_MARKS = ("projects", "settings.json", "CLAUDE.md")
_SOURCE = "claude-code"
_SHORT_NAMES = {"default", "opus", "sonnet", "haiku", "opusplan", "inherit"}
_PERMISSION = re.compile(r"Bash\(([^()*:]+?)(?::\*)?\)")
_NOISE = ("<local-command-", "<command-name>", "Caveat: The messages below were generated")
Entry = Mapping[str, Any]


class Thread(Struct, frozen=True):
    """One line of conversation in a file: its entries, of which the first ``shared`` also belong to the main one."""

    key: str
    entries: list[Entry]
    parent: str = ""
    shared: int = 0


class ClaudeCode:
    """One home of Claude Code; the settings of MCP servers may be in a file next to it."""

    title = "Claude Code"

    def __init__(self, home: Path) -> None:
        self.home = home
        self._files = ForeignFiles(home)
        self._paths: dict[str, Path] = {}
        self._last_read: tuple[Path | None, list[Thread], int] = (None, [], 0)

    def survey(self) -> ForeignHome:
        """Return everything but the messages; raises `Refused` if this isn't a home of Claude Code."""
        if not any((self.home / name).exists() for name in _MARKS):
            raise Refused(f"{self.home} isn't a home of Claude Code: it has neither projects nor settings.json.")
        settings = as_table(self._files.read_json("settings", self.home / "settings.json"))
        keys = {str(name): value for name, value in as_table(settings.get("env")).items() if isinstance(value, str)}
        home = ForeignHome(
            sessions=tuple(self._list_sessions()),
            settings=self._read_settings(settings),
            servers=self._read_servers(settings, keys),
            keys=keys,
            instructions=self._files.read_text("persona", self.home / "CLAUDE.md").strip(),
            notes=self._read_notes(),
            skills=tuple(
                ForeignSkill(head.parent.name, head.parent) for head in sorted(self.home.glob("skills/*/SKILL.md"))
            ),
            commands=dict(self._list_commands()),
        )
        self._note_the_rest(settings)
        return structs.replace(home, skipped=tuple(self._files.skipped))

    def read_transcript(self, session: ForeignSession) -> ForeignTranscript:
        """Return the messages of a session."""
        threads, broken = self._read_threads(self._paths[session.key])
        thread = next(one for one in threads if one.key == session.key)
        problems = [f"{broken} of its lines can't be read."] if broken and not thread.parent else []
        shared = len(to_messages(thread.entries[: thread.shared]))
        return ForeignTranscript(to_messages(thread.entries), shared, tuple(problems))

    def close(self) -> None:
        """Nothing is left to remove."""

    def _list_sessions(self) -> Iterator[ForeignSession]:
        files = sorted((self.home / "projects").glob("*/*.jsonl"))
        files += sorted((self.home / "projects").glob("*/*/subagents/*.jsonl"))
        for file in files:
            try:
                status = file.stat()
                threads, broken = self._read_threads(file)
            except OSError as error:
                self._files.skip("sessions", self._files.format_name(file), f"It can't be read: {error.strerror}.")
                continue
            found = [_to_session(thread, f"{status.st_size}-{status.st_mtime_ns}") for thread in threads]
            if broken and not any(found):
                self._files.skip("sessions", self._files.format_name(file), "It has no line that can be read.")
            for session in filter(None, found):
                self._paths[session.key] = file
                yield session

    def _read_threads(self, file: Path) -> tuple[list[Thread], int]:
        if self._last_read[0] != file:
            entries = [entry for _, entry in read_json_lines(file)]
            broken = sum(entry is None for entry in entries)
            parent = f"{file.parents[1].name}" if file.parent.name == "subagents" else ""
            threads = split_threads(file.stem, [entry for entry in entries if entry is not None], parent)
            self._last_read = (file, threads, broken)
        return self._last_read[1:]

    def _read_settings(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        model = as_text(settings.get("model"))
        if model and model.partition("[")[0] not in _SHORT_NAMES:
            found |= {"model.provider": "anthropic", "model.name": model.partition("[")[0]}
        elif model:
            self._files.skip(
                "settings", f"model {model}", "It names a family of models. Choose one with `talaria model`."
            )
        allow = [as_text(rule) for rule in as_list(as_table(settings.get("permissions")).get("allow"))]
        commands = [match[1].strip() for rule in allow if (match := _PERMISSION.fullmatch(rule))]
        if commands:
            found["approval.allowed"] = list(dict.fromkeys(commands))
        for rule in allow:
            if not _PERMISSION.fullmatch(rule):
                self._files.skip(
                    "settings", f"permission {rule}", "Talaria's list of allowed commands can't express it."
                )
        return found

    def _read_servers(self, settings: Mapping[str, Any], keys: dict[str, str]) -> dict[str, dict[str, Any]]:
        files = (self.home / ".claude.json", self.home.parent / ".claude.json", self.home / ".mcp.json")
        tables = [as_table(self._files.read_json("MCP servers", file)) for file in files if file.is_file()]
        found: dict[str, Any] = {**as_table(settings.get("mcpServers"))}
        for table in tables:
            for project in as_table(table.get("projects")).values():
                found |= as_table(as_table(project).get("mcpServers"))
            found |= as_table(table.get("mcpServers"))
        servers: dict[str, dict[str, Any]] = {}
        for name, fields in found.items():
            try:
                servers[str(name)] = convert_server(str(name), as_table(fields), keys)
            except Refused as error:
                self._files.skip("MCP servers", str(name), str(error))
        return servers

    def _read_notes(self) -> dict[str, str]:
        files = {
            f"{file.parents[1].name.strip('-')}-{file.name}": file for file in self.home.glob("projects/*/memory/*.md")
        }
        files |= {f"rule-{file.name}": file for file in self.home.glob("rules/*.md")}
        texts = {name: self._files.read_text("memory", file).strip() for name, file in sorted(files.items())}
        return {name: text for name, text in texts.items() if text}

    def _list_commands(self) -> Iterator[tuple[str, str]]:
        for file in sorted(self.home.glob("commands/**/*.md")):
            name = "-".join(file.relative_to(self.home / "commands").with_suffix("").parts).lower()
            yield re.sub(r"[^a-z0-9_-]+", "-", name), convert_command(self._files.read_text("commands", file))

    def _note_the_rest(self, settings: Mapping[str, Any]) -> None:
        if settings.get("hooks"):
            self._files.skip("settings", "hooks", "Write them for Talaria: docs/how-to/add-hooks.md.")
        for name, reason in (
            ("agents", "Talaria delegates without fixed roles."),
            ("plugins", "Plug-ins of Claude Code work only there."),
        ):
            if any((self.home / name).glob("*")):
                self._files.skip("settings", name, reason)
        if (self.home / ".credentials.json").exists():
            self._files.skip("keys", ".credentials.json", "Claude's sign-in works only in Claude Code; use an API key.")


def convert_command(text: str) -> str:
    """Return a slash command with Talaria's front matter."""
    fields, body = split_front_matter(text)
    head = {"help": fields.get("description", ""), "hint": fields.get("argument-hint", "")}
    lines = [f"{name}: {' '.join(value.split())}" for name, value in head.items() if value]
    return "\n".join(["---", *lines, "---", "", body]) if lines else body


def split_threads(name: str, entries: list[Entry], parent: str = "") -> list[Thread]:
    """Return the main line of a file, then the lines that were left by going back, then those of helpers."""
    main: list[Entry] = []
    branches: list[Thread] = []
    helpers: dict[str, list[Entry]] = {}
    roots: dict[str, str] = {}
    for entry in entries:
        uuid, above = as_text(entry.get("uuid")), as_text(entry.get("parentUuid"))
        if entry.get("isSidechain") is True and not parent:
            roots[uuid] = roots.get(above, uuid)
            helpers.setdefault(roots[uuid], []).append(entry)
            continue
        position = _find_fork(main, above) if _is_prompt(entry) else None
        if position is not None:
            left = main[position:]
            branches.append(Thread(f"{name}#{as_text(left[0].get('uuid'))}", main, name, position))
            main = main[:position]
        main.append(entry)
    found = [Thread(name, main, parent), *branches]
    return found + [Thread(f"{name}#{root}", chain, name) for root, chain in helpers.items()]


def _find_fork(main: list[Entry], above: str) -> int | None:
    """Return where a prompt leaves the main line: after an entry that has others after it, which were spoken."""
    position = (
        next((number for number, entry in enumerate(main) if entry.get("uuid") == above), None) if above else None
    )
    if position is None or not any(
        _is_prompt(entry) or entry.get("type") == "assistant" for entry in main[position + 1 :]
    ):
        return None
    return position + 1


def _is_prompt(entry: Entry) -> bool:
    if entry.get("type") != "user" or entry.get("isMeta"):
        return False
    content = as_table(entry.get("message")).get("content")
    return not any(as_table(block).get("type") == "tool_result" for block in as_list(content))


def to_messages(entries: list[Entry]) -> list[Message]:
    """Return the messages of some entries; the blocks of one reply, on lines of their own, become one."""
    messages: list[Message] = []
    last_reply = ""
    for entry in entries:
        message = as_table(entry.get("message"))
        role = message.get("role")
        if entry.get("type") not in {"user", "assistant"} or role not in {"user", "assistant"} or entry.get("isMeta"):
            continue
        parts = tuple(read_content(message.get("content")))
        if not parts or (role == "user" and as_text(message.get("content")).startswith(_NOISE)):
            continue
        reply = as_text(message.get("id")) if role == "assistant" else ""
        if reply and reply == last_reply:
            messages[-1] = structs.replace(messages[-1], parts=(*messages[-1].parts, *parts))
            continue
        last_reply = reply
        output = as_count(as_table(message.get("usage")).get("output_tokens"))
        messages.append(
            Message(
                role="tool" if any(isinstance(part, ToolResult) for part in parts) else role,
                parts=parts,
                at=read_time(entry.get("timestamp")) or datetime.fromtimestamp(0, UTC),
                model=as_text(message.get("model")),
                tokens=output or None,
            )
        )
    return messages


def _to_session(thread: Thread, version: str) -> ForeignSession | None:
    messages = to_messages(thread.entries)
    own = thread.entries[thread.shared :]
    if not messages:
        return None
    title = _find_title(thread.entries)
    return ForeignSession(
        key=thread.key,
        version=version,
        source=_SOURCE,
        created_at=messages[0].at,
        updated_at=messages[-1].at,
        message_count=len(messages),
        title=f"{title} (earlier branch)" if title and thread.shared else title,
        model=next((message.model for message in reversed(messages) if message.model), ""),
        parent=thread.parent,
        folder=next((as_text(entry.get("cwd")) for entry in reversed(thread.entries) if entry.get("cwd")), ""),
        usage=_add_usage(own),
        turns=sum(_is_prompt(entry) for entry in own),
    )


def _find_title(entries: list[Entry]) -> str:
    names = {"custom-title": ("customTitle", "title"), "ai-title": ("aiTitle", "title"), "summary": ("summary",)}
    for kind, fields in names.items():
        for entry in reversed(entries):
            if entry.get("type") == kind:
                return next((as_text(entry.get(field)) for field in fields if entry.get(field)), "")
    return ""


def _add_usage(entries: list[Entry]) -> Usage:
    """Return the usage of some entries; each line of a reply repeats that of the whole reply."""
    replies = [as_table(entry.get("message")) for entry in entries if entry.get("type") == "assistant"]
    usages = {
        as_text(reply.get("id")) or str(number): as_table(reply.get("usage")) for number, reply in enumerate(replies)
    }
    total = Usage()
    for usage in usages.values():
        total = Usage(
            total.calls + 1,
            total.input_tokens + as_count(usage.get("input_tokens")),
            total.output_tokens + as_count(usage.get("output_tokens")),
            total.cache_read_tokens + as_count(usage.get("cache_read_input_tokens")),
            total.cache_write_tokens + as_count(usage.get("cache_creation_input_tokens")),
        )
    return total
