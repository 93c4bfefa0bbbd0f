"""Ids sent by clients are never used as paths."""

from pathlib import Path

import pytest
from tests.api.completions.test_completions import PIXEL
from tests.api.in_process_server import Hosted

from talaria.api.files import ImageStore
from talaria.core.errors import Refused
from talaria.core.ids import SessionId, is_id, new_id

_PARTS = [{"type": "text", "text": "Look."}, {"type": "image_url", "image_url": {"url": PIXEL}}]
_ITEM = {"role": "user", "content": [{"type": "input_text", "text": "Look."}]}
_IMAGE = {"role": "user", "content": [{"type": "input_image", "image_url": PIXEL}]}
_BODIES = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": _PARTS}]},
    "/v1/responses": {"input": [_ITEM, _IMAGE]},
    "/v1/runs": {"input": [_ITEM, _IMAGE]},
}


def _files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.name.startswith("talaria.")}


@pytest.mark.parametrize("path", _BODIES)
@pytest.mark.parametrize(
    "name", ["../../../../escaped", "{home}/escaped", "../.env", "..", ".", "a/b", "unknown", "é" * 16]
)
async def test_invalid_session_id_creates_no_folder_or_file(host: Hosted, tmp_path: Path, path: str, name: str) -> None:
    before = _files(tmp_path)
    named = {b"x-talaria-session-id": name.format(home=tmp_path).encode()}
    answer = await host.http.post(path, json=_BODIES[path], headers=named)
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "session_not_found")
    assert _files(tmp_path) == before


@pytest.mark.parametrize("name", ["..%2F..%2Fescaped", "%2E%2E", "%2Fetc", "unknown"])
async def test_path_in_place_of_an_id_is_not_found(host: Hosted, tmp_path: Path, name: str) -> None:
    before = _files(tmp_path)
    for method, path in (
        ("GET", "/v1/sessions/{}"),
        ("GET", "/v1/sessions/{}/messages"),
        ("DELETE", "/v1/sessions/{}"),
        ("POST", "/v1/sessions/{}/fork"),
        ("POST", "/v1/sessions/{}/move"),
        ("GET", "/v1/runs/{}"),
        ("POST", "/v1/runs/{}/stop"),
        ("GET", "/v1/responses/{}"),
        ("DELETE", "/v1/responses/{}"),
        ("POST", "/v1/responses/{}/cancel"),
    ):
        body = {"to": "telegram"} if path.endswith("move") else {}
        answer = await host.http.request(method, path.format(name), json=body)
        assert answer.status_code in {404, 405}, (method, path)
    assert (await host.http.post("/v1/runs", json={"input": "hi", "session_id": name})).status_code == 404
    previous = {"input": "hi", "previous_response_id": name}
    assert (await host.http.post("/v1/responses", json=previous)).status_code == 404
    assert _files(tmp_path) == before


async def test_pictures_are_stored_only_for_valid_session_ids(tmp_path: Path) -> None:
    async def fetch(_: str) -> bytes:
        raise AssertionError

    pictures, media = ImageStore(tmp_path / "media", fetch), tmp_path / "media"
    for name in ("../x", "/etc", "", ".", "A" * 16, new_id() + "/", new_id().upper() + "!"):
        with pytest.raises(Refused):
            await pictures.store_image(PIXEL, SessionId(name))
    assert not media.exists()
    image = await pictures.store_image(PIXEL, SessionId(new_id()))
    assert image.source.startswith(str(media))
    stored = Path(image.source)
    assert [path.stat().st_mode & 0o777 for path in (media, stored.parent, stored)] == [0o700, 0o700, 0o600]


def test_only_well_formed_ids_are_recognised() -> None:
    assert all(is_id(new_id()) for _ in range(1000))
    assert not any(map(is_id, ("", "0" * 15, "0" * 17, "i" * 16, "../../../../../..", "0123456789abcde\n")))
