"""Import of the recorded layouts of Claude Code and Codex."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from tests.app.program import Program
from tests.importers.homes import PIXEL, digest_of, messages_of, sessions_of

from talaria.core.messages import Image, Reasoning, Text, ToolCall, ToolResult, Usage


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path / "home")


def write_lines(path: Path, *lines: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))


def at(second: int) -> str:
    return f"2026-05-06T07:08:{second:02}.000Z"


def transcript_line(number: int, parent: int | None, role: str, content: Any, **fields: Any) -> dict[str, Any]:
    """Return a line of a transcript of Claude Code."""
    above = None if parent is None else f"u{parent}"
    base = {"type": role, "uuid": f"u{number}", "parentUuid": above, "timestamp": at(number), "cwd": "/nowhere"}
    return {**base, "isSidechain": False, "message": {"role": role, "content": content, **fields}}


def make_claude(folder: Path) -> Path:
    usage = {"input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": 3, "cache_creation_input_tokens": 2}
    reply = {"id": "msg_1", "model": "claude-x", "usage": usage}
    calls = [{"type": "tool_use", "id": f"t{n}", "name": "Bash", "input": {"command": f"echo {n}"}} for n in (1, 2)]
    source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(PIXEL).decode()}
    write_lines(
        folder / "projects" / "-nowhere" / "5ab1.jsonl",
        {"type": "summary", "summary": "Fix the build", "leafUuid": "u9"},
        transcript_line(1, None, "user", "Build it"),
        transcript_line(2, 1, "assistant", [{"type": "thinking", "thinking": "Hm."}], **reply),
        transcript_line(3, 2, "assistant", [calls[0]], **reply),
        transcript_line(4, 3, "assistant", [calls[1]], **reply),
        transcript_line(5, 3, "user", [{"type": "tool_result", "tool_use_id": "t1", "content": "1"}]),
        transcript_line(
            6, 4, "user", [{"type": "tool_result", "tool_use_id": "t2", "content": "no", "is_error": True}]
        ),
        transcript_line(7, 6, "assistant", [{"type": "text", "text": "Failed."}], id="msg_2", model="claude-x"),
        transcript_line(8, 7, "user", "Try again"),
        transcript_line(9, 8, "assistant", [{"type": "text", "text": "Still failed."}], id="msg_3", model="claude-x"),
        '{"type": "user", "cut off',
        transcript_line(10, 7, "user", [{"type": "text", "text": "Look"}, {"type": "image", "source": source}]),
        transcript_line(11, 10, "assistant", [{"type": "text", "text": "I see."}], id="msg_4", model="claude-x"),
    )
    helper = {**transcript_line(1, None, "user", "Search"), "isSidechain": True}
    write_lines(folder / "projects" / "-nowhere" / "5ab1" / "subagents" / "agent-7.jsonl", helper)
    (folder / "CLAUDE.md").write_text("Use British spelling.\n")
    permissions = {"allow": ["Bash(git status:*)", "WebFetch"]}
    settings = {
        "model": "claude-opus-5",
        "env": {"ANTHROPIC_API_KEY": "sk-ant-planted-012345"},
        "permissions": permissions,
    }
    (folder / "settings.json").write_text(json.dumps(settings))
    server = {"type": "http", "url": "https://example.com/mcp", "headers": {"Authorization": "Bearer planted-1"}}
    (folder.parent / ".claude.json").write_text(json.dumps({"mcpServers": {"remote": server}}))
    write_lines(folder / "commands" / "review.md", "---", "description: Review it", "---", "Review $ARGUMENTS")
    write_lines(
        folder / "skills" / "tidy" / "SKILL.md", "---", "name: tidy", "description: Tidy", "---", "", "Tidy up."
    )
    return folder


def test_claude_code_sessions_branches_and_subagents_are_imported(program: Program, tmp_path: Path) -> None:
    home = make_claude(tmp_path / "user" / ".claude")
    before = digest_of(home.parent)
    done = program.run("import", "claude-code", str(home), "--yes", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["summary"]["sessions"] == {"imported": 3}
    assert digest_of(home.parent) == before
    sessions = sessions_of(program)
    main, branch, helper = sessions["Fix the build"], sessions["Fix the build (earlier branch)"], sessions[""]
    question, called, first, second, failed, picture, last = messages_of(program, main)
    assert called.parts == (
        Reasoning("Hm."),
        ToolCall("t1", "Bash", '{"command": "echo 1"}'),
        ToolCall("t2", "Bash", '{"command": "echo 2"}'),
    )
    assert (first.parts, second.parts) == ((ToolResult("t1", "1"),), (ToolResult("t2", "no", failed=True),))
    assert (question.text, failed.text, last.text) == ("Build it", "Failed.", "I see.")
    assert isinstance(picture.parts[1], Image)
    assert Path(picture.parts[1].source).read_bytes() == PIXEL
    assert (main.source, main.model) == ("claude-code", "claude-x")
    assert main.usage == Usage(3, 10, 5, 3, 2)
    assert (branch.parent_id, branch.parent_seq) == (main.id, 5)
    assert [message.text for message in messages_of(program, branch)][5:] == ["Try again", "Still failed."]
    assert (helper.parent_id, helper.parent_seq) == (main.id, 0)
    assert json.loads(program.run("import", "claude-code", str(home), "--yes", "--json").out)["summary"][
        "sessions"
    ] == {"unchanged": 3}


def test_claude_code_settings_commands_and_skills_are_imported(program: Program, tmp_path: Path) -> None:
    home = make_claude(tmp_path / "user" / ".claude")
    done = program.run("import", "claude-code", str(home), "--yes")
    assert "permission WebFetch" in done.out
    assert "1 of its lines can't be read" in done.out
    profile = program.home / "profiles" / "default"
    soul = (profile / "SOUL.md").read_text()
    assert soul.startswith("You are Talaria")
    assert soul.endswith("Use British spelling.\n")
    assert (profile / "commands" / "review.md").read_text() == "---\nhelp: Review it\n---\n\nReview $ARGUMENTS\n"
    assert (profile / "skills" / "tidy" / "SKILL.md").exists()
    config = (profile / "config.toml").read_text()
    assert 'allowed = ["git status"]' in config
    assert "planted" not in config
    assert "ANTHROPIC_API_KEY=sk-ant-planted-012345" in (profile / ".env").read_text()


def item(second: int, **payload: Any) -> dict[str, Any]:
    """Return a line of a transcript of Codex."""
    return {"timestamp": at(second), "type": "response_item", "payload": payload}


def make_codex(folder: Path) -> Path:
    text = {"type": "input_text"}
    context = {**text, "text": "<environment_context>here</environment_context>"}
    total = {"input_tokens": 100, "cached_input_tokens": 40, "output_tokens": 9, "reasoning_output_tokens": 2}
    start = [
        {"timestamp": at(0), "type": "session_meta", "payload": {"id": "c1", "timestamp": at(0), "cwd": "/nowhere"}},
        {"timestamp": at(1), "type": "turn_context", "payload": {"cwd": "/nowhere", "model": "gpt-x"}},
        item(2, type="message", role="developer", content=[{**text, "text": "rules"}]),
        item(3, type="message", role="user", content=[context]),
        item(4, type="message", role="user", content=[{**text, "text": "List"}]),
        item(5, type="reasoning", summary=[{"type": "summary_text", "text": "Simple."}], encrypted_content="x"),
        item(6, type="function_call", name="shell", arguments='{"command":["ls"]}', call_id="k1"),
        item(7, type="function_call_output", call_id="k1", output="a.txt"),
        item(8, type="message", role="assistant", content=[{"type": "output_text", "text": "One file."}]),
    ]
    count = {
        "timestamp": at(9),
        "type": "event_msg",
        "payload": {"type": "token_count", "info": {"total_token_usage": total}},
    }
    day = folder / "sessions" / "2026" / "05" / "06"
    write_lines(day / "rollout-2026-05-06T07-08-00-c1.jsonl", *start, count, "{cut off")
    fork = {"id": "c2", "timestamp": at(20), "cwd": "/nowhere", "forked_from_id": "c1"}
    more = item(21, type="message", role="user", content=[{**text, "text": "Sort"}])
    meta = {"timestamp": at(20), "type": "session_meta", "payload": fork}
    write_lines(day / "rollout-2026-05-06T07-08-20-c2.jsonl", meta, *start[1:], more)
    write_lines(
        folder / "archived_sessions" / "rollout-x.jsonl", {"type": "session_meta", "payload": {"id": "c3"}}, more
    )
    write_lines(folder / "sessions" / "broken.jsonl", "not json at all")
    write_lines(
        folder / "session_index.jsonl", {"id": "c1", "thread_name": "Files"}, {"id": "c2", "thread_name": "Fork"}
    )
    (folder / "config.toml").write_text(
        'model = "gpt-x"\nmodel_provider = "proxy"\nmodel_reasoning_effort = "high"\n'
        '[model_providers.proxy]\nbase_url = "https://example.com/v1"\nenv_key = "PROXY_KEY"\nwire_api = "chat"\n'
        '[mcp_servers.docs]\ncommand = "docs"\nargs = ["--stdio"]\nenabled_tools = ["find"]\n'
    )
    (folder / "auth.json").write_text(
        json.dumps({"OPENAI_API_KEY": "sk-planted-0123456789", "tokens": {"id_token": "x"}})
    )
    write_lines(folder / "prompts" / "ship.md", "Ship $1")
    return folder


def test_import_without_an_agent_lists_the_homes_found(program: Program, tmp_path: Path) -> None:
    variables = {"HOME": str(tmp_path), "CODEX_HOME": str(tmp_path / "other")}
    nothing = program.run("import", env=variables)
    assert (nothing.code, "Name one: `talaria import AGENT PATH`." in nothing.out) == (0, True)
    for folder in (".claude", "other"):
        (tmp_path / folder).mkdir()
    listed = json.loads(program.run("import", "--json", env=variables).out)
    assert listed == [
        {"agent": "claude-code", "home": str(tmp_path / ".claude")},
        {"agent": "codex", "home": str(tmp_path / "other")},
    ]
    assert "`talaria import codex --dry-run`" in program.run("import", env=variables).out


def test_codex_sessions_forks_and_settings_are_imported(program: Program, tmp_path: Path) -> None:
    home = make_codex(tmp_path / "codex")
    before = digest_of(home)
    done = program.run("import", "codex", str(home), "--yes", "--json")
    assert done.code == 0, done.err
    report = json.loads(done.out)
    assert report["summary"]["sessions"] == {"imported": 3, "skipped": 1}
    assert digest_of(home) == before
    sessions = sessions_of(program)
    session, fork, archived = sessions["Files"], sessions["Fork"], sessions[""]
    question, called, result, answer = messages_of(program, session)
    assert called.parts == (Reasoning("Simple."), ToolCall("k1", "shell", '{"command":["ls"]}'))
    assert (question.parts, result.parts) == ((Text("List"),), (ToolResult("k1", "a.txt"),))
    assert (answer.text, answer.model, session.model) == ("One file.", "gpt-x", "gpt-x")
    assert session.usage == Usage(1, 60, 9, 40, reasoning_tokens=2)
    assert (fork.parent_id, fork.parent_seq, fork.message_count) == (session.id, 4, 5)
    assert archived.archived_at is not None
    for key, value in {"model.provider": "proxy", "model.effort": "high", "mcp.docs.include": "find"}.items():
        assert program.run("config", "get", key).out.strip() == value
    profile = program.home / "profiles" / "default"
    assert (profile / "commands" / "ship.md").read_text() == "Ship $1\n"
    assert json.loads(program.run("import", "codex", str(home), "--yes", "--json").out)["summary"]["sessions"] == {
        "unchanged": 3,
        "skipped": 1,
    }
