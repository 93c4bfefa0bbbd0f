"""Vision tool: images described by another model."""

import base64
from collections.abc import AsyncIterator
from pathlib import Path

import fpdf
import pytest
from tests.tools.tool_calls import call_from
from tests.tools.web.web_server import web_server

from talaria.contracts.tool import ProposedAction, Tool
from talaria.core.errors import ToolFailed
from talaria.http_client.client import HttpPool
from talaria.providers.openai_chat.adapter import OpenAIChat
from talaria.providers.settings import OpenAIChatSettings
from talaria.testing.model_server import ModelServer, Say, overloaded
from talaria.tools.media import Vision, VisionArguments
from talaria.tools.web.fetch import WebClient

PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII=")
ADDRESS = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"


@pytest.fixture
async def model() -> AsyncIterator[ModelServer]:
    async with ModelServer() as server:
        yield server


@pytest.fixture
async def http() -> AsyncIterator[HttpPool]:
    pool = HttpPool()
    yield pool
    await pool.close()


def vision_tool(model: ModelServer, http: HttpPool, client: WebClient | None = None) -> Tool:
    provider = OpenAIChat(OpenAIChatSettings(name="test", base_url=f"{model.url}/v1"), http)
    return Vision(provider, "test-model", client or WebClient())


async def test_image_file_is_sent_to_the_model(model: ModelServer, http: HttpPool, tmp_path: Path) -> None:
    (tmp_path / "dot.jpg").write_bytes(PNG)
    model.script(Say("A dot."))
    output = await vision_tool(model, http).run(VisionArguments("dot.jpg", "What is it?"), call_from(tmp_path))
    assert output.text == "A dot."
    body = model.received[0].body.decode()
    assert ADDRESS in body
    assert "What is it?" in body


async def test_images_from_web_and_data_urls_are_sent_to_the_model(
    model: ModelServer, http: HttpPool, tmp_path: Path
) -> None:
    model.otherwise(Say("A dot."))
    async with web_server() as server:
        client = WebClient(allowed={server.authority})
        for image in (server.serve("/dot", PNG, "image/png"), ADDRESS):
            output = await vision_tool(model, http, client).run(VisionArguments(image), call_from(tmp_path))
            assert output.text == "A dot."
        await client.close()
    assert all(ADDRESS in call.body.decode() for call in model.received)


async def test_only_images_are_sent_to_the_model(model: ModelServer, http: HttpPool, tmp_path: Path) -> None:
    (tmp_path / "secret.png").write_text("secret")
    (tmp_path / "huge.png").write_bytes(PNG + b"\0" * 5_000_000)
    problems = {
        "secret.png": "not an image",
        "huge.png": "larger than",
        "missing.png": "can't read",
        "data:image/png;base64,?": "damaged",
        "http://127.0.0.1:1/x": "not a public address",
    }
    for image, problem in problems.items():
        with pytest.raises(ToolFailed, match=problem):
            await vision_tool(model, http).run(VisionArguments(image), call_from(tmp_path))
    assert model.received == []


async def test_failure_of_the_model_is_reported(model: ModelServer, http: HttpPool, tmp_path: Path) -> None:
    model.script(overloaded())
    with pytest.raises(ToolFailed, match="couldn't be analysed"):
        await vision_tool(model, http).run(VisionArguments(ADDRESS), call_from(tmp_path))


def test_proposed_action_names_the_image(model: ModelServer, http: HttpPool) -> None:
    tool = vision_tool(model, http)
    assert tool.proposed_action(VisionArguments("a.png")) == ProposedAction("read", "a.png")
    assert tool.proposed_action(VisionArguments("https://a.test/b")) == ProposedAction("fetch", "https://a.test/b")
    assert tool.proposed_action(VisionArguments(ADDRESS)) == ProposedAction("other", "an image")


@pytest.mark.slow
async def test_pdf_page_is_sent_as_an_image_even_if_it_has_text(
    model: ModelServer, http: HttpPool, tmp_path: Path
) -> None:
    document = fpdf.FPDF()
    document.set_font("helvetica", size=12)
    for line in ("One", "Two"):
        document.add_page()
        document.cell(text=line)
    (tmp_path / "scan.pdf").write_bytes(bytes(document.output()))
    model.script(Say("Two."))
    output = await vision_tool(model, http).run(VisionArguments("scan.pdf", page=2), call_from(tmp_path))
    assert output.text == "Two."
    assert "data:image/png;base64,iVBORw0KGgo" in model.received[0].body.decode()
    with pytest.raises(ToolFailed, match=r"page 3 of .* can't be drawn"):
        await vision_tool(model, http).run(VisionArguments("scan.pdf", page=3), call_from(tmp_path))
