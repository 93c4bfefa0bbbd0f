"""People and access over HTTP: pairing requests, browsers that show a code, and API keys."""

import asyncio

import httpx
from tests.api.in_process_server import PATIENCE, Hosted
from tests.web.web_client import OWN_HEADERS

from talaria.access.browsers import read_browsers
from talaria.access.pairing import offer_code, refuse_request
from talaria.contracts.stores.access import PairedPerson
from talaria.testing.wait import until

ANN = PairedPerson("telegram", "9", "Ann")


async def _request(host: Hosted, person: PairedPerson = ANN) -> None:
    assert await host.application.store.write(lambda tx: offer_code(tx, person))


async def test_pairing_request_is_approved_and_access_revoked(host: Hosted, owner: httpx.AsyncClient) -> None:
    await _request(host)
    (asked,) = (await owner.get("/web/people")).json()["requests"]
    assert (asked["platform"], asked["user_id"], asked["name"]) == ("telegram", "9", "Ann")
    body = {"platform": "telegram", "user_id": "9"}
    assert (await owner.post("/web/people/approve", json=body)).status_code == 200
    shown = (await owner.get("/web/people")).json()
    assert shown["requests"] == []
    assert [one["name"] for one in shown["approved"]] == ["Ann"]
    assert (await owner.post("/web/people/approve", json=body)).status_code == 404
    assert (await owner.post("/web/people/revoke", json=body)).status_code == 200
    assert (await owner.post("/web/people/revoke", json=body)).status_code == 404
    assert (await owner.get("/web/people")).json()["approved"] == []


async def test_pairing_request_is_refused(host: Hosted, owner: httpx.AsyncClient) -> None:
    await _request(host)
    body = {"platform": "telegram", "user_id": "9"}
    assert (await owner.post("/web/people/refuse", json=body)).status_code == 200
    assert (await owner.get("/web/people")).json()["requests"] == []


async def test_browser_is_signed_in_when_the_owner_enters_its_code(host: Hosted, owner: httpx.AsyncClient) -> None:
    phone = {**OWN_HEADERS, "user-agent": "Mozilla/5.0 (Android 16) Firefox/150.0"}
    async with httpx.AsyncClient(base_url=host.url, trust_env=False, headers=phone, timeout=PATIENCE) as other:
        offered = (await other.post("/web/pairing", json={})).json()
        assert (await other.get("/web/me")).status_code == 401
        (asked,) = (await owner.get("/web/people")).json()["requests"]
        assert asked["platform"] == "web"
        assert asked["name"].startswith("Firefox on Android")
        body = {"platform": "web", "user_id": asked["user_id"]}
        assert (await owner.post("/web/people/approve", json=body)).status_code == 409  # the code is needed
        assert (await owner.post("/web/browsers/approve", json={"code": "AAAA-AAAA"})).status_code == 409
        pending = asyncio.ensure_future(other.get("/web/pairing"))
        approval = {"code": offered["code"].lower(), "person": "alice"}
        assert (await owner.post("/web/browsers/approve", json=approval)).status_code == 200
        assert (await pending).json() == {"approved": True, "waiting": False}
        me = (await other.get("/web/me")).json()
    assert (me["name"], me["owner"]) == ("alice", False)


async def test_refused_browser_is_notified(host: Hosted, owner: httpx.AsyncClient) -> None:
    async with httpx.AsyncClient(base_url=host.url, trust_env=False, headers=OWN_HEADERS, timeout=PATIENCE) as other:
        await other.post("/web/pairing", json={})
        (asked,) = (await owner.get("/web/people")).json()["requests"]
        pending = asyncio.ensure_future(other.get("/web/pairing"))
        body = {"platform": "web", "user_id": asked["user_id"]}
        assert (await owner.post("/web/people/refuse", json=body)).status_code == 200
        assert (await pending).json() == {"approved": False, "waiting": False}
        assert (await other.get("/web/me")).status_code == 401
    assert len(await host.application.store.read(read_browsers)) == 1


async def test_pairing_codes_per_address_are_limited(host: Hosted) -> None:
    async with httpx.AsyncClient(base_url=host.url, trust_env=False, headers=OWN_HEADERS) as stranger:
        answers = [(await stranger.post("/web/pairing", json={})).status_code for _ in range(7)]
    assert answers == [200] * 5 + [429] * 2


async def test_browser_can_wait_for_pairing_in_one_request_only(host: Hosted) -> None:
    async with httpx.AsyncClient(base_url=host.url, trust_env=False, headers=OWN_HEADERS, timeout=PATIENCE) as other:
        await other.post("/web/pairing", json={})
        async with asyncio.TaskGroup() as group:
            requests = [group.create_task(other.get("/web/pairing")) for _ in range(4)]
            await until(lambda: sum(wait.done() for wait in requests) == 3)
            (request,) = await host.application.store.read(lambda tx: tx.pairing.waiting())
            await host.application.store.write(lambda tx: refuse_request(tx, request.platform, request.user_id))
    assert sorted(wait.result().status_code for wait in requests) == [200, 409, 409, 409]


async def test_no_code_is_shown_if_pairing_is_off(host: Hosted, owner: httpx.AsyncClient) -> None:
    version = (await owner.get("/web/settings")).json()["version"]
    edit = {"values": {"access.pairing": False}, "version": version}
    assert (await owner.patch("/web/settings", json=edit)).status_code == 200
    async with httpx.AsyncClient(base_url=host.url, trust_env=False, headers=OWN_HEADERS) as stranger:
        assert (await stranger.post("/web/pairing", json={})).status_code == 403


async def test_code_for_another_device_signs_in_its_person(host: Hosted, owner: httpx.AsyncClient) -> None:
    created = (await owner.post("/web/browsers/code", json={"person": "bob"})).json()
    assert created["address"] == host.url
    assert len(created["modules"]) == len(created["modules"][0]) >= 21
    assert set("".join(created["modules"])) == {"0", "1"}
    async with httpx.AsyncClient(base_url=host.url, trust_env=False, headers=OWN_HEADERS) as other:
        assert (await other.post("/web/login", json={"code": created["code"]})).status_code == 200
        assert (await other.get("/web/me")).json()["name"] == "bob"
    assert (await owner.post("/web/browsers/code", json={"person": "eve"})).status_code == 404


async def test_an_api_key_is_shown_once_and_works_until_it_is_revoked(host: Hosted, owner: httpx.AsyncClient) -> None:
    answer = await owner.post("/web/api-keys", json={"name": "my/script", "scopes": ["read", "chat"]})
    created = answer.json()
    assert answer.status_code == 201
    assert created["scopes"] == ["chat", "read"]
    bearer = {"authorization": f"Bearer {created['key']}"}
    async with httpx.AsyncClient(base_url=host.url, trust_env=False, headers=bearer) as program:
        assert (await program.get("/v1/models")).status_code == 200
        text = (await owner.get("/web/people")).text
        assert "my/script" in text
        assert created["key"] not in text
        assert (await owner.post("/web/api-keys", json={"name": "my/script", "scopes": ["chat"]})).status_code == 409
        assert (await owner.request("DELETE", "/web/api-keys/my/script", json={})).status_code == 200

        async def is_revoked() -> bool:
            return (await program.get("/v1/models")).status_code == 401

        await until(is_revoked)
    assert (await owner.request("DELETE", "/web/api-keys/my/script", json={})).status_code == 404


async def test_revoking_the_first_key_removes_its_file(host: Hosted, owner: httpx.AsyncClient) -> None:
    assert host.application.profile.api_key_file.exists()
    assert (await owner.request("DELETE", "/web/api-keys/first", json={})).status_code == 200
    assert not host.application.profile.api_key_file.exists()
