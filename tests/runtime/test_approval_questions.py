"""Approval questions show exactly the command that would run."""

from talaria.core.events import ApprovalAsked
from talaria.runtime.questions import format_approval_question


def test_chat_shows_the_command_in_a_code_block() -> None:
    command = "echo `x`; rm -rf / #** [safe](http://x)"
    question = format_approval_question(ApprovalAsked("1", "terminal", command, "deletes *all*"), markdown=True)
    assert question == f"Run this command?\n\n```\n{command}\n```\n\ndeletes \\*all\\*"


def test_fence_in_the_command_does_not_end_the_code_block() -> None:
    question = format_approval_question(ApprovalAsked("1", "terminal", "echo '```'\nrm x", ""), markdown=True)
    assert "\n````\necho '```'\nrm x\n````\n" in question


def test_characters_that_reverse_or_hide_text_are_shown_as_escapes() -> None:
    question = format_approval_question(
        ApprovalAsked("1", "terminal", "rm \u202etxt.\x1b[8m", "in \u2066x"), markdown=True
    )
    assert "rm \\u202etxt.\\u001b[8m" in question
    assert "\u2066" not in question


def test_question_about_another_tool_names_the_tool() -> None:
    question = format_approval_question(
        ApprovalAsked("1", "write_file", "/etc/hosts", "writes outside the working folder")
    )
    assert question == "Allow write_file?\n/etc/hosts\nwrites outside the working folder"
