"""`talaria webhook`: list routes, and test them with events."""

import json
from pathlib import Path

import pytest
from tests.app.program import Program
from tests.platforms.webhook.far_side import write_route


@pytest.fixture
def program(tmp_path: Path) -> Program:
    (tmp_path / "profiles" / "default").mkdir(mode=0o700, parents=True)
    (tmp_path / "event.json").write_text('{"action": "opened", "repo": {"name": "dock"}}')
    return Program(tmp_path)


def folder(program: Program) -> Path:
    return program.home / "profiles" / "default" / "platforms" / "webhook"


def settings(program: Program, config: str, secrets: str = "") -> None:
    for name, text in (("config.toml", config), (".env", secrets)):
        file = program.home / "profiles" / "default" / name
        file.write_text(text)
        file.chmod(0o600)


def test_webhook_routes_are_listed_with_their_problems(program: Program) -> None:
    settings(program, '[platforms.webhook.options]\nport = "9000"\n', "WEBHOOK_SECRET=abcdefgh\n")
    write_route(folder(program), "good", title="Good", deliver_to="https://example.org/replies")
    write_route(folder(program), "poor", secret="GONE", deliver_to="https://example.org/", deliver_secret="AWAY")
    write_route(folder(program), "broken", scheme="rot13")
    done = program.run("webhook", "list")
    assert done.out.splitlines() == [
        "broken\t\thttp://127.0.0.1:9000/webhooks/broken\t\t",
        "good\tstandard\thttp://127.0.0.1:9000/webhooks/good\thttps://example.org/replies\tready",
        "poor\tstandard\thttp://127.0.0.1:9000/webhooks/poor\thttps://example.org/\t",
    ]
    assert "poor: The secret AWAY and GONE isn't set." in done.err
    assert "broken.toml" in done.err
    assert "No gateway" not in done.err
    listed = json.loads(program.run("webhook", "list", "--json").out)
    assert [(one["name"], bool(one["problem"])) for one in listed] == [
        ("broken", True),
        ("good", False),
        ("poor", True),
    ]
    assert "abcdefgh" not in done.out + done.err + json.dumps(listed)


def test_disabled_webhook_network_is_reported(program: Program) -> None:
    write_route(folder(program), "open", scheme="none")
    assert "platforms.webhook.enabled true" in program.run("webhook", "list").err
    assert program.run("config", "set", "platforms.webhook.enabled", "true").code == 0
    assert program.run("webhook", "list").err == ""


def test_the_doctor_reports_routes_without_allowed_senders(program: Program) -> None:
    def examine() -> str:
        return program.run("doctor", "--offline").out

    write_route(folder(program), "hub")
    assert "webhook" not in examine()
    settings(program, "[platforms.webhook]\n")
    assert "The webhook hub doesn't work: The secret WEBHOOK_SECRET isn't set." in examine()
    settings(program, '[platforms.webhook.options]\nport = "many"\n', "WEBHOOK_SECRET=abcdefgh\n")
    assert "Invalid option in platforms.webhook" in examine()
    settings(program, "[platforms.webhook]\n", "WEBHOOK_SECRET=abcdefgh\n")
    assert "doesn't work" not in examine()


def test_event_is_tested_with_the_template_of_a_route(program: Program) -> None:
    write_route(
        folder(program), "hub", task="Greet them.", template="{{ action }} {{ who }}", conversation="{{ repo.name }}"
    )
    event = str(program.home / "event.json")
    done = program.run("webhook", "test", "hub", "--body", event, "--header", "webhook-id: m1")
    assert done.code == 0
    assert done.out.startswith("Greet them.\n\n")
    assert "\nopened \n" in done.out or "\nopened\n" in done.out
    assert "The event is missing who." in done.err
    assert "in the conversation `dock`, once per event id (m1)" in done.err
    tested = json.loads(program.run("webhook", "test", "hub", "--body", event, "--json").out)
    assert (tested["conversation"], tested["missing"], tested["why"]) == ("dock", ["who"], "")


def test_event_that_the_route_does_not_accept_is_reported(program: Program) -> None:
    folder(program).mkdir(parents=True)
    (folder(program) / "hub.toml").write_text('[when]\n"headers.x-event" = "push"\n')
    event = str(program.home / "event.json")
    done = program.run("webhook", "test", "hub", "--body", event)
    assert (done.code, done.out) == (0, "")
    assert "doesn't accept" in done.err
    assert program.run("webhook", "test", "hub", "--body", event, "--header", "X-Event: push").out != ""


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["gone", "--body", "event.json"], "no route `gone`"),
        (["hub", "--body", "nowhere.json"], "nowhere.json: "),
        (["hub", "--body", "event.json", "--header", "x"], "isn't a header"),
        (["broken", "--body", "event.json"], "broken.toml"),
    ],
)
def test_invalid_route_event_or_header_is_reported(program: Program, arguments: list[str], error: str) -> None:
    write_route(folder(program), "hub")
    write_route(folder(program), "broken", scheme="rot13")
    paths = [str(program.home / one) if one.endswith(".json") else one for one in arguments]
    done = program.run("webhook", "test", *paths)
    assert done.code == 1
    assert error in done.err
    assert "Traceback" not in done.err
