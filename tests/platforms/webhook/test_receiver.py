"""Answers to senders: accepted, ignored or rejected with a reason, and never an internal error."""

import asyncio
import hashlib
import hmac
import logging
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from aiohttp import BytesPayload, ClientError, ClientSession
from tests.platforms.webhook.far_side import SECRETS, write_route
from tests.platforms.webhook.webhook_peers import SECRET, free_port, mac, post, standard

from talaria.contracts.platform import Incoming
from talaria.core.errors import Unreachable
from talaria.platforms.webhook.adapter import Webhooks
from talaria.platforms.webhook.settings import WebhookSettings

BODY = b'{"text": "ahoy"}'
NONE: Mapping[str, str] = {}
FORGED = b"POST /webhooks/hub HTTP/1.1\r\nhost: x\r\nwebhook-signature: v1,forged\r\n"


class Door:
    """Webhooks that listen, and somebody who takes what arrives as a gateway does."""

    def __init__(self, folder: Path, **told: object) -> None:
        self.folder = folder
        settings = WebhookSettings(routes=str(folder), port=free_port(), **told)  # type: ignore[arg-type]
        self.platform = Webhooks(settings, {**SECRETS, "SLACK": "slack secret"}.get)
        self.url = f"http://127.0.0.1:{settings.port}/webhooks/"
        self.taken: list[Incoming] = []
        self.seen = asyncio.Event()
        self.stuck = asyncio.Event()
        self.stuck.set()

    async def post(self, route: str, body: bytes = BODY, headers: Mapping[str, str] = NONE) -> int:
        return (await post(self.url + route, body, headers))[0]

    async def post_signed(self, route: str, number: str, body: bytes = BODY) -> int:
        return (await post(self.url + route, body, standard(body, number)))[0]

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        async with self.platform.connect() as arrivals:
            taking = asyncio.ensure_future(self._take(arrivals))
            try:
                yield
            finally:
                taking.cancel()
                await asyncio.gather(taking, return_exceptions=True)

    async def _take(self, arrivals: AsyncIterator[Incoming]) -> None:
        async for incoming in arrivals:
            self.seen.set()
            await self.stuck.wait()
            self.taken.append(incoming)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_route(tmp_path, "hub", template="{{ text }}")
    return tmp_path


async def test_an_event_is_acknowledged_once_it_is_stored(folder: Path) -> None:
    door = Door(folder)
    async with door.opened():
        door.stuck.clear()
        posting = asyncio.ensure_future(post(f"{door.url}hub", BODY, standard(BODY, "m1")))
        await door.seen.wait()
        assert not posting.done()
        door.stuck.set()
        status, said, _ = await posting
    assert (status, said) == (202, {"status": "accepted", "id": "m1"})
    assert [one.external_id for one in door.taken] == ["hub:m1"]


async def test_who_cannot_be_served_in_time_is_to_come_again(folder: Path) -> None:
    door = Door(folder, patience=timedelta(milliseconds=200))
    async with door.opened():
        door.stuck.clear()
        for _ in range(2):
            status, _, headers = await post(f"{door.url}hub", BODY, standard(BODY, "m1"))
            assert (status, headers["retry-after"]) == (503, "5")
        door.stuck.set()
        assert await door.post_signed("hub", "m1") == 202
    assert {one.external_id for one in door.taken} == {"hub:m1"}


async def test_pending_requests_at_shutdown_are_asked_to_retry(folder: Path) -> None:
    door = Door(folder)
    async with door.opened():
        door.stuck.clear()
        posts = [asyncio.ensure_future(door.post_signed("hub", f"m{number}")) for number in range(3)]
        await door.seen.wait()
    answers = await asyncio.gather(*posts, return_exceptions=True)
    assert 503 in answers
    assert all(answer == 503 or isinstance(answer, ClientError) for answer in answers)
    assert door.taken == []


async def test_bad_signatures_are_refused_and_wake_nobody(folder: Path) -> None:
    door = Door(folder)
    forged = standard(BODY, "m1", secret="guess")
    async with door.opened():
        assert await door.post("hub", headers=forged) == 401
        assert await door.post("hub") == 401
        assert await door.post("hub", b"{}", standard(BODY, "m1")) == 401
        assert await door.post("hub", headers=standard(BODY, "m1", at=0)) == 401
        assert await door.post("nowhere", headers=standard(BODY, "m1")) == 404
        assert await door.post("..%2fhub", headers=standard(BODY, "m1")) == 404
    assert door.taken == []


async def test_what_is_too_long_is_refused_whatever_it_says_of_its_length(folder: Path) -> None:
    door = Door(folder, largest=2048)
    body = b'"' + b"x" * 4000 + b'"'

    async def pieces() -> AsyncIterator[bytes]:
        yield body

    async with door.opened():
        assert await door.post_signed("hub", "m1", body) == 413
        assert (await post(f"{door.url}hub", pieces(), standard(body, "m1")))[0] == 413  # type: ignore[arg-type]
        assert await door.post_signed("hub", "m2") == 202


async def test_a_rate_limited_sender_learns_when_to_retry_and_forged_requests_do_not_count(folder: Path) -> None:
    write_route(folder, "hub", per_minute=2)
    write_route(folder, "other", per_minute=2)
    door = Door(folder)
    async with door.opened():
        for _ in range(5):
            assert await door.post("hub", headers=standard(BODY, "m", secret="guess")) == 401
        assert [await door.post_signed("hub", f"m{number}") for number in range(2)] == [202, 202]
        status, _, headers = await post(f"{door.url}hub", BODY, standard(BODY, "m3"))
        assert status == 429
        assert 1 <= int(headers["retry-after"]) <= 31
        assert await door.post_signed("other", "m1") == 202


async def test_too_many_parallel_requests_are_asked_to_wait(folder: Path) -> None:
    door = Door(folder, waiting=3, patience=timedelta(seconds=5))
    async with door.opened():
        door.stuck.clear()
        waiting = [asyncio.ensure_future(door.post_signed("hub", f"m{number}")) for number in range(5)]
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED, timeout=5)
        assert {one.result() for one in done} == {429}
        door.stuck.set()
        assert sorted(await asyncio.gather(*waiting)) == [202, 202, 202, 429, 429]


async def test_events_that_are_not_wanted_are_no_failure(folder: Path) -> None:
    (folder / "hub.toml").write_text('[when]\n"headers.x-event" = "push"\n')
    door = Door(folder)
    async with door.opened():
        status, said, _ = await post(f"{door.url}hub", BODY, standard(BODY, "m1"))
    assert (status, said, door.taken) == (200, {"status": "ignored"}, [])


async def test_what_is_missing_is_said_in_the_log_and_the_event_counts(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_route(folder, "hub", template="{{ text }} {{ who.name }}")
    door = Door(folder)
    async with door.opened():
        assert await door.post_signed("hub", "m1") == 202
    assert "webhook hub: the event has no who.name" in caplog.messages


async def test_a_body_that_cannot_be_read_or_breaks_off_is_the_senders_fault(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    door = Door(folder, reading=timedelta(milliseconds=300))
    host, port = "127.0.0.1", int(door.url.split(":")[2].partition("/")[0])
    async with door.opened():
        assert await door.post_signed("hub", "m1", b'{"text": ') == 400
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(FORGED + b"content-length: 100\r\n\r\n{")
        assert b" 408 " in await reader.readline()
        writer.close()
        _, writer = await asyncio.open_connection(host, port)
        writer.write(FORGED + b"content-length: 100\r\n\r\n{")
        await writer.drain()
        writer.transport.abort()
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(FORGED + b"transfer-encoding: chunked\r\n\r\nzz\r\n")
        assert b" 400 " in await reader.readline()
        writer.close()
        reader, writer = await asyncio.open_connection(host, port)
        odd = b"host: \xff\r\nwebhook-id: \xff\r\nwebhook-timestamp: \xff\r\nwebhook-signature: v1,\xff\r\n"
        writer.write(b"POST /webhooks/hub HTTP/1.1\r\n" + odd + b"content-length: 1\r\n\r\n{")
        assert b" 401 " in await reader.readline()
        writer.close()
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(b"POST /webhooks/%ff%0a%00 HTTP/1.1\r\nhost: x\r\n\r\n")
        assert b" 404 " in await reader.readline()
        writer.close()
        assert await door.post_signed("hub", "m2") == 202
    assert [record for record in caplog.records if record.exc_info] == []


async def test_a_wrong_encoding_is_refused_without_a_traceback(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    door = Door(folder)
    async with door.opened():
        for encoding in ("gzip", "deflate"):
            wrong = {"content-encoding": encoding, "webhook-signature": "v1,forged"}
            async with ClientSession(auto_decompress=False) as http:
                data = BytesPayload(b"this is not compressed")
                async with http.post(f"{door.url}hub", data=data, headers=wrong) as answer:
                    assert answer.status == 400
        assert await door.post_signed("hub", "m2") == 202
    assert [record for record in caplog.records if record.exc_info] == []


async def test_what_has_no_signature_is_refused_before_its_body_comes(folder: Path) -> None:
    door = Door(folder)
    port = int(door.url.split(":")[2].partition("/")[0])
    async with door.opened():
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /webhooks/hub HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n")
        assert b" 401 " in await reader.readline()
        writer.close()


async def test_slow_bodies_do_not_keep_signed_posts_out(folder: Path) -> None:
    door = Door(folder, waiting=4)
    port = int(door.url.split(":")[2].partition("/")[0])
    async with door.opened():
        slow = [await asyncio.open_connection("127.0.0.1", port) for _ in range(12)]
        for _, writer in slow:
            writer.write(FORGED + b"content-length: 100\r\n\r\n{")
            await writer.drain()
        assert b" 408 " in await slow[0][0].readline()  # gave way to others
        for number in range(10):
            assert await door.post_signed("hub", f"m{number}") == 202
        for _, writer in slow:
            writer.close()


async def test_a_head_that_does_not_come_ends_its_connection(folder: Path) -> None:
    door = Door(folder, head=timedelta(milliseconds=100))
    port = int(door.url.split(":")[2].partition("/")[0])
    async with door.opened():
        for sent in (b"", b"POST /webhooks/hub HTTP/1.1\r\nhost: x\r\n"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent)
            assert await reader.read() == b""
            writer.close()
        assert await door.post_signed("hub", "m1") == 202


async def test_a_replay_under_another_delivery_id_is_known(folder: Path) -> None:
    write_route(folder, "git", scheme="github", template="{{ text }}")
    write_route(folder, "again", scheme="github", template="{{ text }}", repeats=True)
    door = Door(folder)
    signature = f"sha256={hmac.new(SECRET.encode(), BODY, hashlib.sha256).hexdigest()}"
    async with door.opened():
        for route in ("git", "again"):
            for delivery in ("one", "two"):
                headers = {"x-hub-signature-256": signature, "x-github-delivery": delivery}
                assert await door.post(route, headers=headers) == 202
    ids = [one.external_id for one in door.taken]
    assert ids[0] == ids[1]
    assert ids[2:] == ["again:one", "again:two"]


async def test_a_route_that_is_out_of_order_keeps_its_events_with_their_senders(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_route(folder, "broken", template="{{ a b }}")
    write_route(folder, "poor", secret="NO_SUCH_SECRET")
    door = Door(folder)
    async with door.opened():
        told = [record.levelno for record in caplog.records if record.levelno >= logging.WARNING]
        assert told == [logging.ERROR]
        assert [await door.post_signed(name, "m1") for name in ("broken", "poor", "hub")] == [503, 503, 202]
        write_route(folder, "broken", template="{{ a }}")
        assert await door.post_signed("broken", "m1") == 202
    assert any("NO_SUCH_SECRET is not set" in message for message in caplog.messages)


async def test_unsigned_posts_are_taken_from_this_machine_only(folder: Path) -> None:
    write_route(folder, "open", scheme="none")
    door = Door(folder)
    async with door.opened():
        assert await door.post("open") == 202
        assert await door.post("open", b'{"n": 2}', {"host": "localhost:1"}) == 202
        for name, value in (
            ("host", "evil.example"),
            ("origin", "https://evil.example"),
            ("x-forwarded-for", "192.0.2.1"),
            ("forwarded", "for=192.0.2.1"),
        ):
            assert await door.post("open", headers={name: value}) == 403
    wide = Door(folder, host="0.0.0.0")
    async with wide.opened():
        assert await wide.post("open") == 503
        assert await wide.post_signed("hub", "m1") == 202


async def test_slack_hears_its_challenge_if_it_can_sign(folder: Path) -> None:
    write_route(folder, "slack", scheme="slack", secret="SLACK")
    door = Door(folder)
    body, when = b'{"type": "url_verification", "challenge": "abc"}', str(int(time.time()))
    signature = f"v0={mac('slack secret', f'v0:{when}:'.encode() + body).hex()}"
    headers = {"x-slack-signature": signature, "x-slack-request-timestamp": when}
    async with door.opened(), ClientSession() as http:
        assert await door.post("slack", body) == 401
        async with http.post(f"{door.url}slack", data=body, headers=headers) as answer:
            assert (answer.status, await answer.text()) == (200, "abc")
    assert door.taken == []


async def test_a_port_that_is_taken_is_reported(folder: Path) -> None:
    door = Door(folder)
    async with door.opened():
        with pytest.raises(Unreachable, match="can't listen"):
            async with door.platform.connect():
                pass


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
async def test_only_posts_are_understood(folder: Path, method: str) -> None:
    door = Door(folder)
    async with door.opened():
        reader, writer = await asyncio.open_connection("127.0.0.1", int(door.url.split(":")[2].partition("/")[0]))
        writer.write(f"{method} /webhooks/hub HTTP/1.1\r\nhost: x\r\n\r\n".encode())
        assert b" 405 " in await reader.readline()
        writer.close()
