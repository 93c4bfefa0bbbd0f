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
from tests.platforms.webhook.webhook_peers import SECRET, mac, post, standard

from talaria.contracts.platform import Incoming
from talaria.core.errors import Unreachable
from talaria.platforms.webhook.adapter import Webhooks
from talaria.platforms.webhook.settings import WebhookSettings
from talaria.testing.system_servers import free_port

BODY = b'{"text": "ahoy"}'
NONE: Mapping[str, str] = {}
FORGED = b"POST /webhooks/hub HTTP/1.1\r\nhost: x\r\nwebhook-signature: v1,forged\r\n"


class ListeningWebhooks:
    """A listening webhook adapter, and a consumer that stores its updates as the gateway does."""

    def __init__(self, folder: Path, **options: object) -> None:
        self.folder = folder
        settings = WebhookSettings(routes=str(folder), port=free_port(), **options)  # type: ignore[arg-type]
        self.platform = Webhooks(settings, {**SECRETS, "SLACK": "slack secret"}.get)
        self.url = f"http://127.0.0.1:{settings.port}/webhooks/"
        self.stored: list[Incoming] = []
        self.seen = asyncio.Event()
        self.may_store = asyncio.Event()
        self.may_store.set()

    async def post(self, route: str, body: bytes = BODY, headers: Mapping[str, str] = NONE) -> int:
        return (await post(self.url + route, body, headers))[0]

    async def post_signed(self, route: str, number: str, body: bytes = BODY) -> int:
        return (await post(self.url + route, body, standard(body, number)))[0]

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        async with self.platform.connect() as arrivals:
            consuming = asyncio.ensure_future(self._consume(arrivals))
            try:
                yield
            finally:
                consuming.cancel()
                await asyncio.gather(consuming, return_exceptions=True)

    async def _consume(self, arrivals: AsyncIterator[Incoming]) -> None:
        async for incoming in arrivals:
            self.seen.set()
            await self.may_store.wait()
            self.stored.append(incoming)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_route(tmp_path, "hub", template="{{ text }}")
    return tmp_path


async def test_an_event_is_acknowledged_once_it_is_stored(folder: Path) -> None:
    webhooks = ListeningWebhooks(folder)
    async with webhooks.opened():
        webhooks.may_store.clear()
        posting = asyncio.ensure_future(post(f"{webhooks.url}hub", BODY, standard(BODY, "m1")))
        await webhooks.seen.wait()
        assert not posting.done()
        webhooks.may_store.set()
        status, answered, _ = await posting
    assert (status, answered) == (202, {"status": "accepted", "id": "m1"})
    assert [one.external_id for one in webhooks.stored] == ["hub:m1"]


async def test_request_that_is_not_stored_in_time_is_asked_to_retry(folder: Path) -> None:
    webhooks = ListeningWebhooks(folder, patience=timedelta(milliseconds=200))
    async with webhooks.opened():
        webhooks.may_store.clear()
        for _ in range(2):
            status, _, headers = await post(f"{webhooks.url}hub", BODY, standard(BODY, "m1"))
            assert (status, headers["retry-after"]) == (503, "5")
        webhooks.may_store.set()
        assert await webhooks.post_signed("hub", "m1") == 202
    assert {one.external_id for one in webhooks.stored} == {"hub:m1"}


async def test_pending_requests_at_shutdown_are_asked_to_retry(folder: Path) -> None:
    webhooks = ListeningWebhooks(folder)
    async with webhooks.opened():
        webhooks.may_store.clear()
        posts = [asyncio.ensure_future(webhooks.post_signed("hub", f"m{number}")) for number in range(3)]
        await webhooks.seen.wait()
    answers = await asyncio.gather(*posts, return_exceptions=True)
    assert 503 in answers
    assert all(answer == 503 or isinstance(answer, ClientError) for answer in answers)
    assert webhooks.stored == []


async def test_bad_signatures_are_refused_and_cause_no_update(folder: Path) -> None:
    webhooks = ListeningWebhooks(folder)
    forged = standard(BODY, "m1", secret="guess")
    async with webhooks.opened():
        assert await webhooks.post("hub", headers=forged) == 401
        assert await webhooks.post("hub") == 401
        assert await webhooks.post("hub", b"{}", standard(BODY, "m1")) == 401
        assert await webhooks.post("hub", headers=standard(BODY, "m1", at=0)) == 401
        assert await webhooks.post("nowhere", headers=standard(BODY, "m1")) == 404
        assert await webhooks.post("..%2fhub", headers=standard(BODY, "m1")) == 404
    assert webhooks.stored == []


async def test_oversized_body_is_refused_with_or_without_content_length(folder: Path) -> None:
    webhooks = ListeningWebhooks(folder, largest=2048)
    body = b'"' + b"x" * 4000 + b'"'

    async def pieces() -> AsyncIterator[bytes]:
        yield body

    async with webhooks.opened():
        assert await webhooks.post_signed("hub", "m1", body) == 413
        assert (await post(f"{webhooks.url}hub", pieces(), standard(body, "m1")))[0] == 413  # type: ignore[arg-type]
        assert await webhooks.post_signed("hub", "m2") == 202


async def test_a_rate_limited_sender_learns_when_to_retry_and_forged_requests_do_not_count(folder: Path) -> None:
    write_route(folder, "hub", per_minute=2)
    write_route(folder, "other", per_minute=2)
    webhooks = ListeningWebhooks(folder)
    async with webhooks.opened():
        for _ in range(5):
            assert await webhooks.post("hub", headers=standard(BODY, "m", secret="guess")) == 401
        assert [await webhooks.post_signed("hub", f"m{number}") for number in range(2)] == [202, 202]
        status, _, headers = await post(f"{webhooks.url}hub", BODY, standard(BODY, "m3"))
        assert status == 429
        assert 1 <= int(headers["retry-after"]) <= 31
        assert await webhooks.post_signed("other", "m1") == 202


async def test_too_many_parallel_requests_are_asked_to_wait(folder: Path) -> None:
    webhooks = ListeningWebhooks(folder, waiting=3, patience=timedelta(seconds=5))
    async with webhooks.opened():
        webhooks.may_store.clear()
        waiting = [asyncio.ensure_future(webhooks.post_signed("hub", f"m{number}")) for number in range(5)]
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED, timeout=5)
        assert {one.result() for one in done} == {429}
        webhooks.may_store.set()
        assert sorted(await asyncio.gather(*waiting)) == [202, 202, 202, 429, 429]


async def test_filtered_event_is_answered_as_ignored(folder: Path) -> None:
    (folder / "hub.toml").write_text('[when]\n"headers.x-event" = "push"\n')
    webhooks = ListeningWebhooks(folder)
    async with webhooks.opened():
        status, answered, _ = await post(f"{webhooks.url}hub", BODY, standard(BODY, "m1"))
    assert (status, answered, webhooks.stored) == (200, {"status": "ignored"}, [])


async def test_missing_template_field_is_logged_and_the_event_is_accepted(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_route(folder, "hub", template="{{ text }} {{ who.name }}")
    webhooks = ListeningWebhooks(folder)
    async with webhooks.opened():
        assert await webhooks.post_signed("hub", "m1") == 202
    assert "webhook hub: the event has no who.name" in caplog.messages


async def test_unreadable_or_incomplete_request_is_a_client_error(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    webhooks = ListeningWebhooks(folder, reading=timedelta(milliseconds=300))
    host, port = "127.0.0.1", int(webhooks.url.split(":")[2].partition("/")[0])
    async with webhooks.opened():
        assert await webhooks.post_signed("hub", "m1", b'{"text": ') == 400
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
        assert await webhooks.post_signed("hub", "m2") == 202
    assert [record for record in caplog.records if record.exc_info] == []


async def test_a_wrong_encoding_is_refused_without_a_traceback(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    webhooks = ListeningWebhooks(folder)
    async with webhooks.opened():
        for encoding in ("gzip", "deflate"):
            wrong = {"content-encoding": encoding, "webhook-signature": "v1,forged"}
            async with ClientSession(auto_decompress=False) as http:
                data = BytesPayload(b"this is not compressed")
                async with http.post(f"{webhooks.url}hub", data=data, headers=wrong) as answer:
                    assert answer.status == 400
        assert await webhooks.post_signed("hub", "m2") == 202
    assert [record for record in caplog.records if record.exc_info] == []


async def test_request_without_signature_is_refused_before_its_body(folder: Path) -> None:
    webhooks = ListeningWebhooks(folder)
    port = int(webhooks.url.split(":")[2].partition("/")[0])
    async with webhooks.opened():
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /webhooks/hub HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n")
        assert b" 401 " in await reader.readline()
        writer.close()


async def test_slow_bodies_do_not_block_signed_posts(folder: Path) -> None:
    webhooks = ListeningWebhooks(folder, waiting=4)
    port = int(webhooks.url.split(":")[2].partition("/")[0])
    async with webhooks.opened():
        slow = [await asyncio.open_connection("127.0.0.1", port) for _ in range(12)]
        for _, writer in slow:
            writer.write(FORGED + b"content-length: 100\r\n\r\n{")
            await writer.drain()
        assert b" 408 " in await slow[0][0].readline()  # closed in favour of newer requests
        for number in range(10):
            assert await webhooks.post_signed("hub", f"m{number}") == 202
        for _, writer in slow:
            writer.close()


async def test_connection_without_a_complete_head_is_closed(folder: Path) -> None:
    webhooks = ListeningWebhooks(folder, head=timedelta(milliseconds=100))
    port = int(webhooks.url.split(":")[2].partition("/")[0])
    async with webhooks.opened():
        for sent in (b"", b"POST /webhooks/hub HTTP/1.1\r\nhost: x\r\n"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent)
            assert await reader.read() == b""
            writer.close()
        assert await webhooks.post_signed("hub", "m1") == 202


async def test_replay_under_another_delivery_id_has_the_same_external_id(folder: Path) -> None:
    write_route(folder, "git", scheme="github", template="{{ text }}")
    write_route(folder, "again", scheme="github", template="{{ text }}", repeats=True)
    webhooks = ListeningWebhooks(folder)
    signature = f"sha256={hmac.new(SECRET.encode(), BODY, hashlib.sha256).hexdigest()}"
    async with webhooks.opened():
        for route in ("git", "again"):
            for delivery in ("one", "two"):
                headers = {"x-hub-signature-256": signature, "x-github-delivery": delivery}
                assert await webhooks.post(route, headers=headers) == 202
    ids = [one.external_id for one in webhooks.stored]
    assert ids[0] == ids[1]
    assert ids[2:] == ["again:one", "again:two"]


async def test_broken_route_asks_its_senders_to_retry(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_route(folder, "broken", template="{{ a b }}")
    write_route(folder, "poor", secret="NO_SUCH_SECRET")
    webhooks = ListeningWebhooks(folder)
    async with webhooks.opened():
        levels = [record.levelno for record in caplog.records if record.levelno >= logging.WARNING]
        assert levels == [logging.ERROR]
        assert [await webhooks.post_signed(name, "m1") for name in ("broken", "poor", "hub")] == [503, 503, 202]
        write_route(folder, "broken", template="{{ a }}")
        assert await webhooks.post_signed("broken", "m1") == 202
    assert any("NO_SUCH_SECRET is not set" in message for message in caplog.messages)


async def test_unsigned_posts_are_accepted_from_this_machine_only(folder: Path) -> None:
    write_route(folder, "open", scheme="none")
    webhooks = ListeningWebhooks(folder)
    async with webhooks.opened():
        assert await webhooks.post("open") == 202
        assert await webhooks.post("open", b'{"n": 2}', {"host": "localhost:1"}) == 202
        for name, value in (
            ("host", "evil.example"),
            ("origin", "https://evil.example"),
            ("x-forwarded-for", "192.0.2.1"),
            ("forwarded", "for=192.0.2.1"),
        ):
            assert await webhooks.post("open", headers={name: value}) == 403
    wide = ListeningWebhooks(folder, host="0.0.0.0")
    async with wide.opened():
        assert await wide.post("open") == 503
        assert await wide.post_signed("hub", "m1") == 202


async def test_signed_slack_challenge_is_answered(folder: Path) -> None:
    write_route(folder, "slack", scheme="slack", secret="SLACK")
    webhooks = ListeningWebhooks(folder)
    body, when = b'{"type": "url_verification", "challenge": "abc"}', str(int(time.time()))
    signature = f"v0={mac('slack secret', f'v0:{when}:'.encode() + body).hex()}"
    headers = {"x-slack-signature": signature, "x-slack-request-timestamp": when}
    async with webhooks.opened(), ClientSession() as http:
        assert await webhooks.post("slack", body) == 401
        async with http.post(f"{webhooks.url}slack", data=body, headers=headers) as answer:
            assert (answer.status, await answer.text()) == (200, "abc")
    assert webhooks.stored == []


async def test_port_in_use_is_reported(folder: Path) -> None:
    webhooks = ListeningWebhooks(folder)
    async with webhooks.opened():
        with pytest.raises(Unreachable, match="can't listen"):
            async with webhooks.platform.connect():
                pass


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
async def test_other_methods_than_post_are_refused(folder: Path, method: str) -> None:
    webhooks = ListeningWebhooks(folder)
    async with webhooks.opened():
        reader, writer = await asyncio.open_connection("127.0.0.1", int(webhooks.url.split(":")[2].partition("/")[0]))
        writer.write(f"{method} /webhooks/hub HTTP/1.1\r\nhost: x\r\n\r\n".encode())
        assert b" 405 " in await reader.readline()
        writer.close()
