"""Files that the agent sends over the API: named in every kind of answer, downloaded with the key of their session."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam
from openai.types.responses import ResponseOutputMessage, ResponseOutputText
from openai.types.responses.response_output_text import AnnotationFilePath
from tests.api.in_process_server import PATIENCE, Hosted, hosted
from tests.api.server_process import follow
from tests.api.test_key_scopes import create, tools

from talaria.core.ids import SessionId
from talaria.testing.model_server import Ask, ModelServer, Say
from talaria.testing.model_server.media import PNG

DRAW = Say(calls=[Ask("image_generate", {"prompt": "a red fox"})])
MESSAGES: list[ChatCompletionMessageParam] = [{"role": "user", "content": "a fox, please"}]


@pytest.fixture
async def host(tmp_path: Path, model: ModelServer) -> AsyncIterator[Hosted]:
    settings = '[images]\ngenerate = "mine:draws"\n[approval]\nmode = "off"\n'
    async with hosted(tmp_path, model, settings) as served:
        yield served


@pytest.fixture
async def client(host: Hosted) -> AsyncIterator[openai.AsyncOpenAI]:
    one = openai.AsyncOpenAI(base_url=f"{host.url}/v1", api_key=host.key, max_retries=0, timeout=PATIENCE)
    async with one:
        yield one


async def test_chat_completion_links_to_a_downloadable_image(
    host: Hosted, client: openai.AsyncOpenAI, model: ModelServer
) -> None:
    model.script(DRAW, Say("Here is your fox."), Say("You're welcome."))
    answer = await client.chat.completions.create(model="talaria", messages=MESSAGES)
    message = answer.choices[0].message
    assert message.annotations is not None
    [link] = [one.url_citation for one in message.annotations]
    file_id = link.url.split("/")[-2]
    assert link.url == f"{host.url}/v1/files/{file_id}/content"
    assert message.content == f"Here is your fox.\n\n![a-red-fox.png]({link.url})"
    assert message.content[link.start_index : link.end_index] == link.url
    assert (await client.files.content(file_id)).content == PNG
    described = await client.files.retrieve(file_id)
    assert (described.filename, described.bytes, described.object) == ("a-red-fox.png", len(PNG), "file")
    assert [one.id async for one in client.files.list()] == [file_id]

    history: list[ChatCompletionMessageParam] = [
        *MESSAGES,
        {"role": "assistant", "content": message.content},
        {"role": "user", "content": "thanks"},
    ]
    await client.chat.completions.create(model="talaria", messages=history)
    sessions = (await host.http.get("/v1/sessions")).json()["data"]
    assert [one["message_count"] for one in sessions] == [6]  # the session is found again by its history


async def test_a_streamed_completion_ends_with_the_link(
    host: Hosted, client: openai.AsyncOpenAI, model: ModelServer
) -> None:
    model.script(DRAW, Say("Here."), Say("You're welcome."))
    stream = await client.chat.completions.create(model="talaria", messages=MESSAGES, stream=True)
    chunks = [chunk async for chunk in stream]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    [sent] = [files for one in chunks if (files := ((one.model_extra or {}).get("talaria") or {}).get("files"))]
    url = f"{host.url}/v1/files/{sent[0]['id']}/content"
    assert sent == [{"id": sent[0]["id"], "filename": "a-red-fox.png", "media_type": "image/png"}]
    assert text == f"Here.\n\n![a-red-fox.png]({url})"
    [annotation] = (chunks[-1].choices[0].delta.model_extra or {})["annotations"]
    assert annotation["url_citation"]["url"] == url
    history: list[ChatCompletionMessageParam] = [
        *MESSAGES,
        {"role": "assistant", "content": text},
        {"role": "user", "content": "thanks"},
    ]
    await client.chat.completions.create(model="talaria", messages=history)
    assert len((await host.http.get("/v1/sessions")).json()["data"]) == 1


async def test_response_annotates_its_message_with_the_file(client: openai.AsyncOpenAI, model: ModelServer) -> None:
    model.script(DRAW, Say("Here is your fox."), DRAW, Say("Another one."))
    response = await client.responses.create(model="talaria", input="a fox")
    last = response.output[-1]
    assert isinstance(last, ResponseOutputMessage)
    [part] = last.content
    assert isinstance(part, ResponseOutputText)
    [annotation] = part.annotations
    assert isinstance(annotation, AnnotationFilePath)
    assert (part.text, annotation.index) == ("Here is your fox.", len(part.text))
    assert (await client.files.content(annotation.file_id)).content == PNG
    assert (await client.responses.retrieve(response.id)).output == response.output

    stream = await client.responses.create(model="talaria", input="a fox", stream=True)
    added = [event async for event in stream if event.type == "response.output_text.annotation.added"]
    assert [(event.annotation_index, event.content_index) for event in added] == [(0, 0)]


async def test_run_lists_the_file_in_its_events_and_its_result(host: Hosted, model: ModelServer) -> None:
    model.script(DRAW, Say(""))
    run = (await host.http.post("/v1/runs", json={"input": "a fox"})).json()
    events = await follow(host.http, f"/v1/runs/{run['id']}/events")
    [completed] = [one.data for one in events if one.name == "tool.completed"]
    shown = (await host.http.get(f"/v1/runs/{run['id']}")).json()
    assert shown["files"] == completed["files"]
    [file] = shown["files"]
    answer = await host.http.get(f"/v1/files/{file['id']}/content")
    assert (answer.content, answer.headers["content-type"]) == (PNG, "image/png")
    assert "a-red-fox.png" in answer.headers["content-disposition"]


async def test_send_file_attaches_a_file_of_the_workspace(
    host: Hosted, client: openai.AsyncOpenAI, model: ModelServer
) -> None:
    write = Ask("write_file", {"path": "report [1].csv", "content": "a,b\n"})
    model.script(Say(calls=[write]), Say(calls=[Ask("send_file", {"path": "report [1].csv"})]), Say("Done."))
    answer = await client.chat.completions.create(model="talaria", messages=MESSAGES)
    message = answer.choices[0].message
    assert message.annotations is not None
    url = message.annotations[0].url_citation.url
    assert message.content == f"Done.\n\n[report (1).csv]({url})"
    download = await host.http.get(url)
    assert (download.text, download.headers["content-type"]) == ("a,b\n", "application/octet-stream")


async def test_files_can_be_downloaded_only_with_the_key_of_their_session(
    host: Hosted, client: openai.AsyncOpenAI, model: ModelServer
) -> None:
    model.script(DRAW, Say("Here."), Say("Hello."))
    await client.chat.completions.create(model="talaria", messages=MESSAGES)
    [file] = (await host.http.get("/v1/files")).json()["data"]
    guest, agent = await create(host, "guest", "chat"), await create(host, "agent", "agent")
    paths = (f"/v1/files/{file['id']}", f"/v1/files/{file['id']}/content")
    for headers, status in ((guest, 404), (agent, 404), ({"authorization": ""}, 401)):
        for path in paths:
            assert (await host.http.get(path, headers=headers)).status_code == status, path
    assert (await host.http.get("/v1/files", headers=guest)).json()["data"] == []
    await host.http.post("/v1/chat/completions", json={"messages": MESSAGES}, headers=guest)
    assert not tools(model) & {"send_file", "image_generate"}  # unless the owner allows them

    deleted = await host.http.delete(f"/v1/sessions/{file['session_id']}")
    assert deleted.status_code == httpx.codes.OK
    assert [(await host.http.get(path)).status_code for path in paths] == [404, 404]


async def test_invalid_file_ids_are_not_found(host: Hosted, model: ModelServer) -> None:
    model.script(DRAW, Say("Here."))
    await host.http.post("/v1/chat/completions", json={"messages": MESSAGES})
    [file] = (await host.http.get("/v1/files")).json()["data"]
    media = host.application.profile.media_folder
    (media / "secret.txt").write_text("hidden")
    session_id, name = SessionId(file["session_id"]), file["id"].split("-")[-1]
    for file_id in ("file-1", "..%2fsecret.txt", f"file-{session_id}-{'0' * 16}", f"file-{'0' * 16}-{name}", "file-é"):
        answer = await host.http.get(f"/v1/files/{file_id}/content")
        assert (answer.status_code, "hidden" in answer.text) == (404, False), file_id
    assert (await host.http.get("/v1/files?after=file-1")).status_code == httpx.codes.NOT_FOUND
    assert (await host.http.get("/v1/files?session_id=..")).json()["data"] == []
    assert (await host.http.get(f"/v1/files?session_id={session_id}&limit=1")).json()["has_more"] is False
