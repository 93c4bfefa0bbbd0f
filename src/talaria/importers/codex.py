"""Home of Codex: ``config.toml``, ``auth.json``, ``AGENTS.md``, prompts, skills and ``sessions/**/rollout-*.jsonl``."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec import structs

from talaria.contracts.imports import (
    ForeignHome,
    ForeignSession,
    ForeignSkill,
    ForeignSummary,
    ForeignTranscript,
)
from talaria.core.errors import Refused
from talaria.core.messages import Image, Message, Part, Reasoning, Role, Text, ToolCall, ToolResult, Usage, text_of
from talaria.importers.claude_code import convert_command
from talaria.importers.foreign_files import (
    ForeignFiles,
    as_count,
    as_list,
    as_table,
    as_text,
    read_json_lines,
    read_time,
)
from talaria.importers.foreign_settings import convert_server, find_provider, make_provider_name
from talaria.importers.wire_parts import count_shared, read_call, read_content

_MARKS = ("config.toml", "sessions", "auth.json")
_SOURCE = "codex"
_WIRES = {"chat": "openai_chat", "responses": "openai_responses"}
_EFFORTS = {"none", "minimal", "low", "medium", "high"}
_ADDED = (  # what Codex itself writes in the person's name
    "<environment_context>",
    "<user_instructions>",
    "<permissions",
    "<turn_aborted>",
    "<user_action>",
    "# AGENTS.md instructions for",
)
_CALLS = {"function_call", "custom_tool_call", "local_shell_call", "web_search_call"}
_RESULTS = {"function_call_output", "custom_tool_call_output"}
Line = Mapping[str, Any]


class Codex:
    """One home of Codex."""

    title = "Codex"

    def __init__(self, home: Path) -> None:
        self.home = home
        self._files = ForeignFiles(home)
        self._paths: dict[str, Path] = {}
        self._last_read: tuple[Path | None, list[Line], int] = (None, [], 0)

    def survey(self) -> ForeignHome:
        """Return everything but the messages; raises `Refused` if this isn't a home of Codex."""
        if not any((self.home / name).exists() for name in _MARKS):
            raise Refused(f"{self.home} isn't a home of Codex: it has neither config.toml nor sessions.")
        config = as_table(self._files.read_toml("settings", self.home / "config.toml"))
        keys = self._read_keys()
        skills = sorted(head for head in self.home.glob("skills/*/SKILL.md") if not head.parent.name.startswith("."))
        home = ForeignHome(
            sessions=tuple(self._list_sessions()),
            settings=self._read_settings(config),
            servers=self._read_servers(config, keys),
            keys=keys,
            instructions=self._files.read_text("persona", self.home / "AGENTS.md").strip(),
            skills=tuple(ForeignSkill(head.parent.name, head.parent) for head in skills),
            commands={
                file.stem.lower(): convert_command(self._files.read_text("commands", file))
                for file in sorted(self.home.glob("prompts/*.md"))
            },
        )
        return structs.replace(home, skipped=tuple(self._files.skipped))

    def read_transcript(self, session: ForeignSession) -> ForeignTranscript:
        """Return the messages of a session."""
        lines, broken = self._read_lines(self._paths[session.key])
        messages, summary = to_messages(lines)
        shared = 0
        if session.parent in self._paths:
            shared = count_shared(messages, to_messages(self._read_lines(self._paths[session.parent])[0])[0])
        problems = [f"{broken} of its lines can't be read."] if broken else []
        return ForeignTranscript(messages, shared, tuple(problems), summary)

    def close(self) -> None:
        """Nothing is left to remove."""

    def _list_sessions(self) -> Iterator[ForeignSession]:
        titles = self._read_titles()
        files = [(file, False) for file in sorted(self.home.glob("sessions/**/*.jsonl"))]
        files += [(file, True) for file in sorted(self.home.glob("archived_sessions/**/*.jsonl"))]
        for file, archived in files:
            try:
                status = file.stat()
                lines, broken = self._read_lines(file)
            except OSError as error:
                self._files.skip("sessions", self._files.format_name(file), f"It can't be read: {error.strerror}.")
                continue
            version = f"{status.st_size}-{status.st_mtime_ns}"
            session = _to_session(file, version, lines, titles, is_archived=archived)
            if session is not None:
                self._paths[session.key] = file
                yield session
            elif broken:
                self._files.skip("sessions", self._files.format_name(file), "It has no line that can be read.")

    def _read_lines(self, file: Path) -> tuple[list[Line], int]:
        if self._last_read[0] != file:
            found = [line for _, line in read_json_lines(file)]
            self._last_read = (file, [line for line in found if line is not None], sum(line is None for line in found))
        return self._last_read[1:]

    def _read_titles(self) -> dict[str, str]:
        file = self.home / "session_index.jsonl"
        lines = [line for _, line in read_json_lines(file) if line] if file.is_file() else []
        return {as_text(line.get("id")): as_text(line.get("thread_name")) for line in lines}

    def _read_keys(self) -> dict[str, str]:
        auth = as_table(self._files.read_json("keys", self.home / "auth.json"))
        if auth.get("tokens"):
            self._files.skip("keys", "auth.json", "A sign-in can't be copied: `talaria login openai` makes a new one.")
        key = as_text(auth.get("OPENAI_API_KEY"))
        return {"OPENAI_API_KEY": key} if key else {}

    def _read_settings(self, config: Mapping[str, Any]) -> dict[str, Any]:
        settings: dict[str, Any] = {}
        name = as_text(config.get("model_provider")) or "openai"
        fields = as_table(as_table(config.get("model_providers")).get(name))
        try:
            provider = find_provider(name)
        except Refused as error:
            if not as_text(fields.get("base_url")):
                self._files.skip("settings", f"model_provider {name}", str(error))
                return settings
            provider = make_provider_name(name)
        if address := as_text(fields.get("base_url")):
            settings[f"providers.{provider}.base_url"] = address
            if key := as_text(fields.get("env_key")):
                settings[f"providers.{provider}.key"] = key
            if protocol := _WIRES.get(as_text(fields.get("wire_api"))):
                settings[f"providers.{provider}.protocol"] = protocol
        if model := as_text(config.get("model")):
            settings |= {"model.provider": provider, "model.name": model}
        if (effort := as_text(config.get("model_reasoning_effort"))) in _EFFORTS:
            settings["model.effort"] = effort
        return settings

    def _read_servers(self, config: Mapping[str, Any], keys: dict[str, str]) -> dict[str, dict[str, Any]]:
        servers: dict[str, dict[str, Any]] = {}
        for name, value in as_table(config.get("mcp_servers")).items():
            fields = dict(as_table(value))
            if variable := as_text(fields.get("bearer_token_env_var")):
                fields["http_headers"] = {"Authorization": f"Bearer ${{{variable}}}"}
            fields["tools"] = {"include": fields.get("enabled_tools"), "exclude": fields.get("disabled_tools")}
            try:
                servers[str(name)] = convert_server(str(name), fields, keys)
            except Refused as error:
                self._files.skip("MCP servers", str(name), str(error))
        return servers


def to_messages(lines: list[Line]) -> tuple[list[Message], ForeignSummary | None]:
    """Return the messages of a rollout, and the summary of the last time it was shortened."""
    messages: list[Message] = []
    summary: ForeignSummary | None = None
    model = ""
    for line in lines:
        payload = as_table(line.get("payload")) if "payload" in line else line
        if line.get("type") == "turn_context":
            model = as_text(payload.get("model")) or model
        elif line.get("type") == "compacted" and (text := as_text(payload.get("message"))):
            summary = ForeignSummary(len(messages), text)
        elif line.get("type") == "response_item" or "payload" not in line:
            role, parts = _read_item(payload)
            if parts:
                at = read_time(line.get("timestamp")) or (
                    messages[-1].at if messages else datetime.fromtimestamp(0, UTC)
                )
                _add(
                    messages, Message(role=role, parts=tuple(parts), at=at, model=model if role == "assistant" else "")
                )
    return messages, summary


def _add(messages: list[Message], message: Message) -> None:
    """Append a message; the reasoning, text and calls of one reply are lines of their own and become one message."""
    last = messages[-1] if messages else None
    is_more = last is not None and last.role == message.role == "assistant"
    if (
        last is not None
        and is_more
        and (isinstance(last.parts[-1], Reasoning) or not isinstance(message.parts[0], Text))
    ):
        messages[-1] = structs.replace(last, parts=(*last.parts, *message.parts))
    else:
        messages.append(message)


def _read_item(item: Line) -> tuple[Role, list[Part]]:
    kind = item.get("type")
    if kind == "message" and item.get("role") in {"user", "assistant"}:
        parts = read_content(item.get("content"))
        if item.get("role") == "assistant":
            return "assistant", parts
        return "user", [
            part for part in parts if not isinstance(part, Text) or not part.text.lstrip().startswith(_ADDED)
        ]
    if kind == "reasoning":
        texts = [
            as_text(as_table(part).get("text")) for part in as_list(item.get("summary")) + as_list(item.get("content"))
        ]
        text = "\n\n".join(filter(None, texts))
        return "assistant", [Reasoning(text)] if text else []
    if kind in _CALLS:
        return "assistant", [_read_call(item)]
    if kind in _RESULTS:
        return "tool", _read_result(item)
    return "user", []


def _read_call(item: Line) -> ToolCall:
    names = {"local_shell_call": "shell", "web_search_call": "web_search"}
    name = as_text(item.get("name")) or names.get(as_text(item.get("type")), "unknown")
    fields = {"id": as_text(item.get("call_id")) or as_text(item.get("id")), "name": name}
    arguments = item.get("arguments", item.get("input", item.get("action", {})))
    return read_call({**fields, "arguments": arguments})


def _read_result(item: Line) -> list[Part]:
    output = item.get("output")
    content, failed = output, False
    if isinstance(output, dict):
        content, failed = output.get("content"), output.get("success") is False
    parts = read_content(content)
    result = ToolResult(as_text(item.get("call_id")), text_of(tuple(parts)), failed)
    return [result, *(part for part in parts if isinstance(part, Image))]


def _to_session(
    file: Path, version: str, lines: list[Line], titles: Mapping[str, str], *, is_archived: bool
) -> ForeignSession | None:
    messages, _ = to_messages(lines)
    if not messages:
        return None
    first = lines[0]
    meta = next((as_table(line.get("payload")) for line in lines if line.get("type") == "session_meta"), first)
    key = as_text(meta.get("id")) or file.stem
    context = [as_table(line.get("payload")) for line in lines if line.get("type") == "turn_context"]
    return ForeignSession(
        key=key,
        version=f"{version}-{len(titles.get(key, ''))}",
        source=_SOURCE,
        created_at=read_time(meta.get("timestamp")) or messages[0].at,
        updated_at=messages[-1].at,
        message_count=len(messages),
        title=titles.get(key, ""),
        model=next((message.model for message in reversed(messages) if message.model), ""),
        parent=as_text(meta.get("forked_from_id")),
        folder=as_text((context[-1] if context else meta).get("cwd")) or as_text(meta.get("cwd")),
        is_archived=is_archived,
        usage=_find_usage(lines),
        turns=sum(message.role == "user" for message in messages),
    )


def _find_usage(lines: list[Line]) -> Usage:
    """Return the last total that Codex counted; its input includes what came from the cache."""
    counts = [as_table(line.get("payload")) for line in lines if line.get("type") == "event_msg"]
    infos = [
        as_table(count.get("info")) for count in counts if count.get("type") == "token_count" and count.get("info")
    ]
    if not infos:
        return Usage()
    total = as_table(infos[-1].get("total_token_usage"))
    cached = as_count(total.get("cached_input_tokens"))
    return Usage(
        calls=len(infos),
        input_tokens=max(0, as_count(total.get("input_tokens")) - cached),
        output_tokens=as_count(total.get("output_tokens")),
        cache_read_tokens=cached,
        reasoning_tokens=as_count(total.get("reasoning_output_tokens")),
    )
