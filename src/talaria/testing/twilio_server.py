"""A strict Twilio on loopback: phone numbers, messages and media of the REST API 2010-04-01, and signed posts."""

import asyncio
import base64
import re
import secrets
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from email.utils import formatdate
from typing import Any
from urllib.parse import urlencode, urlsplit

from aiohttp import web

from talaria.core.ids import new_id
from talaria.platforms.sms.wire import sign_form
from talaria.testing.far_side import FailureKind, Post, WebhookSender

ACCOUNT, NUMBER = "AC" + "0" * 31 + "1", "+15005550006"
_ROOT = f"/2010-04-01/Accounts/{ACCOUNT}"
_NUMBER_SID = "PN" + "0" * 31 + "1"
_SEND_FIELDS = {"To", "From", "MessagingServiceSid", "Body", "MediaUrl", "StatusCallback"}
_LIST_FIELDS = {"To", "From", "DateSent", "DateSent>", "DateSent<", "PageSize", "Page", "PageToken"}
_MOST_MEDIA, _LONGEST = 10, 1600
_STOP, _START = (
    {"STOP", "STOPALL", "UNSUBSCRIBE", "CANCEL", "END", "QUIT", "REVOKE", "OPTOUT"},
    {"START", "UNSTOP", "YES"},
)


class TwilioServer:
    """One account with one phone number, the people who have phones, and the messages of both.

    ``tunnel`` is the address to which posts for the public one are forwarded. Every message is posted once, whether it
    is accepted or not. ``page_size`` limits the pages of lists.
    """

    def __init__(self, token: str, people: frozenset[str]) -> None:
        self.token = token
        self.people = people
        self.url = ""
        self.cdn = ""
        self.tunnel = ""
        self.sms_url = ""
        self.page_size = 1000
        self.failure: FailureKind | None = None
        self.opted_out: set[str] = set()
        self.received: list[dict[str, Any]] = []
        self.sent: list[dict[str, Any]] = []
        self.posts = WebhookSender(self._make_post, self._find_address, retries=False)
        self._media: dict[str, list[tuple[str, str, bytes]]] = {}
        self._transports: set[asyncio.BaseTransport] = set()

    def say(self, person: str, text: str, media_type: str = "", data: bytes = b"") -> str:
        """Let a person send a message, with a file if it has a type, and return its id."""
        sid = _make_sid("MM" if media_type else "SM")
        message = {"sid": sid, "from": person, "to": NUMBER, "body": text, "at": int(time.time())}
        if media_type:
            self._media[sid] = [(_make_sid("ME"), media_type, data)]
        if text.strip().upper() in _STOP:
            self.opted_out.add(person)
        elif text.strip().upper() in _START:
            self.opted_out.discard(person)
        self.received.append(message)
        self.posts.add(message)
        return sid

    def hang_up(self) -> None:
        """Break all connections."""
        for transport in self._transports:
            transport.abort()  # type: ignore[attr-defined] # all of them are TCP connections

    def application(self) -> web.Application:
        """Return its routes."""
        application = web.Application(middlewares=[self._guard])
        application.add_routes(
            [
                web.get(f"{_ROOT}/IncomingPhoneNumbers.json", self._list_numbers),
                web.post(f"{_ROOT}/IncomingPhoneNumbers/{_NUMBER_SID}.json", self._set_number),
                web.get(f"{_ROOT}/Messages.json", self._list_messages),
                web.post(f"{_ROOT}/Messages.json", self._send),
                web.get(f"{_ROOT}/Messages/{{sid}}/Media.json", self._list_media),
                web.get(f"{_ROOT}/Messages/{{sid}}/Media/{{media}}", self._redirect),
                web.get("/cdn/{sid}/{media}", self._download_media),
            ]
        )
        return application

    def _find_address(self) -> str:
        return self.tunnel if self.sms_url else ""

    def _make_post(self, item: object, _is_again: bool) -> Post:
        assert isinstance(item, dict)
        media = self._media.get(item["sid"], [])
        form = dict.fromkeys(("MessageSid", "SmsSid", "SmsMessageSid"), str(item["sid"]))
        form |= {"AccountSid": ACCOUNT, "ApiVersion": "2010-04-01", "NumSegments": "1", "SmsStatus": "received"}
        form |= {"From": item["from"], "To": item["to"], "Body": item["body"], "NumMedia": str(len(media))}
        for number, (media_sid, media_type, _) in enumerate(media):
            form[f"MediaUrl{number}"] = f"{self.url}{_ROOT}/Messages/{item['sid']}/Media/{media_sid}"
            form[f"MediaContentType{number}"] = media_type
        signature = sign_form(self.token, self.sms_url, {key: [value] for key, value in form.items()})
        headers = {"content-type": "application/x-www-form-urlencoded; charset=utf-8", "x-twilio-signature": signature}
        return urlencode(form).encode(), {**headers, "i-twilio-idempotency-token": new_id()}

    @web.middleware
    async def _guard(self, request: web.Request, handler: Any) -> web.StreamResponse:
        assert request.transport is not None
        self._transports.add(request.transport)
        given = request.headers.get("authorization", "")
        if request.path.startswith("/cdn/"):
            return _refuse(400, 0, "Only one auth mechanism allowed") if given else await handler(request)
        expected = base64.b64encode(f"{ACCOUNT}:{self.token}".encode()).decode()
        if self.failure == "revoked" or given != f"Basic {expected}":
            return _refuse(401, 20003, "Authenticate")
        if request.method == "POST" and request.content_type != "application/x-www-form-urlencoded":
            return _refuse(415, 20012, "Unsupported media type")
        response: web.StreamResponse = await handler(request)
        return response

    async def _list_numbers(self, request: web.Request) -> web.StreamResponse:
        is_ours = request.query.get("PhoneNumber", NUMBER) == NUMBER
        number = {"sid": _NUMBER_SID, "phone_number": NUMBER, "sms_url": self.sms_url, "sms_method": "POST"}
        return web.json_response({"incoming_phone_numbers": [number] if is_ours else [], "next_page_uri": None})

    async def _set_number(self, request: web.Request) -> web.StreamResponse:
        form = await request.post()
        if form.keys() - {"SmsUrl", "SmsMethod"} or not urlsplit(str(form["SmsUrl"])).hostname:
            return _refuse(400, 21502, "SmsUrl is not valid")
        self.sms_url = str(form["SmsUrl"])
        return web.json_response({"sid": _NUMBER_SID, "phone_number": NUMBER, "sms_url": self.sms_url})

    async def _list_messages(self, request: web.Request) -> web.StreamResponse:
        if request.query.keys() - _LIST_FIELDS:
            return _refuse(400, 20001, "Unknown parameter")
        since = request.query.get("DateSent>", "1970-01-01T00:00:00Z")
        if not re.fullmatch(r"\d{4}-\d\d-\d\d(T\d\d:\d\d:\d\dZ)?", since):
            return _refuse(400, 20001, "DateSent is not a date")
        found = [
            one
            for one in reversed(self.received)
            if time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(one["at"])) >= since
            and one["to"] == request.query.get("To", one["to"])
        ]
        page, size = int(request.query.get("Page", "0")), min(int(request.query.get("PageSize", "50")), self.page_size)
        rest = urlencode({**request.query, "Page": page + 1, "PageToken": "PASM"})
        return web.json_response(
            {
                "messages": [self._make_resource(one) for one in found[page * size : (page + 1) * size]],
                "page": page,
                "page_size": size,
                "next_page_uri": f"{request.path}?{rest}" if len(found) > (page + 1) * size else None,
            }
        )

    def _make_resource(self, message: Mapping[str, Any]) -> dict[str, Any]:
        at = formatdate(message["at"])
        common = {key: message[key] for key in ("sid", "from", "to", "body")}
        common |= {"direction": "inbound", "status": "received", "account_sid": ACCOUNT, "error_code": None}
        return common | {
            "num_media": str(len(self._media.get(message["sid"], []))), "date_sent": at, "date_created": at,
        }  # fmt: skip

    async def _send(self, request: web.Request) -> web.StreamResponse:
        form = await request.post()
        fields = {key: [str(one) for one in form.getall(key)] for key in form}
        if problem := self._find_problem(fields):
            return _refuse(400, *problem)
        match self.failure:
            case "slow_down":
                return _refuse(429, 20429, "Too Many Requests")
            case "failing":
                return _refuse(500, 20500, "Internal Server Error")
            case "silent":
                await asyncio.Event().wait()
        media = fields.get("MediaUrl", [])
        message = {"sid": _make_sid("MM" if media else "SM"), "to": fields["To"][0], "media": media}
        self.sent.append({**message, "body": fields.get("Body", [""])[0]})
        given = {"sid": message["sid"], "status": "queued", "direction": "outbound-api", "num_media": str(len(media))}
        return web.json_response(given, status=201)

    def _find_problem(self, fields: Mapping[str, list[str]]) -> tuple[int, str] | None:
        body, media, to = fields.get("Body", [""])[0], fields.get("MediaUrl", []), fields.get("To", [""])[0]
        origin = [*fields.get("From", []), *fields.get("MessagingServiceSid", [])]
        checks = (
            (bool(fields.keys() - _SEND_FIELDS), 20001, "Unknown parameter"),
            (any(len(values) > 1 for key, values in fields.items() if key != "MediaUrl"), 20001, "Repeated parameter"),
            (len(origin) != 1, 21603, "A 'From' phone number is required"),
            (origin[:1] != [NUMBER] and not origin[0].startswith("MG"), 21606, "The 'From' number is not yours"),
            (not re.fullmatch(r"\+[1-9]\d{6,14}", to) or to not in self.people, 21211, "Invalid 'To' Phone Number"),
            (to in self.opted_out, 21610, "Attempt to send to unsubscribed recipient"),
            (not body.strip() and not media, 21619, "A text message body or media urls must be specified"),
            (len(body.encode("utf-16-le")) // 2 > _LONGEST, 21617, "The body exceeds the 1600 character limit"),
            (len(media) > _MOST_MEDIA, 21623, "Number of media files exceeds allowed limit"),
            (any(not one.startswith(("http://", "https://")) for one in media), 21620, "Invalid media URL(s)"),
        )
        return next(((code, text) for is_wrong, code, text in checks if is_wrong), None)

    async def _list_media(self, request: web.Request) -> web.StreamResponse:
        sid = request.match_info["sid"]
        base = f"{_ROOT}/Messages/{sid}/Media"
        found = self._media.get(sid, [])
        media = [{"sid": one, "uri": f"{base}/{one}.json", "content_type": kind} for one, kind, _ in found]
        return web.json_response({"media_list": media, "next_page_uri": None})

    async def _redirect(self, request: web.Request) -> web.StreamResponse:
        sid, media = request.match_info["sid"], request.match_info["media"]
        if media not in {one for one, _, _ in self._media.get(sid, [])}:
            return _refuse(404, 20404, "The requested resource was not found")
        return web.Response(status=307, headers={"location": f"{self.cdn}/cdn/{sid}/{media}"})

    async def _download_media(self, request: web.Request) -> web.StreamResponse:
        found = self._media.get(request.match_info["sid"], [])
        data = next((data for one, _, data in found if one == request.match_info["media"]), None)
        return web.Response(body=data) if data is not None else web.Response(status=404)


@asynccontextmanager
async def twilio_server(token: str, people: frozenset[str]) -> AsyncIterator[TwilioServer]:
    """Serve the API on a free port, and post what people send."""
    server = TwilioServer(token, people)
    runner = web.AppRunner(server.application(), shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    for _ in range(2):
        await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.url, server.cdn = (f"http://127.0.0.1:{address[1]}" for address in runner.addresses)
    try:
        async with server.posts.running():
            yield server
    finally:
        server.hang_up()
        await runner.cleanup()


def _make_sid(prefix: str) -> str:
    return prefix + secrets.token_hex(16)


def _refuse(status: int, code: int, text: str) -> web.Response:
    more = f"https://www.twilio.com/docs/errors/{code}"
    return web.json_response({"code": code, "message": text, "more_info": more, "status": status}, status=status)
