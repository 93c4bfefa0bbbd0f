"""An approval question shows exactly what would run."""

from talaria.core.events import ApprovalAsked
from talaria.runtime.questions import approval_question


def test_a_chat_shows_the_command_in_a_block_of_code() -> None:
    command = "echo `x`; rm -rf / #** [safe](http://x)"
    asked = approval_question(ApprovalAsked("1", "terminal", command, "deletes *all*"), markdown=True)
    assert asked == f"Run this command?\n\n```\n{command}\n```\n\ndeletes \\*all\\*"


def test_a_fence_in_the_command_does_not_end_the_block() -> None:
    asked = approval_question(ApprovalAsked("1", "terminal", "echo '```'\nrm x", ""), markdown=True)
    assert "\n````\necho '```'\nrm x\n````\n" in asked


def test_characters_that_reverse_or_hide_text_are_shown_as_escapes() -> None:
    asked = approval_question(ApprovalAsked("1", "terminal", "rm \u202etxt.\x1b[8m", "in \u2066x"), markdown=True)
    assert "rm \\u202etxt.\\u001b[8m" in asked
    assert "\u2066" not in asked


def test_another_tool_is_named() -> None:
    asked = approval_question(ApprovalAsked("1", "write_file", "/etc/hosts", "writes outside the working folder"))
    assert asked == "Allow write_file?\n/etc/hosts\nwrites outside the working folder"
