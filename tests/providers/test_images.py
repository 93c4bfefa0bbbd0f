"""Image generation over OpenAI's routes, and its errors."""

from collections.abc import AsyncIterator

import pytest
from openai import AsyncOpenAI
from tests.providers.test_voice import at

from talaria.contracts.provider import SourceImage
from talaria.core.errors import BadKey, MalformedReply, ProviderError, ProviderOverloaded
from talaria.http_client.client import HttpPool
from talaria.providers.media import OpenAIImages
from talaria.testing.model_server import Fail, ModelServer
from talaria.testing.model_server.media import PNG, ReceivedImageRequest

SOURCE = SourceImage('a "b".png', PNG + b"\r\n--talaria", "image/png")


@pytest.fixture
async def http() -> AsyncIterator[HttpPool]:
    pool = HttpPool()
    yield pool
    await pool.close()


@pytest.mark.parametrize("as_url", [False, True])
async def test_image_is_generated_from_a_prompt(server: ModelServer, http: HttpPool, as_url: bool) -> None:
    server.images.as_url = as_url
    made = await OpenAIImages(at(server), http, "draws").make("a häuschen", size="1024x1024")
    assert (made.content, made.media_type) == (PNG, "image/png")
    assert server.images.requests == [ReceivedImageRequest("draws", "a häuschen", "1024x1024")]


async def test_images_are_edited_and_combined(server: ModelServer, http: HttpPool) -> None:
    maker = OpenAIImages(at(server), http, "draws")
    await maker.make("add a cat", sources=(SOURCE,))
    await maker.make("both", sources=(SOURCE, SOURCE))
    one = ("a _b_.png", "image/png", SOURCE.content)
    assert [request.sources for request in server.images.requests] == [(("image", *one),), (("image[]", *one),) * 2]


async def test_openai_sdk_uses_the_same_image_routes(server: ModelServer) -> None:
    async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key="k", max_retries=0) as client:
        made = await client.images.generate(model="m", prompt="x", n=1, size="1024x1024")
        await client.images.edit(model="m", prompt="y", image=("a.png", PNG, "image/png"))
        await client.images.edit(
            model="m", prompt="z", image=[("a.png", PNG, "image/png"), ("b.png", PNG, "image/png")]
        )
    assert made.data
    assert made.data[0].b64_json
    fields = [[source[0] for source in request.sources] for request in server.images.requests]
    assert fields == [[], ["image"], ["image[]", "image[]"]]


@pytest.mark.parametrize(("status", "kind"), [(401, BadKey), (503, ProviderOverloaded), (400, ProviderError)])
async def test_refused_image_request_raises_the_matching_provider_error(
    server: ModelServer, http: HttpPool, status: int, kind: type[ProviderError]
) -> None:
    server.images.faults.append(Fail(status))
    with pytest.raises(kind):
        await OpenAIImages(at(server), http, "m").make("x")


async def test_response_that_is_not_an_image_is_malformed(server: ModelServer, http: HttpPool) -> None:
    server.images.image = b"<html>"
    for server.images.as_url in (False, True):
        with pytest.raises(MalformedReply, match="didn't return an image"):
            await OpenAIImages(at(server), http, "m").make("x")
