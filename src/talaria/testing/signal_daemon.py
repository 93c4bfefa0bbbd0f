"""A strict stand-in for signal-cli's daemon on loopback: JSON-RPC 2.0, one message per line, as its manual describes.

It receives while a client has subscribed (``--receive-mode manual``): Signal holds messages until then, and a message
that was written to a client counts as delivered.
"""

import asyncio
import base64
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from msgspec import Struct

from talaria.testing.platform_suite import FailureKind

_USER_ERROR, _IO_ERROR, _RATE_LIMIT, _NO_METHOD, _BAD_PARAMS = -1, -3, -5, -32601, -32602
_CHAT = frozenset({"account", "recipient", "groupId"})
_PARAMS = {
    "version": frozenset[str](),
    "listAccounts": frozenset[str](),
    "subscribeReceive": frozenset({"account"}),
    "unsubscribeReceive": frozenset({"account", "subscription"}),
    "send": _CHAT | {"message", "attachments", "quoteTimestamp", "quoteAuthor", "quoteMessage", "mention", "textStyle"},
    "sendTyping": _CHAT | {"stop"},
    "sendReaction": _CHAT | {"emoji", "targetAuthor", "targetTimestamp", "remove"},
    "getAttachment": _CHAT | {"id"},
}


class SentMessage(Struct):
    """A message that the bot sent; ``chat`` is a person or a group."""

    chat: str
    timestamp: int
    text: str
    quote: str = ""
    files: tuple[str, ...] = ()


class _Refusal(Exception):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class SignalDaemon:
    """A daemon with one number, and the people and groups that it knows."""

    def __init__(self, account: str, people: frozenset[str], groups: frozenset[str]) -> None:
        self.account = account
        self.people = people
        self.groups = groups
        self.address = ""
        self.failure: FailureKind | None = None
        self.sent: list[SentMessage] = []
        self.typing: list[str] = []
        self.reactions: dict[tuple[str, int], str] = {}
        self.messages: set[tuple[str, int]] = set()  # author and time
        self._files: dict[str, bytes] = {}
        self._waiting: list[dict[str, Any]] = []
        self._clients: list[asyncio.StreamWriter] = []
        self._subscriber: asyncio.StreamWriter | None = None
        self._subscriptions = 0
        self._last_time = 0

    @property
    def is_followed(self) -> bool:
        """Return whether a client receives messages."""
        return self._subscriber is not None

    def deliver(self, sender: str, *, group: str = "", edits: int = 0, **message: Any) -> int:
        """Let a person send something, and return its time; ``edits`` is the time of a message that it replaces."""
        now = self._make_time()
        data: dict[str, Any] = {"timestamp": now, "message": None, "expiresInSeconds": 0, "viewOnce": False} | message
        if group:
            data["groupInfo"] = {"groupId": group, "groupName": "Garden", "revision": 1, "type": "DELIVER"}
        body = {"editMessage": {"targetSentTimestamp": edits, "dataMessage": data}} if edits else {"dataMessage": data}
        envelope = {
            "source": sender, "sourceNumber": None, "sourceUuid": sender, "sourceName": "Ann", "sourceDevice": 1,
            "timestamp": now, "serverReceivedTimestamp": now, "serverDeliveredTimestamp": now, **body,
        }  # fmt: skip
        self.messages.add((sender, now))
        self._waiting.append({"envelope": envelope, "account": self.account})
        self._flush()
        return now

    def add_file(self, data: bytes) -> str:
        """Store a received file and return its id."""
        file_id = f"{len(self._files)}.bin"
        self._files[file_id] = data
        return file_id

    def hang_up(self) -> None:
        """Break all connections."""
        for client in self._clients:
            client.transport.abort()
        self._clients.clear()
        self._subscriber = None

    def calm(self) -> None:
        """End a disruption."""
        self.failure = None
        self._flush()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer a client until it hangs up."""
        self._clients.append(writer)
        try:
            while line := await reader.readline():
                if (answer := self._answer(line, writer)) is not None:
                    writer.write(msgspec.json.encode(answer) + b"\n")
                    self._flush()
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            if writer in self._clients:
                self._clients.remove(writer)
            if self._subscriber is writer:
                self._subscriber = None
            writer.transport.abort()

    def _flush(self) -> None:
        if self._subscriber is not None and self.failure not in ("deaf", "silent"):
            for received in self._waiting:
                params = {"subscription": self._subscriptions, "result": received}
                note = {"jsonrpc": "2.0", "method": "receive", "params": params}
                self._subscriber.write(msgspec.json.encode(note) + b"\n")
            self._waiting.clear()

    def _answer(self, line: bytes, client: asyncio.StreamWriter) -> dict[str, Any] | None:
        request = msgspec.json.decode(line, type=dict[str, Any])
        if request.get("jsonrpc") != "2.0" or not isinstance(request.get("id"), str):
            raise AssertionError(f"no request of JSON-RPC 2.0: {line[:200]!r}")
        if self.failure in ("deaf", "silent"):
            return None
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": request["id"]}
        try:
            return answer | {"result": self._run(str(request.get("method")), request.get("params") or {}, client)}
        except _Refusal as error:
            return answer | {"error": {"code": error.code, "message": str(error), "data": None}}

    def _run(self, method: str, params: Mapping[str, Any], client: asyncio.StreamWriter) -> object:
        if method not in _PARAMS:
            raise _Refusal(_NO_METHOD, "Method not implemented")
        if unknown := params.keys() - _PARAMS[method]:
            raise _Refusal(_BAD_PARAMS, f"Unrecognized fields: {sorted(unknown)}")
        match method:
            case "version":
                return {"version": "0.13.19"}
            case "listAccounts":
                return [] if self.failure == "revoked" else [{"number": self.account}]
        if params.get("account") != self.account or self.failure == "revoked":
            raise _Refusal(_BAD_PARAMS, "Specified account does not exist")
        match method:
            case "subscribeReceive":
                self._subscriber, self._subscriptions = client, self._subscriptions + 1
                return self._subscriptions
            case "unsubscribeReceive":
                self._subscriber = None
                return {}
            case "getAttachment":
                return {"data": base64.b64encode(self._get_file(params["id"])).decode()}
        return self._run_in_chat(method, params)

    def _run_in_chat(self, method: str, params: Mapping[str, Any]) -> object:
        chat = self._find_chat(params)
        match method:
            case "send":
                return self._send(chat, params)
            case "sendTyping":
                self.typing.append(chat)
            case "sendReaction":
                self._react(params)
        return {"timestamp": self._make_time()}

    def _send(self, chat: str, params: Mapping[str, Any]) -> dict[str, Any]:
        if self.failure == "slow_down":
            raise _Refusal(_RATE_LIMIT, "Rate limited")
        if self.failure == "failing":
            raise _Refusal(_IO_ERROR, "Failed to send message")
        text, files = params.get("message", ""), params.get("attachments", [])
        if not text and not files:
            raise _Refusal(_USER_ERROR, "No message body given")
        if ("quoteTimestamp" in params) != ("quoteAuthor" in params):
            raise _Refusal(_USER_ERROR, "quoteTimestamp and quoteAuthor belong together")
        quote = f"{params['quoteAuthor']}:{params['quoteTimestamp']}" if "quoteTimestamp" in params else ""
        sent = SentMessage(chat, self._make_time(), text, quote, tuple(map(self._read_file_name, files)))
        self.sent.append(sent)
        self.messages.add((self.account, sent.timestamp))
        return {"timestamp": sent.timestamp, "results": [{"recipientAddress": {"uuid": chat}, "type": "SUCCESS"}]}

    def _react(self, params: Mapping[str, Any]) -> None:
        target = (params["targetAuthor"], params["targetTimestamp"])
        if not params.get("emoji") or target not in self.messages:
            raise _Refusal(_USER_ERROR, "Invalid reaction")
        if params.get("remove"):
            self.reactions.pop(target, None)
        else:
            self.reactions[target] = params["emoji"]

    def _find_chat(self, params: Mapping[str, Any]) -> str:
        if "groupId" in params:
            if params["groupId"] not in self.groups:
                raise _Refusal(_USER_ERROR, "Group not found")
            return str(params["groupId"])
        (recipient,) = params["recipient"]
        if recipient not in self.people:
            raise _Refusal(_USER_ERROR, "Unregistered user")
        return str(recipient)

    def _get_file(self, file_id: str) -> bytes:
        if file_id not in self._files:
            raise _Refusal(_USER_ERROR, "Could not find attachment")
        return self._files[file_id]

    @staticmethod
    def _read_file_name(given: str) -> str:
        head, _, data = given.partition(";base64,")
        base64.b64decode(data, validate=True)
        if not head.startswith("data:"):
            raise _Refusal(_USER_ERROR, "Failed to add attachment")
        return head.partition(";filename=")[2]

    def _make_time(self) -> int:
        self._last_time = max(self._last_time + 1, int(time.time() * 1000))
        return self._last_time


@asynccontextmanager
async def signal_daemon(
    account: str, people: frozenset[str], groups: frozenset[str] = frozenset()
) -> AsyncIterator[SignalDaemon]:
    """Serve on a free port."""
    daemon = SignalDaemon(account, people, groups)
    server = await asyncio.start_server(daemon.serve, "127.0.0.1", 0, limit=64 * 1024 * 1024)
    daemon.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield daemon
    finally:
        server.close()
        daemon.hang_up()
        await server.wait_closed()
