"""What people wrote lately, to tell an edit that changes something from one that does not."""

from collections import OrderedDict

from talaria.contracts.platform import Incoming

_KEPT = 2000


class Recent:
    """The messages that arrived last, as far as they are read here."""

    def __init__(self) -> None:
        self._seen: OrderedDict[tuple[str, str], tuple[str, ...]] = OrderedDict()

    def is_news(self, incoming: Incoming) -> bool:
        """Tell whether this says something; an edit that leaves what was said as it was does not."""
        return not incoming.edited or self._seen.get(_place(incoming)) != _content(incoming)

    def add(self, incoming: Incoming) -> None:
        """Keep what was taken; what was not has to be news when it comes again."""
        if incoming.button or incoming.reaction or incoming.formerly:
            return
        self._seen[_place(incoming)] = _content(incoming)
        self._seen.move_to_end(_place(incoming))
        if len(self._seen) > _KEPT:
            self._seen.popitem(last=False)


def _place(incoming: Incoming) -> tuple[str, str]:
    return incoming.address.chat_id, incoming.message_id


def _content(incoming: Incoming) -> tuple[str, ...]:
    return incoming.text, *(one.name for one in incoming.attachments)
