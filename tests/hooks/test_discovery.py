"""Content of HOOK.yaml and handler.py, and the reports of faults in them."""

from pathlib import Path

import pytest
from tests.hooks.hook_folders import problem, write_hook

from talaria.hooks.discovery import Hook, HookManifest, UnusableHook, find_hooks

FULL = """\
# what I want to be told
---
name: teller
description: "Tells me: everything"   # nearly
enabled: no
timeout_seconds: 2.5
events:
  - agent:end   # the reply
  - "command:*"
run: |
  read event
  echo "$event" >> told
"""


def manifest(hooks: Path) -> HookManifest:
    (found,) = find_hooks(hooks)
    assert isinstance(found, Hook)
    return found.manifest


def test_all_fields_of_a_manifest_are_read(tmp_path: Path) -> None:
    write_hook(tmp_path, "one", FULL, handler="")
    assert manifest(tmp_path) == HookManifest(
        name="teller",
        description="Tells me: everything",
        enabled=False,
        timeout_seconds=2.5,
        events=("agent:end", "command:*"),
        run='read event\necho "$event" >> told',
    )


@pytest.mark.parametrize(
    "text",
    [
        "events: [agent:end, command:new]",
        "events: ['agent:end', \"command:new\"]  # both",
        "events:\n- agent:end\n- command:new\n",
        "events:\n\n  # first\n  - agent:end\n  - command:new\n\n",
        "\ufeffevents:\r\n  - agent:end\r\n  - command:new\r\n",
        "events: [\n  agent:end,\n  command:new,\n]",
        "events: &all [agent:end, command:new]",
    ],
)
def test_event_list_is_read_in_several_yaml_notations(tmp_path: Path, text: str) -> None:
    write_hook(tmp_path, "one", text)
    assert manifest(tmp_path) == HookManifest(name="one", events=("agent:end", "command:new"))


@pytest.mark.parametrize(
    "text", ["Tells me of it", "'Tells me\n  of it'", "Tells me\n  of it", ">\n  Tells me\n  of it\n"]
)
def test_text_over_several_lines_is_read(tmp_path: Path, text: str) -> None:
    write_hook(tmp_path, "one", f"description: {text}\nevents:\n  agent:end\n")
    assert manifest(tmp_path) == HookManifest(name="one", description="Tells me of it", events=("agent:end",))


def test_event_patterns_select_events() -> None:
    hook = HookManifest(name="one", events=("agent:*", "command:new"))
    selected = [event for event in ("agent:start", "agent:end", "command:new", "command:newer", "session:end")
             if hook.listens_to(event)]  # fmt: skip
    assert selected == ["agent:start", "agent:end", "command:new"]


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("name: one\n", 1, "`events:` is missing"),
        ("events: []\n", 1, "`events:` is empty"),
        ("events:\n  - agent:end\n  - agent:stop\n", 3, "there is no event `agent:stop`; did you mean `agent:step`?"),
        ("events:\n  - agent:end\nwhen: now\n", 3, "unknown field `when`"),
        ("events: agent:end\ntimeout_second: 3\n", 2, "did you mean `timeout_seconds`?"),
        ("events: agent:end\ntimeout_seconds: soon\n", 2, "`soon` isn't a number of seconds"),
        ("events: agent:end\ntimeout_seconds: 0\n", 2, "`0` isn't a number of seconds"),
        ("events: agent:end\nenabled: maybe\n", 2, "`maybe` is neither `true` nor `false`"),
        ("events: agent:end\nevents: agent:end\n", 2, "appears twice"),
        ("events: agent:end\nname: two words\n", 2, "`two words` isn't a valid name"),
        ("events: agent:end\nname: boot\n", 1, "the name `boot` is already used by the built-in hook"),
        ("events: agent:end\n{what: is this}\n", 2, "this isn't YAML: "),
        ("events: agent:end\ndescription: 'open\n", 2, "this isn't YAML: "),
        ("events: [agent:end\n", 1, "this isn't YAML: "),
        ("events: agent:end\nrun: a: b\n", 2, "this isn't YAML: "),
        ("events: agent:end\nrun: {a: b}\n", 2, "this must be text"),
        ("- events\n", 1, "this isn't a list of fields"),
        pytest.param("events: " + "[" * 9000, 1, "nested too deeply", marks=pytest.mark.slow),
        ('events: agent:end\nname: "a\x07b"\n', 1, "this isn't YAML: "),
        ("events: agent:end\ndescription:\n  - one\n", 2, "this must be text, not a list"),
    ],
)
def test_a_fault_in_a_manifest_names_its_line(tmp_path: Path, text: str, line: int, message: str) -> None:
    folder = write_hook(tmp_path, "one", text)
    assert problem(tmp_path).startswith(f"{folder / 'HOOK.yaml'}, line {line}: ")
    assert message in problem(tmp_path)


def test_manifest_that_is_not_text_is_a_fault(tmp_path: Path) -> None:
    (write_hook(tmp_path, "one") / "HOOK.yaml").write_bytes(b"\xff\xfe\x00")
    assert "can't be read" in problem(tmp_path)


@pytest.mark.parametrize(
    ("code", "line", "message"),
    [
        ("import os\n\ndef handle(event, facts)\n    pass\n", 3, "expected ':'"),
        ("def handel(event, facts):\n    pass\n", 1, "no function `handle(event, facts)`"),
    ],
)
def test_a_fault_in_a_handler_names_its_line(tmp_path: Path, code: str, line: int, message: str) -> None:
    folder = write_hook(tmp_path, "one", handler=code)
    assert problem(tmp_path).startswith(f"{folder / 'handler.py'}, line {line}: ")
    assert message in problem(tmp_path)


def test_hook_needs_either_a_command_or_a_handler(tmp_path: Path) -> None:
    write_hook(tmp_path / "both", "one", "events: agent:end\nrun: true\n")
    write_hook(tmp_path / "neither", "one", "events: agent:end\n", handler="")
    assert "remove one" in problem(tmp_path / "both")
    assert "neither `run:` nor a file handler.py" in problem(tmp_path / "neither")


def test_broken_hook_does_not_affect_others(tmp_path: Path) -> None:
    write_hook(tmp_path, "a", "nonsense")
    write_hook(tmp_path, "b")
    write_hook(tmp_path, "c", "name: b\nevents: agent:end\n")
    (tmp_path / "d").mkdir()
    assert [type(one) for one in find_hooks(tmp_path)] == [UnusableHook, Hook, UnusableHook]


def test_missing_folder_has_no_hooks(tmp_path: Path) -> None:
    assert find_hooks(tmp_path / "hooks") == []
