"""Background responses: queued, retrieved, followed from any event, cancelled, and durable."""

import asyncio
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI
from openai.types.responses import Response
from tests.api.server_process import PATIENCE, Server

from talaria.testing.model_server import Ask, Fail, ModelServer, Say
from talaria.testing.wait import until

_TEXT = "one two three four five six seven eight"


async def _in_state(sdk: AsyncOpenAI, response_id: str, status: str) -> Response:
    async def look() -> Response | None:
        found = await sdk.responses.retrieve(response_id)
        return found if found.status == status else None

    found: Response = await until(look)
    return found


async def _follow(sdk: AsyncOpenAI, response_id: str, **more: Any) -> list[Any]:
    stream = await sdk.responses.retrieve(response_id, stream=True, **more)
    return [event async for event in stream]


async def test_background_response_is_queued_and_can_be_retrieved_when_done(
    sdk: AsyncOpenAI, model: ModelServer
) -> None:
    model.script(Say("Looking.", calls=[Ask("terminal", {"command": "echo seen"})]), Say(_TEXT, pause=0.02))
    queued = await sdk.responses.create(model="talaria", input="Go.", background=True, metadata={"n": "1"})
    assert (queued.status, queued.background) == ("queued", True)
    done = await _in_state(sdk, queued.id, "completed")
    assert [item.type for item in done.output] == ["message", "mcp_call", "message"]
    assert (done.id, done.metadata, done.created_at) == (queued.id, {"n": "1"}, queued.created_at)
    assert done.usage is not None
    on = await sdk.responses.create(model="talaria", input="On.", previous_response_id=queued.id)
    assert on.status == "completed"
    assert _TEXT in str(model.received[-1].json["messages"])


async def test_background_response_can_be_followed_from_any_event(sdk: AsyncOpenAI, model: ModelServer) -> None:
    model.script(Say(_TEXT, pause=0.05))
    stream = await sdk.responses.create(model="talaria", input="Go.", background=True, stream=True)
    first = [event async for event in stream]
    names = [event.type for event in first]
    assert names[:3] == ["response.created", "response.queued", "response.in_progress"]
    assert names[-1] == "response.completed"
    assert [event.sequence_number for event in first] == list(range(len(first)))
    response_id = first[0].response.id  # type: ignore[union-attr]
    assert await _follow(sdk, response_id) == first
    assert await _follow(sdk, response_id, starting_after=4) == first[5:]
    assert await _follow(sdk, response_id, starting_after=len(first)) == []


async def test_disconnected_client_does_not_stop_a_background_response(sdk: AsyncOpenAI, model: ModelServer) -> None:
    model.script(Say(_TEXT, pause=0.1))
    stream = await sdk.responses.create(model="talaria", input="Go.", background=True, stream=True)
    async for event in stream:
        if event.type == "response.created":
            created = event.response
        if event.type == "response.output_text.delta":
            break
    await stream.close()
    assert (await _in_state(sdk, created.id, "completed")).output_text == _TEXT


async def test_queued_and_running_background_responses_can_be_cancelled(sdk: AsyncOpenAI, model: ModelServer) -> None:
    model.otherwise(Say("and so on " * 300, pause=0.05))
    running = await sdk.responses.create(model="talaria", input="Go.", background=True, conversation="one")
    await model.arrived()
    pending = await sdk.responses.create(model="talaria", input="And?", background=True, conversation="one")
    for response in (pending, running):
        assert (await sdk.responses.cancel(response.id)).status == "cancelled"
        assert (await sdk.responses.retrieve(response.id)).status == "cancelled"
        assert (await _follow(sdk, response.id))[-1].type == "response.incomplete"
    assert len(model.received) == 1


async def test_foreground_response_cannot_be_cancelled_or_streamed_later(sdk: AsyncOpenAI) -> None:
    response = await sdk.responses.create(model="talaria", input="Go.")
    with pytest.raises(openai.BadRequestError):
        await sdk.responses.cancel(response.id)
    with pytest.raises(openai.BadRequestError):
        await sdk.responses.retrieve(response.id, stream=True)


async def test_failed_background_response_has_the_status_failed(sdk: AsyncOpenAI, model: ModelServer) -> None:
    model.otherwise(Fail(400, message="nonsense"))
    queued = await sdk.responses.create(model="talaria", input="Go.", background=True)
    failed = await _in_state(sdk, queued.id, "failed")
    assert failed.error is not None
    assert (await _follow(sdk, queued.id))[-1].type == "response.failed"


async def test_deleted_background_response_is_stopped_and_not_found(sdk: AsyncOpenAI, model: ModelServer) -> None:
    model.script(Say("and so on " * 300, pause=0.05))
    queued = await sdk.responses.create(model="talaria", input="Go.", background=True)
    await model.arrived()
    await sdk.responses.delete(queued.id)
    with pytest.raises(openai.NotFoundError):
        await sdk.responses.retrieve(queued.id)
    async with asyncio.timeout(PATIENCE):
        await model.gone()


async def test_background_response_continues_after_a_server_kill(
    server: Server, sdk: AsyncOpenAI, model: ModelServer
) -> None:
    model.script(Say(_TEXT, pause=0.2), Say(_TEXT))
    stream = await sdk.responses.create(model="talaria", input="Go.", background=True, stream=True)
    received = []
    async for event in stream:
        received.append(event)
        if event.type == "response.output_text.delta":
            break
    await server.kill()
    await stream.close()
    await server.start()
    sdk.base_url = f"{server.url}/v1"  # the port may be another one
    response_id = received[0].response.id  # type: ignore[union-attr]
    rest = await _follow(sdk, response_id, starting_after=received[-1].sequence_number)
    everything = [*received, *rest]
    assert [event.sequence_number for event in everything] == list(range(len(everything)))
    deltas = [event.delta for event in everything if event.type == "response.output_text.delta"]
    assert "".join(deltas) == _TEXT
    done = await sdk.responses.retrieve(response_id)
    assert (done.status, done.output_text, len(done.output)) == ("completed", _TEXT, 1)
