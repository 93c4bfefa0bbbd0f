"""Settings over HTTP: forms from the schema, and the text of the file."""

from typing import Any

import httpx
from tests.api.in_process_server import Hosted

from talaria.settings.edit import set_value


async def _view(owner: httpx.AsyncClient) -> Any:
    return (await owner.get("/web/settings")).json()


async def _setting(owner: httpx.AsyncClient, key: str) -> Any:
    sections = (await _view(owner))["sections"]
    return next(one for section in sections for one in section["settings"] if one["key"] == key)


async def _change(owner: httpx.AsyncClient, **values: object) -> httpx.Response:
    version = (await _view(owner))["version"]
    named = {key.replace("__", "."): value for key, value in values.items()}
    return await owner.patch("/web/settings", json={"values": named, "version": version})


async def test_every_setting_has_the_data_for_its_form(owner: httpx.AsyncClient) -> None:
    view = await _view(owner)
    settings = {one["key"]: one for section in view["sections"] for one in section["settings"]}
    assert len(settings) > 100
    assert all(one["about"] for one in settings.values())
    assert settings["approval.mode"]["choices"] == ["ask", "allow-list", "off"]
    assert settings["sandbox.enabled"]["choices"] == ["auto", "true", "false"]
    lease = settings["gateway.lease_seconds"]
    assert (lease["kind"], lease["minimum"], lease["maximum"]) == ("number", 0.5, 600)
    assert settings["people.alice.ids"]["entry"] == "alice"
    people = next(one for one in view["sections"] if one["name"] == "people")
    assert (people["named"], people["entries"]) == (True, ["alice", "bob"])
    assert [one["name"] for one in people["template"]] == ["ids"]


async def test_a_change_is_written_applied_and_reset(host: Hosted, owner: httpx.AsyncClient) -> None:
    file = host.application.profile.config_file
    file.write_text(f"# mine\n{file.read_text()}")
    answer = await _change(owner, approval__mode="allow-list", agent__max_iterations="7", access__owners=["alice"])
    assert answer.status_code == 200, answer.text
    assert host.application.settings.approval.mode == "allow-list"
    assert host.application.settings.agent.max_iterations == 7
    assert file.read_text().startswith("# mine\n")
    shown = await _setting(owner, "approval.mode")
    assert (shown["value"], shown["source"]) == ("allow-list", "file")
    assert shown["location"].startswith("line ")
    assert answer.json()["version"] == (await _view(owner))["version"]
    assert (await _change(owner, approval__mode=None)).status_code == 200
    assert (await _setting(owner, "approval.mode"))["source"] == "default"
    assert "allow-list" not in file.read_text()


async def test_invalid_values_are_named_and_nothing_is_written(host: Hosted, owner: httpx.AsyncClient) -> None:
    before = host.application.profile.config_file.read_text()
    answer = await _change(owner, log__level="loud", gateway__open_sessions="many", approval__mode="off")
    assert answer.status_code == 422
    faults = {one["key"]: one["problem"] for one in answer.json()["faults"]}
    assert faults.keys() == {"log.level", "gateway.open_sessions"}
    assert "one of" in faults["log.level"]
    assert host.application.profile.config_file.read_text() == before
    assert (await _change(owner, no__such="1")).status_code == 400


async def test_change_based_on_an_outdated_file_is_refused(host: Hosted, owner: httpx.AsyncClient) -> None:
    version = (await _view(owner))["version"]
    set_value(host.application.profile, "log.level", "debug")
    answer = await owner.patch("/web/settings", json={"values": {"approval.mode": "off"}, "version": version})
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "settings_changed")
    text = {"text": "", "version": version}
    assert (await owner.put("/web/settings/file", json=text)).status_code == 409
    assert 'level = "debug"' in host.application.profile.config_file.read_text()


async def test_settings_that_need_a_restart_are_listed(owner: httpx.AsyncClient) -> None:
    answer = await _change(owner, gateway__open_sessions=9)
    assert answer.json()["notes"] == ["`gateway.open_sessions` takes effect after a restart."]
    assert (await _view(owner))["restart"] == ["gateway.open_sessions"]
    assert (await _change(owner, gateway__open_sessions=None)).status_code == 200
    assert (await _view(owner))["restart"] == []


async def test_a_named_table_is_added_and_removed(host: Hosted, owner: httpx.AsyncClient) -> None:
    assert (await _change(owner, people__carol__ids=["telegram:77"])).status_code == 200
    assert host.application.settings.people["carol"].ids == ("telegram:77",)
    assert (await _change(owner, people__carol=None)).status_code == 200
    assert "carol" not in host.application.settings.people


async def test_secrets_are_masked_in_all_responses_and_preserved(host: Hosted, owner: httpx.AsyncClient) -> None:
    change = {"mcp.box.url": "http://me:hunter22@127.0.0.1:1/mcp", "mcp.box.headers.Authorization": "Bearer hunter22"}
    version = (await _view(owner))["version"]
    assert (await owner.patch("/web/settings", json={"values": change, "version": version})).status_code == 200
    for path in ("/web/settings", "/web/settings/file", "/web/tools"):
        assert "hunter22" not in (await owner.get(path)).text, path
    file = (await owner.get("/web/settings/file")).json()
    text = file["text"].replace("127.0.0.1:1", "127.0.0.1:2").replace("headers]", 'headers]\n"X-More" = "plain"')
    saved = await owner.put("/web/settings/file", json={"text": file["text"], "version": file["version"]})
    assert saved.status_code == 200, saved.text
    server = host.application.settings.mcp["box"]
    assert server.url == "http://me:hunter22@127.0.0.1:1/mcp"
    assert server.headers["Authorization"] == "Bearer hunter22"
    changed = await owner.put("/web/settings/file", json={"text": text, "version": saved.json()["version"]})
    assert changed.status_code == 422  # the masked address was changed, so its password is unknown
    assert changed.json()["faults"][0]["key"] == "mcp.box.url"


async def test_settings_text_is_checked_and_compared_before_saving(host: Hosted, owner: httpx.AsyncClient) -> None:
    file = (await owner.get("/web/settings/file")).json()
    text = file["text"] + '\n[log]\nlevel = "loud"\n'
    checked = (await owner.post("/web/settings/file/check", json={"text": text})).json()
    assert checked["diff"][-1] == '+level = "loud"'
    (fault,) = checked["faults"]
    assert fault["key"] == "log.level"
    assert fault["line"] == text.count("\n")
    refused = await owner.put("/web/settings/file", json={"text": text, "version": file["version"]})
    assert refused.status_code == 422
    good = text.replace("loud", "debug")
    assert (await owner.put("/web/settings/file", json={"text": good, "version": file["version"]})).status_code == 200
    assert host.application.settings.log.level == "debug"
    broken = (await owner.post("/web/settings/file/check", json={"text": "[log"})).json()
    assert "TOML" in broken["faults"][0]["problem"]
