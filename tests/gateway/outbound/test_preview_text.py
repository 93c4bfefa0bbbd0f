"""Text of a preview while a turn runs."""

import pytest

from talaria.commands.command import Display, Progress
from talaria.core.events import (
    ModelCalled,
    Noticed,
    PersonJoined,
    ReasoningAdded,
    TextAdded,
    ToolAnswered,
    ToolCalled,
    ToolProgressed,
)
from talaria.core.messages import ToolCall, ToolResult, Usage
from talaria.gateway.outbound.preview_text import PreviewText


def draft_of(*events: object, progress: Progress = "all", reasoning: bool = False) -> PreviewText:
    draft = PreviewText(Display(progress=progress, reasoning=reasoning), limit=200_000)
    for event in events:
        draft.handle_event(event)  # type: ignore[arg-type]
    return draft


def tool_called(number: int, name: str = "read_file") -> ToolCalled:
    return ToolCalled(ToolCall(f"c{number}", name, '{"path": "notes"}'), f"{name} {number}")


def tool_answered(number: int, *, failed: bool = False) -> ToolAnswered:
    return ToolAnswered(ToolResult(f"c{number}", "first\n`second`", failed), "read_file", 0.1)


@pytest.mark.parametrize(
    ("progress", "text"),
    [
        ("off", ""),
        ("new", "✓ `read_file 1`  \n… `shell 3`"),
        ("all", "✓ `read_file 1`  \n✗ `read_file 2`  \n… `shell 3`"),
        (
            "verbose",
            (
                '✓ `read_file 1`  \n`{"path": "notes"}`  \n`first`  \n`second`  \n'
                '✗ `read_file 2`  \n`{"path": "notes"}`  \n`first`  \n`second`  \n'
                '… `shell 3`  \n`{"path": "notes"}`'
            ),
        ),
    ],
)
def test_tool_calls_are_shown_as_the_chat_is_configured(progress: Progress, text: str) -> None:
    events = (tool_called(1), tool_answered(1), tool_called(2), tool_answered(2, failed=True), tool_called(3, "shell"))
    assert draft_of(*events, progress=progress).text == text


def test_texts_of_two_model_calls_are_two_paragraphs() -> None:
    draft = draft_of(TextAdded("Running that."), ModelCalled("m", Usage(), 1, 2), TextAdded("It said"), TextAdded(":"))
    assert draft.text == "Running that.\n\nIt said:"


def test_preview_text_is_cut_at_its_limit() -> None:
    draft = PreviewText(Display(), limit=10)
    for _ in range(5):
        draft.handle_event(TextAdded("words "))
    assert draft.text == "words word"


def test_text_after_a_tool_call_replaces_the_text_before_it() -> None:
    draft = draft_of(TextAdded("Let me look."), tool_called(1))
    assert draft.text == "Let me look.\n\n… `read_file 1`"
    draft.handle_event(tool_answered(1))
    draft.handle_event(TextAdded("It says hello."))
    assert draft.text == "✓ `read_file 1`\n\nIt says hello."


def test_reasoning_is_shown_only_if_configured_and_until_text_arrives() -> None:
    assert draft_of(ReasoningAdded("Hm.\nWell.")).text == ""
    draft = draft_of(ReasoningAdded("Hm.\nWell."), reasoning=True)
    assert draft.text == "> Hm.\n> Well."
    draft.handle_event(TextAdded("Yes."))
    assert draft.text == "Yes."


def test_message_of_a_person_starts_a_new_passage() -> None:
    draft = draft_of(TextAdded("One."), PersonJoined("wait"), TextAdded("Two."))
    assert [(one.text, one.stays) for one in draft.passages] == [("One.", True)]
    assert draft.text == "Two."


def test_new_lines_are_returned_once() -> None:
    draft = draft_of(tool_called(1), Noticed("The model is busy."))
    assert draft.take_new_lines() == "… `read_file 1`  \n_The model is busy._"
    assert draft.take_new_lines() == ""


def test_tool_summary_stays_on_one_line() -> None:
    strange = ToolCalled(ToolCall("c", "shell", ""), "a\nb `c` \x1b[31m" + "x" * 200)
    text = draft_of(strange).text
    assert text.startswith("… `a b c [31mxxx")
    assert text.endswith("…`")
    assert len(text) < 110


def test_last_step_of_each_child_is_shown_while_its_call_runs() -> None:
    steps = [f"child {number}: reads {name}" for number, name in ((1, "a"), (2, "b"), (1, "c"))]
    events = [ToolProgressed("c1", step, step=True) for step in steps]
    running = draft_of(
        tool_called(1), *events, ToolProgressed("c1", "printed"), ToolProgressed("c9", "x: y", step=True)
    )
    assert running.text == "… `read_file 1`  \n`child 1: reads c`  \n`child 2: reads b`"
    running.handle_event(tool_answered(1))
    assert running.text == "✓ `read_file 1`"
    assert draft_of(tool_called(1), *events, progress="off").text == ""


EDIT = ToolAnswered(
    ToolResult("c1", "a.txt: …"), "edit_file", 0.1, "@@ -1,3 +1,3 @@\n same\n-old `one`\n+new one\n+another\n same"
)


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        (0, "✓ `edit_file 1`"),
        (2, "✓ `edit_file 1` +2 -1  \n`-old one`  \n`+new one`  \n_… 1 more lines_"),
        (6, "✓ `edit_file 1` +2 -1  \n`-old one`  \n`+new one`  \n`+another`"),
    ],
)
def test_an_edit_is_shown_as_a_compact_diff(lines: int, text: str) -> None:
    draft = PreviewText(Display(), limit=1000, diff_lines=lines)
    for event in (tool_called(1, "edit_file"), EDIT):
        draft.handle_event(event)
    assert draft.text == text


def test_text_that_may_become_a_silent_reply_is_not_shown_yet() -> None:
    text = PreviewText(Display(), 1_000)
    shown = []
    for piece in ("[", "SIL", "ENT]", " is what I would say."):
        text.handle_event(TextAdded(piece))
        shown.append(text.text)
    assert shown == ["", "", "", "[SILENT] is what I would say."]
