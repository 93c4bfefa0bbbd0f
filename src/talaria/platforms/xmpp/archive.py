"""The message archive of an account or room (XEP-0313): queries, and their results."""

from datetime import UTC, datetime
from xml.etree.ElementTree import Element

from msgspec import Struct

from talaria.core.errors import Rejected
from talaria.core.ids import new_id
from talaria.platforms.xmpp.connection import XmppConnection
from talaria.platforms.xmpp.wire import FORWARD, MAM, MUC_USER, XmppMessage, bare, read_stored, read_time
from talaria.platforms.xmpp.xml_stream import CLIENT, make

_RSM = "http://jabber.org/protocol/rsm"
_FORM = "jabber:x:data"
_DELAY = "urn:xmpp:delay"
PAGE = 50


class ArchivePosition(Struct, frozen=True):
    """The last processed message of an archive; both empty if the archive was."""

    archive_id: str
    at: datetime


class ArchivePage(Struct, frozen=True):
    """Messages of an archive, oldest first, and whether no later ones follow."""

    messages: tuple[XmppMessage, ...]
    is_last: bool


class ArchiveReader:
    """Queries of archives over one connection."""

    def __init__(self, connection: XmppConnection, own_jid: str) -> None:
        self._connection = connection
        self._own_jid = own_jid
        self._results: dict[str, tuple[str, list[Element]]] = {}

    def collect(self, stanza: Element) -> bool:
        """Take a message that is a result of a query, and return whether it is one."""
        result = stanza.find(f"{{{MAM}}}result")
        if result is None:
            return False
        archive, results = self._results.get(result.get("queryid", ""), ("", []))
        if archive and bare(stanza.get("from", self._own_jid)) == archive:
            results.append(result)
        return True

    async def latest(self, archive: str, *, person: str = "", most: int = PAGE, is_open: bool = False) -> ArchivePage:
        """Return the last page, optionally of the chat with a person."""
        return await self._query(archive, {"with": person}, most, make(_RSM, "before"), is_open=is_open)

    async def after(self, archive: str, position: ArchivePosition, *, is_open: bool = False) -> ArchivePage:
        """Return the page after a position; if the archive has forgotten that message, what is as new as it."""
        after = [make(_RSM, "after", None, position.archive_id)] if position.archive_id else []
        try:
            return await self._query(archive, {}, PAGE, *after, is_open=is_open)
        except Rejected:
            if not after:
                raise
        start = position.at.astimezone(UTC).isoformat().replace("+00:00", "Z")
        return await self._query(archive, {"start": start}, PAGE, is_open=is_open)

    async def _query(
        self, archive: str, fields: dict[str, str], most: int, *page: Element, is_open: bool
    ) -> ArchivePage:
        query_id = new_id()
        results: list[Element] = []
        self._results[query_id] = (archive, results)
        filters = [
            _make_field("FORM_TYPE", MAM, "hidden"),
            *(_make_field(name, one) for name, one in fields.items() if one),
        ]
        form = make(_FORM, "x", {"type": "submit"}, *filters)
        limits = make(_RSM, "set", None, make(_RSM, "max", None, str(most)), *page)
        try:
            answer = await self._connection.request(
                "set", make(MAM, "query", {"queryid": query_id}, form, limits), archive
            )
        finally:
            del self._results[query_id]
        done = answer.find(f"{{{MAM}}}fin")
        is_last = done is None or done.get("complete") == "true" or not results
        return ArchivePage(tuple(_read_result(one, is_open=is_open) for one in results), is_last)


def _read_result(result: Element, *, is_open: bool) -> XmppMessage:
    """Return an archived message. Who an occupant was counts only in a room that is open about it."""
    forwarded = result.find(f"{{{FORWARD}}}forwarded")
    message = forwarded.find(f"{{{CLIENT}}}message") if forwarded is not None else None
    if forwarded is None or message is None:
        return XmppMessage("", "error", datetime.now(UTC), archive_id=result.get("id", ""))
    items = message.findall(f"{{{MUC_USER}}}x/{{{MUC_USER}}}item")
    real_jid = items[-1].get("jid", "") if is_open and len(items) == 1 else ""
    at = read_time(forwarded.find(f"{{{_DELAY}}}delay")) or datetime.now(UTC)
    return read_stored(message, result.get("id", ""), at, real_jid=real_jid)


def _make_field(name: str, value: str, kind: str = "") -> Element:
    return make(_FORM, "field", {"var": name, "type": kind}, make(_FORM, "value", None, value))
