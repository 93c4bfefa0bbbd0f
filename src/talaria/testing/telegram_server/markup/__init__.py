"""Telegram's two markups, parsed as strictly as Telegram does."""

from collections.abc import Sequence

from talaria.testing.telegram_server.markup.html import parse_html
from talaria.testing.telegram_server.markup.markdown import parse_markdown
from talaria.testing.telegram_server.markup.text import MarkupError, add_found_entities, check_entities, trim_text
from talaria.testing.telegram_server.parts import MessageEntity
from talaria.testing.telegram_server.refusals import bad_request

__all__ = ["read_text"]

_PARSERS = {"markdownv2": parse_markdown, "html": parse_html}


def read_text(
    text: str, parse_mode: str | None, entities: Sequence[MessageEntity] | None
) -> tuple[str, tuple[MessageEntity, ...]]:
    """Return text and entities as they will be shown, or refuse what is broken."""
    if parse_mode:
        parser = _PARSERS.get(parse_mode.lower())
        if parser is None:
            raise bad_request("unsupported parse_mode")
        try:
            text, entities = parser(text)
        except MarkupError as error:
            raise bad_request(f"can't parse entities: {error}") from error
    else:
        entities = check_entities(text, entities or ())
    text, entities = trim_text(text, entities)
    return text, add_found_entities(text, entities)
