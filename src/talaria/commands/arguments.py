"""Parsing and substitution of command arguments, and text formatting for command output."""

import re
import shlex

from talaria.commands.command import CommandContext, TerminalSurface
from talaria.core.errors import Refused
from talaria.core.messages import Message, Reasoning, Text
from talaria.sessions.transcript_export import close_fence, format_inline_code, summarize_part


def parse_count(context: CommandContext, *, default: int, maximum: int) -> int:
    """Parse the argument as a count, capped at ``maximum``; raises `Refused` if it is not positive.

    Without an argument, returns ``default``.
    """
    if not context.arguments:
        return default
    if not (context.arguments.isascii() and context.arguments.isdigit()) or int(context.arguments) == 0:
        raise Refused(f"`{context.arguments}` isn't a whole number of 1 or more.")
    return min(int(context.arguments[:9]), maximum)


_MARKDOWN_CHARACTERS = re.compile(r"([\\`*_{}\[\]<>#|~])")
_LONGEST_LINE = 120


def escape_markdown(text: str) -> str:
    """Return the text on one line, with Markdown characters escaped."""
    return _MARKDOWN_CHARACTERS.sub(r"\\\1", " ".join(text.split()))


def truncate(text: str, limit: int) -> str:
    """Return the text cut to ``limit`` characters, with an ellipsis if shortened."""
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def render_message(message: Message, limit: int) -> str:
    """Return a message as Markdown: its text, cut to ``limit`` characters, and a line per tool part."""
    text = "\n\n".join(part.text.strip() for part in message.parts if isinstance(part, Text))
    others = [part for part in message.parts if not isinstance(part, Text | Reasoning)]
    lines = [f"- {format_inline_code(truncate(summarize_part(part), _LONGEST_LINE))}" for part in others]
    return "\n\n".join(filter(None, [close_fence(truncate(text, limit)), "\n".join(lines)]))


def require_terminal(context: CommandContext) -> TerminalSurface:
    """Return the terminal surface; raises `Refused` if there is none."""
    if context.screen is None:
        raise Refused("This works only in the terminal.")
    return context.screen


_PLACEHOLDER = re.compile(r"(\\?)\$(ARGUMENTS\b|[1-9](?!\d))")


def split_arguments(text: str) -> list[str]:
    """Split arguments like a shell; with unbalanced quotes, split at white space only."""
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def substitute_arguments(text: str, arguments: str) -> str:
    r"""Replace ``$ARGUMENTS`` by ``arguments``, and ``$1`` to ``$9`` by single arguments.

    Without a placeholder ``arguments`` is appended. ``\$1`` becomes a literal ``$1``.
    """
    values = split_arguments(arguments)
    is_substituted = False

    def replace_placeholder(found: re.Match[str]) -> str:
        nonlocal is_substituted
        escaped, name = found.groups()
        if escaped:
            return found[0][1:]
        is_substituted = True
        if name == "ARGUMENTS":
            return arguments
        return values[int(name) - 1] if int(name) <= len(values) else ""

    result = _PLACEHOLDER.sub(replace_placeholder, text)
    return result if is_substituted or not arguments else f"{result}\n\n{arguments}"
