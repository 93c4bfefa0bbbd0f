"""A finished text as lines for a terminal: transcripts, help."""

from talaria.cli.rendering.stream import MarkdownStream
from talaria.cli.rendering.themes import Theme


def render(text: str, theme: Theme, width: int) -> str:
    """Return the text as a stream of it would look in the end, in ``width`` columns."""
    stream = MarkdownStream(theme, lambda: width)
    return stream.feed(text) + stream.end()
