"""Answers that the loopback server doesn't give: migrated groups, HTML pages, missing files."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from aiohttp import web

from talaria.contracts.platform import Attachment, Content
from talaria.core.addresses import Address
from talaria.core.errors import Rejected, SlowDown, Unreachable
from talaria.platforms.telegram.adapter import Telegram
from talaria.platforms.telegram.settings import TelegramSettings

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def bot_at(answer: Answer) -> AsyncIterator[Telegram]:
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    platform = Telegram(
        TelegramSettings(
            token="1:x", base_url=f"{url}/bot", base_file_url=f"{url}/file/bot", patience=timedelta(seconds=2)
        )
    )
    try:
        yield platform
    finally:
        await platform.close()
        await runner.cleanup()


async def test_message_to_a_migrated_group_is_sent_to_its_new_id() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        chat = int(str((await request.post())["chat_id"]))
        if chat == -5:
            moved = {"ok": False, "error_code": 400, "description": "Bad Request: group chat was upgraded"}
            return web.json_response({**moved, "parameters": {"migrate_to_chat_id": -1005}}, status=400)
        message = {"message_id": 8, "date": 1, "chat": {"id": chat, "type": "supergroup", "title": "Family"}}
        return web.json_response({"ok": True, "result": {**message, "text": "hello"}})

    async with bot_at(answer) as platform:
        ref = await platform.send(Address("telegram", "-5", "group"), Content(text="hello"), "k")
    assert (ref.address, ref.message_id) == (Address("telegram", "-1005", "group"), "8")


@pytest.mark.parametrize("body", [b"<html>Bad gateway</html>", b"", b'{"ok": fal', b"[1]", b"\xff\xfe"])
@pytest.mark.parametrize("status", [200, 502])
async def test_invalid_answer_is_reported_as_unreachable(body: bytes, status: int) -> None:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(body=body, status=status)

    async with bot_at(answer) as platform:
        with pytest.raises(Unreachable):
            await platform.send(Address("telegram", "7"), Content(text="hello"), "k")


async def test_rate_limit_without_a_delay_gets_a_default_delay() -> None:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(body=b"slow down", status=429)

    async with bot_at(answer) as platform:
        with pytest.raises(SlowDown) as slow:
            await platform.send(Address("telegram", "7"), Content(text="hello"), "k")
    assert slow.value.retry_after > timedelta(0)


async def test_missing_file_is_not_reported_as_bad_credentials(tmp_path: Path) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path.startswith("/file/"):
            return web.json_response({"ok": False, "error_code": 404, "description": "Not Found"}, status=404)
        file = {"file_id": "f", "file_unique_id": "u", "file_path": "documents/1.txt"}
        return web.json_response({"ok": True, "result": file})

    async with bot_at(answer) as platform:
        with pytest.raises(Rejected):
            await platform.fetch(Attachment("f", "document", "notes.txt"), tmp_path)
