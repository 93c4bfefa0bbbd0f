"""Image generation tool: saving, editing and failures."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.providers.test_voice import at
from tests.tools.tool_calls import call_from

from talaria.contracts.tool import ProposedAction
from talaria.core.errors import ToolFailed
from talaria.http_client.client import HttpPool
from talaria.providers.media import OpenAIImages
from talaria.testing.model_server import Fail, ModelServer
from talaria.testing.model_server.media import PNG
from talaria.tools.media import ImageGenerate, ImageGenerateArguments


@pytest.fixture
async def http() -> AsyncIterator[HttpPool]:
    pool = HttpPool()
    yield pool
    await pool.close()


@pytest.fixture
def tool(server: ModelServer, http: HttpPool) -> ImageGenerate:
    return ImageGenerate(lambda: OpenAIImages(at(server), http, "draws"), None, 60)


async def run(tool: ImageGenerate, folder: Path, arguments: ImageGenerateArguments) -> str:
    return (await tool.run(arguments, call_from(folder))).text


async def test_image_is_saved_under_a_new_name(tool: ImageGenerate, tmp_path: Path) -> None:
    arguments = ImageGenerateArguments("A red fox, jumping!")
    assert tool.proposed_action(arguments) == ProposedAction("write", "a-red-fox-jumping")
    assert await run(tool, tmp_path, arguments) == f"Saved {tmp_path}/a-red-fox-jumping.png."
    assert await run(tool, tmp_path, arguments) == f"Saved {tmp_path}/a-red-fox-jumping-2.png."
    for name in ("a-red-fox-jumping.png", "a-red-fox-jumping-2.png"):
        assert (tmp_path / name).read_bytes() == PNG


async def test_image_with_a_chosen_path_replaces_the_file_there(tool: ImageGenerate, tmp_path: Path) -> None:
    arguments = ImageGenerateArguments("fox", path="art/fox.png")
    for _ in range(2):
        assert await run(tool, tmp_path, arguments) == f"Saved {tmp_path}/art/fox.png."
    assert (tmp_path / "art" / "fox.png").read_bytes() == PNG


async def test_image_of_the_workspace_is_edited(tool: ImageGenerate, server: ModelServer, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(PNG)
    await run(tool, tmp_path, ImageGenerateArguments("ж", edit=("a.png",), size="512x512"))
    (request,) = server.images.requests
    assert (request.prompt, request.size, request.sources) == ("ж", "512x512", (("image", "a.png", "image/png", PNG),))
    assert (tmp_path / "image.png").exists()


async def test_failed_image_generation_is_reported(tool: ImageGenerate, server: ModelServer, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("no image")
    with pytest.raises(ToolFailed, match="isn't an image"):
        await run(tool, tmp_path, ImageGenerateArguments("x", edit=("a.txt",)))
    with pytest.raises(ToolFailed, match=r"gone\.png"):
        await run(tool, tmp_path, ImageGenerateArguments("x", edit=("gone.png",)))
    assert server.images.requests == []
    server.images.faults.append(Fail(401))
    with pytest.raises(ToolFailed, match="no image was made"):
        await run(tool, tmp_path, ImageGenerateArguments("x"))


async def test_slow_image_generation_times_out(server: ModelServer, http: HttpPool, tmp_path: Path) -> None:
    server.images.open.clear()
    slow = ImageGenerate(lambda: OpenAIImages(at(server), http, "draws"), None, 0.2)
    with pytest.raises(ToolFailed, match=r"wasn't ready within 0\.2 s"):
        await run(slow, tmp_path, ImageGenerateArguments("x"))
