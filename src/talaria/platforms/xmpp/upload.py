"""Files: uploaded to the file service of the server (XEP-0363), and downloaded from addresses in messages."""

from collections.abc import Mapping
from datetime import timedelta
from ipaddress import ip_address
from urllib.parse import urlsplit
from xml.etree.ElementTree import Element

from msgspec import Struct

from talaria.core.errors import PlatformError, ProviderError, Rejected, ReplyTooLong, Unreachable
from talaria.http_client.client import HttpPool
from talaria.http_client.connection import Timeouts
from talaria.http_client.dial import SocketAddress, is_public, resolve_host
from talaria.platforms.xmpp.connection import XmppConnection
from talaria.platforms.xmpp.settings import XmppSettings
from talaria.platforms.xmpp.xml_stream import make

_UPLOAD = "urn:xmpp:http:upload:0"
_INFO = "http://jabber.org/protocol/disco#info"
_ITEMS = "http://jabber.org/protocol/disco#items"
_FORM = "jabber:x:data"
_SLOT_HEADERS = frozenset({"authorization", "cookie", "expires"})
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class FileService(Struct, frozen=True):
    """The file service of a server; ``limit`` is its largest file in bytes, 0 if it doesn't say."""

    jid: str
    limit: int = 0


class PrivateAddress(OSError):
    """Error of a name that leads to this machine or its network."""


class FileTransfer:
    """Uploads and downloads of one account; the creator closes it."""

    def __init__(self, settings: XmppSettings) -> None:
        self._settings = settings
        self._own_pool = HttpPool()
        self._public_pool = HttpPool(direct=True, resolve=_resolve_public)
        self._service: FileService | None = None
        self._origin = ""  # of our file service

    async def find_service(self, connection: XmppConnection) -> FileService:
        """Return the file service; raises `Rejected` if the server has none."""
        if self._service is None:
            domain = self._settings.domain
            items = await connection.request("get", make(_ITEMS, "query"), domain)
            services = [domain, *(one.get("jid", "") for one in items.iter(f"{{{_ITEMS}}}item"))]
            for service in filter(None, services):
                try:
                    info = await connection.request("get", make(_INFO, "query"), service)
                except PlatformError:
                    if not connection.is_open:
                        raise
                    continue
                if any(one.get("var") == _UPLOAD for one in info.iter(f"{{{_INFO}}}feature")):
                    self._service = FileService(service, _read_limit(info))
                    return self._service
            raise Rejected(f"the XMPP server of {domain} has no file service")
        return self._service

    async def upload(self, connection: XmppConnection, name: str, data: bytes, media_type: str) -> str:
        """Upload a file and return its address."""
        service = await self.find_service(connection)
        request = make(_UPLOAD, "request", {"filename": name, "size": str(len(data)), "content-type": media_type})
        answer = await connection.request("get", request, service.jid)
        put, get = (
            answer.find(f"{{{_UPLOAD}}}slot/{{{_UPLOAD}}}put"),
            answer.find(f"{{{_UPLOAD}}}slot/{{{_UPLOAD}}}get"),
        )
        if put is None or get is None:
            raise Unreachable("the file service sent no address")
        url, shown = put.get("url", ""), get.get("url", "")
        _check_encrypted(url)
        headers = {"content-type": media_type or "application/octet-stream"}
        headers |= {
            name: (one.text or "").replace("\n", "").replace("\r", "")
            for one in put
            if (name := one.get("name", "").lower()) in _SLOT_HEADERS
        }
        await self._exchange(self._own_pool, "PUT", url, data, headers)
        self._origin = _get_origin(shown)
        return shown

    async def download(self, connection: XmppConnection, url: str) -> bytes:
        """Return a file from our file service or from a public server; nothing else is asked for it."""
        if urlsplit(url).scheme not in ("http", "https"):
            raise Rejected("a file has no address on the web; encrypted files are not supported")
        if _get_origin(url) == await self._find_origin(connection):
            return await self._exchange(self._own_pool, "GET", url)
        _check_encrypted(url, also=frozenset())
        return await self._exchange(self._public_pool, "GET", url)

    async def close(self) -> None:
        """Close all connections."""
        await self._own_pool.close()
        await self._public_pool.close()

    async def _find_origin(self, connection: XmppConnection) -> str:
        """Return scheme, host and port of our file service: a slot that is never used tells."""
        if not self._origin:
            try:
                service = await self.find_service(connection)
                request = make(_UPLOAD, "request", {"filename": "file.txt", "size": "1"})
                answer = await connection.request("get", request, service.jid)
            except Rejected:
                return "-"
            get = answer.find(f"{{{_UPLOAD}}}slot/{{{_UPLOAD}}}get")
            self._origin = _get_origin(get.get("url", "")) if get is not None else "-"
        return self._origin

    async def _exchange(
        self, pool: HttpPool, method: str, url: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> bytes:
        patience: timedelta = self._settings.file_patience
        timeouts = Timeouts(self._settings.patience, patience, patience)
        try:
            async with pool.request(method, url, body, headers or {}, timeouts) as answer:
                if answer.status not in (200, 201):
                    error = Unreachable if answer.status >= 500 else Rejected
                    raise error(f"{urlsplit(url).hostname} answered {answer.status} instead of transferring the file")
                return await answer.body(self._settings.file_limit)
        except ReplyTooLong as error:
            raise Rejected(f"the file is larger than the limit of {self._settings.file_limit} bytes") from error
        except ProviderError as error:  # of the HTTP client, which model providers share
            if isinstance(error.__cause__, PrivateAddress):
                raise Rejected("the file is on this machine or its network, where nothing is fetched from") from error
            raise Unreachable(f"the file can't be transferred: {error}") from error


def _check_encrypted(url: str, also: frozenset[str] = _LOOPBACK) -> None:
    parts = urlsplit(url)
    if parts.scheme != "https" and (parts.scheme != "http" or parts.hostname not in also):
        raise Rejected("files are transferred only over https")


def _get_origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _read_limit(info: Element) -> int:
    for field in info.iter(f"{{{_FORM}}}field"):
        value = field.findtext(f"{{{_FORM}}}value") or ""
        if field.get("var") == "max-file-size" and value.isdecimal():
            return int(value)
    return 0


async def _resolve_public(host: str, port: int) -> list[SocketAddress]:
    """Return the addresses of a host; raises `PrivateAddress` if one of them is not public."""
    addresses = await resolve_host(host, port)
    if not all(is_public(ip_address(address[0].partition("%")[0])) for _, address in addresses):
        raise PrivateAddress(f"{host} is not public")
    return addresses
