"""Files: pending uploads, downloads that cannot run as scripts, and access to them."""

import base64
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.api.in_process_server import Hosted, hosted
from tests.web.web_client import begin, web_client

from talaria.testing.model_server import Ask, ModelServer, Say
from talaria.testing.telegram_server import picture
from talaria.testing.wait import until

RAW = {"content-type": "application/octet-stream"}


async def _upload(client: httpx.AsyncClient, name: str, data: bytes) -> Any:
    answer = await client.post("/web/uploads", params={"name": name}, content=data, headers=RAW)
    assert answer.status_code == 201, answer.text
    return answer.json()


async def _parts(client: httpx.AsyncClient, session: str, kind: str) -> list[Any]:
    page = (await client.get(f"/web/sessions/{session}/messages")).json()
    return [part for one in page["messages"] for part in one["parts"] if part["type"] == kind]


async def _begin_with(client: httpx.AsyncClient, text: str, *uploads: Any) -> str:
    body = {"text": text, "id": "m1", "files": [one["id"] for one in uploads]}
    answer = await client.post("/web/sessions", json=body)
    assert answer.status_code == 201, answer.text
    session = str(answer.json()["session_id"])

    async def is_answered() -> bool:
        return len(await _parts(client, session, "text")) >= (2 if text else 1)

    await until(is_answered)
    return session


async def test_uploaded_files_reach_the_model_and_can_be_downloaded_safely(
    owner: httpx.AsyncClient, model: ModelServer
) -> None:
    model.otherwise(Say("Seen."))
    shot = await _upload(owner, "../../shot.png", picture())
    page = await _upload(owner, "page.html", b"<script>alert(1)</script>")
    assert (shot["name"], shot["media_type"], page["media_type"]) == ("shot.png", "image/png", "text/html")
    waiting = await owner.get(f"/web/uploads/{shot['id']}")
    assert (waiting.status_code, waiting.content) == (200, picture())

    session = await _begin_with(owner, "", shot, page)
    assert "image" in json.dumps(model.received[0].json["messages"][-1])
    image, document = await _parts(owner, session, "file")
    shown = await owner.get(f"/web/files/{image['id']}")
    assert (shown.content, shown.headers["content-type"]) == (picture(), "image/png")
    assert shown.headers["content-disposition"].startswith("inline")
    saved = await owner.get(f"/web/files/{document['id']}")
    assert saved.content == b"<script>alert(1)</script>"
    assert saved.headers["content-type"] == "application/octet-stream"
    assert saved.headers["content-disposition"] == "attachment; filename*=UTF-8''page.html"
    for reply in (shown, saved, waiting):
        assert reply.headers["content-security-policy"] == "sandbox; default-src 'none'"
        assert reply.headers["x-content-type-options"] == "nosniff"
    assert (await owner.get(f"/web/uploads/{shot['id']}")).status_code == 404


async def test_repeated_message_with_files_is_stored_once(owner: httpx.AsyncClient, model: ModelServer) -> None:
    model.otherwise(Say("Seen."))
    session = await begin(owner, "Hello")
    note = await _upload(owner, "note.txt", b"text")
    body = {"text": "Look", "id": "m2", "files": [note["id"]]}
    for _ in range(2):
        assert (await owner.post(f"/web/sessions/{session}/messages", json=body)).status_code == 200

    async def is_answered() -> bool:
        return not (await owner.get(f"/web/sessions/{session}")).json()["running"] and bool(
            await _parts(owner, session, "file")
        )

    await until(is_answered)
    assert [one["name"] for one in await _parts(owner, session, "file")] == ["note.txt"]


async def test_people_see_only_their_own_files(
    owner: httpx.AsyncClient, alice: httpx.AsyncClient, host: Hosted, model: ModelServer
) -> None:
    model.otherwise(Say("Seen."))
    mine = await _upload(owner, "mine.txt", b"secret")
    assert (await alice.get(f"/web/uploads/{mine['id']}")).status_code == 404
    assert (await alice.delete(f"/web/uploads/{mine['id']}")).status_code == 404
    stolen = await alice.post("/web/sessions", json={"text": "x", "id": "m1", "files": [mine["id"]]})
    assert stolen.status_code == 404
    session = await _begin_with(owner, "Keep this", mine)
    (file,) = await _parts(owner, session, "file")
    assert (await alice.get(f"/web/files/{file['id']}")).status_code == 404
    async with httpx.AsyncClient(base_url=host.url, trust_env=False) as stranger:
        assert (await stranger.get(f"/web/files/{file['id']}")).status_code == 401


@pytest.mark.parametrize("path", ["../secret.txt", "uploads/../../secret.txt", "/etc/passwd", "", "uploads\0x"])
async def test_file_id_cannot_reach_other_folders(owner: httpx.AsyncClient, host: Hosted, path: str) -> None:
    session = await begin(owner, "Hello")
    host.application.profile.media_folder.mkdir(exist_ok=True)
    (host.application.profile.media_folder / "secret.txt").write_text("secret")
    file_id = base64.urlsafe_b64encode(f"{session}/{path}".encode()).decode().rstrip("=")
    assert (await owner.get(f"/web/files/{file_id}")).status_code == 404


async def test_empty_or_too_large_upload_is_refused(tmp_path: Path, model: ModelServer) -> None:
    async with hosted(tmp_path, model, "[media]\nfile_megabytes = 0.001\n") as host, web_client(host) as client:
        large = await client.post("/web/uploads", content=b"x" * 1001, headers=RAW)
        assert (large.status_code, large.json()["error"]["code"]) == (413, "body_too_large")
        empty = await client.post("/web/uploads", content=b"", headers=RAW)
        assert (empty.status_code, empty.json()["error"]["code"]) == (400, "empty_file")
        form = await client.post("/web/uploads", content=b"x", headers={"content-type": "multipart/form-data"})
        assert form.status_code == 415


async def test_file_sent_by_the_agent_is_shown(owner: httpx.AsyncClient, model: ModelServer, tmp_path: Path) -> None:
    chart = tmp_path / "chart.png"
    chart.write_bytes(picture())
    model.script(Say(calls=[Ask("send_file", {"path": str(chart), "caption": "The chart"})]), Say("Done."))
    model.otherwise(Say("Done."))
    session = await begin(owner, "Draw a chart")

    async def find_notice() -> Any:
        page = (await owner.get(f"/web/sessions/{session}/messages")).json()
        return next((one for one in page["notices"] if one["files"]), None)

    notice: Any = await until(find_notice)
    assert notice["text"] == "The chart"
    (file,) = notice["files"]
    assert (await owner.get(f"/web/files/{file['id']}")).content == picture()


async def test_files_are_listed_only_for_people_with_access_to_their_session(
    owner: httpx.AsyncClient, alice: httpx.AsyncClient, model: ModelServer
) -> None:
    model.otherwise(Say("Seen."))
    session = await _begin_with(owner, "Look", await _upload(owner, "mine.txt", b"one"))
    await _begin_with(alice, "Look", await _upload(alice, "hers.txt", b"two"))
    assert [one["name"] for one in (await alice.get("/web/files")).json()] == ["hers.txt"]
    everything = (await owner.get("/web/files")).json()
    assert sorted(one["name"] for one in everything) == ["hers.txt", "mine.txt"]
    (mine,) = (await owner.get("/web/files", params={"session": session})).json()
    assert (mine["size"], mine["sent"], mine["session_id"]) == (3, False, session)
    assert (await owner.get(f"/web/files/{mine['id']}")).content == b"one"
    assert (await alice.get("/web/files", params={"session": session})).json() == []


async def test_recording_is_transcribed(tmp_path: Path, model: ModelServer) -> None:
    settings = '[voice]\ntranscribe = "command"\ncommand = "cat {file}"\n'
    async with hosted(tmp_path, model, settings) as host, web_client(host) as client:
        assert (await client.get("/web/me")).json()["voice"] is True
        query = {"name": "recording.webm", "type": "audio/webm"}
        transcription = await client.post("/web/transcriptions", params=query, content=b"buy milk", headers=RAW)
        assert transcription.json() == {"text": "buy milk"}
        uploads = host.application.profile.media_folder / "uploads"
        assert not [one for one in uploads.rglob("*") if one.is_file()]


async def test_voice_is_off_without_transcription(owner: httpx.AsyncClient) -> None:
    assert (await owner.get("/web/me")).json()["voice"] is False
    refused = await owner.post("/web/transcriptions", content=b"x", headers=RAW)
    assert "voice.transcribe" in refused.json()["error"]["message"]
