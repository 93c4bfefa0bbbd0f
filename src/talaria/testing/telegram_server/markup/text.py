"""Text that grows while markup is read, counted as Telegram counts it."""

from talaria.testing.telegram_server.parts import MessageEntity


class Broken(Exception):
    """Markup that cannot be read; the sentence is Telegram's."""


def units(text: str) -> int:
    """Return how many UTF-16 code units a text has."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def byte_offset(text: str, place: int) -> int:
    """Return how many bytes of UTF-8 stand before a place."""
    return len(text[:place].encode("utf-8", "surrogatepass"))


class Growing:
    """What has been read so far: plain text and finished entities."""

    def __init__(self) -> None:
        self.entities: list[MessageEntity] = []
        self.length = 0
        self._pieces: list[str] = []

    def write(self, piece: str) -> None:
        """Add plain text."""
        self._pieces.append(piece)
        self.length += units(piece)

    def close(self, entity: MessageEntity) -> None:
        """Add an entity, unless it is empty."""
        if entity.length > 0:
            self.entities.append(entity)

    @property
    def text(self) -> str:
        """The plain text."""
        return "".join(self._pieces)

    def since(self, offset: int) -> str:
        """Return the plain text from an offset in UTF-16 code units on."""
        return self.text.encode("utf-16-le", "surrogatepass")[2 * offset :].decode("utf-16-le", "surrogatepass")
