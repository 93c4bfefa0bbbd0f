"""Signing in with a subscription, against a real authorization server and as the installed program."""

import asyncio
import json
import re
import signal
import stat
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.app import warm_program
from tests.app.logins.oidc_server import GuardedModels, OidcServer, Person, guarded_models
from tests.app.program import Outcome, Program
from tests.cli.terminal_dialogue import dialogue

from talaria.testing.model_server import Fail, ModelServer, Received, Say
from talaria.testing.wait import LIMIT

BROWSER = {"BROWSER": "true %s"}
SSH = {"SSH_CONNECTION": "192.0.2.1 5000 192.0.2.2 22", **BROWSER}
_CODE = re.compile(r"[A-Z]{4}-[A-Z]{4}")


@dataclass(frozen=True)
class Owner:
    """A profile whose sign-ins and models are on this machine."""

    program: Program
    oidc: OidcServer
    models: GuardedModels
    server: ModelServer

    @property
    def file(self) -> Path:
        return self.folder / "logins" / "openai.json"

    @property
    def folder(self) -> Path:
        return self.program.home / "profiles" / "default"

    def configure(self, settings: str) -> None:
        config = self.folder / "config.toml"
        config.write_text(config.read_text() + settings)

    def stored(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.file.read_text())
        return found

    async def run(self, *arguments: str) -> Outcome:
        environment = self.program.environment()
        return Outcome(*await asyncio.to_thread(warm_program.run, arguments, env=environment, cwd=self.program.home))

    async def sign_in(self, *arguments: str, env: dict[str, str] = BROWSER, person: Person | None = None) -> Outcome:
        """Run `talaria login` with a person who follows its instructions."""
        process = await warm_program.start(
            "login",
            *(arguments or ("openai",)),
            env=self.program.environment(**env),
            stdout=warm_program.PIPE,
            stderr=warm_program.PIPE,
        )
        assert process.stderr is not None
        shown, visits = "", None
        async with asyncio.timeout(LIMIT), asyncio.TaskGroup() as jobs:
            while line := (await process.stderr.readline()).decode():
                shown += line
                url = line.strip() if line.startswith("http") else ""
                code = _CODE.search(line) if "code" in line else None
                if url and "user_code=" not in url and "/device" in url:
                    continue
                if person and visits is None and (url or code):
                    address = url or f"{self.oidc.issuer}/device"
                    visits = jobs.create_task(person.sign_in(address, code=code[0] if code else ""))
            out, _ = await process.communicate()
        return Outcome(await process.wait(), out.decode(), shown)


@pytest.fixture
async def owner(tmp_path: Path, oidc: OidcServer) -> AsyncIterator[Owner]:
    async with ModelServer() as server, guarded_models(oidc, server) as models:
        folder = tmp_path / "profiles" / "default"
        folder.mkdir(mode=0o700, parents=True)
        settings = (
            f'[logins.openai]\nissuer = "{oidc.issuer}"\nclient_id = "public-client"\n'
            f'[providers.chatgpt]\nbase_url = "{models.url}"\n'
        )
        (folder / "config.toml").write_text(settings)
        (folder / "config.toml").chmod(0o600)
        yield Owner(Program(tmp_path), oidc, models, server)


async def test_browser_sign_in_stores_private_tokens_and_the_model_answers(owner: Owner) -> None:
    done = await owner.sign_in(person=Person())
    assert (done.code, done.out.splitlines()[0]) == (0, "Signed in to ChatGPT as maria@example.org (plus).")
    assert "Talaria uses chatgpt:test-model." in done.out
    assert stat.S_IMODE(owner.file.stat().st_mode) == 0o600
    assert stat.S_IMODE(owner.file.parent.stat().st_mode) == 0o700
    answered = await owner.run("Hello there")
    assert (answered.code, answered.out.strip()) == (0, "ok")
    call = next(one for one in owner.models.received if one.path == "/responses")
    assert call.headers["ChatGPT-Account-Id"] == "account-of-maria"
    assert call.headers["originator"] == "talaria"
    sent = owner.server.received[-1].json
    assert sent["stream"] is True
    assert "max_output_tokens" not in sent
    assert sent["instructions"]


async def test_status_shows_account_and_no_token(owner: Owner) -> None:
    await owner.sign_in(person=Person())
    shown = await owner.run("auth", "status", "--json")
    first = json.loads(shown.out)[0]
    assert (first["name"], first["condition"], first["account"]) == ("openai", "signed in", "maria@example.org")
    table = await owner.run("auth")
    assert (table.code, "maria@example.org" in table.out) == (0, True)
    tokens = (owner.stored()["access_token"], owner.stored()["refresh_token"])
    assert not any(token in shown.out + table.out for token in tokens)


async def test_sign_in_over_ssh_shows_a_code_instead_of_a_browser(owner: Owner) -> None:
    done = await owner.sign_in(env=SSH, person=Person("paul"))
    assert (done.code, "paul@example.org" in done.out) == (0, True), done.err
    assert "on any device" in done.err
    assert _CODE.search(done.err)


async def test_declined_sign_in_stores_no_tokens(owner: Owner) -> None:
    class Declines(Person):
        async def sign_in(self, url: str, *, declines: bool = True, code: str = "") -> str:
            return await super().sign_in(url, declines=True, code=code)

    done = await owner.sign_in(person=Declines())
    assert done.code == 1
    assert done.err.splitlines()[-1] == "talaria: The sign-in to ChatGPT was declined. Nothing has changed."
    assert not owner.file.exists()


async def test_unfinished_sign_in_times_out_with_advice(owner: Owner) -> None:
    done = await owner.sign_in("openai", "--wait", "0.2")
    assert done.code == 1
    assert "Nobody signed in within" in done.err
    assert "--device" in done.err
    assert not owner.file.exists()


async def test_ctrl_c_stops_a_sign_in_without_a_traceback(owner: Owner) -> None:
    process = await warm_program.start(
        "login", "openai", env=owner.program.environment(**BROWSER), stderr=warm_program.PIPE
    )
    assert process.stderr is not None
    async with asyncio.timeout(LIMIT):
        while b"Waiting" not in await process.stderr.readline():
            pass
        process.send_signal(signal.SIGINT)
        rest = (await process.stderr.read()).decode()
        assert await process.wait() == 130
    assert rest.strip() == "Stopped. Nothing has changed."


async def test_token_rejected_during_a_turn_is_renewed_once_and_the_call_repeated(owner: Owner) -> None:
    await owner.sign_in(person=Person())
    old = owner.stored()["access_token"]
    await owner.oidc.revoke(old)
    before = owner.models.refused
    answered = await owner.run("Hello there")
    assert (answered.code, answered.out.strip()) == (0, "ok")
    assert owner.models.refused == before + 1
    assert await owner.oidc.count_refreshes() == 1
    assert owner.stored()["access_token"] != old


async def test_processes_with_an_expired_token_refresh_it_once(owner: Owner) -> None:
    await owner.sign_in(person=Person())
    expired = owner.stored() | {"expires_at": "2020-01-01T00:00:00Z", "renew_at": "2020-01-01T00:00:00Z"}
    owner.file.write_text(json.dumps(expired))
    answered = await asyncio.gather(*(owner.run(f"Question {number}") for number in range(4)))
    assert [(one.code, one.out.strip()) for one in answered] == [(0, "ok")] * 4, answered
    assert await owner.oidc.count_refreshes() == 1


async def test_revoked_sign_in_is_explained_in_one_sentence(owner: Owner) -> None:
    await owner.sign_in(person=Person())
    await owner.oidc.revoke(owner.stored()["refresh_token"])
    await owner.oidc.revoke(owner.stored()["access_token"])
    answered = await owner.run("Hello there")
    assert answered.code == 1
    assert (
        "The sign-in to ChatGPT has expired or was revoked. Sign in again with `talaria login openai`." in answered.err
    )
    assert "Traceback" not in answered.err
    status = await owner.run("auth", "status")
    assert (status.code, "needs sign-in" in status.out) == (1, True)
    again = await owner.sign_in(person=Person())
    assert again.code == 0
    assert (await owner.run("Hello there")).out.strip() == "ok"


async def test_signing_out_revokes_and_deletes_the_tokens(owner: Owner) -> None:
    await owner.sign_in(person=Person())
    token = owner.stored()["access_token"]
    done = await owner.run("logout", "openai")
    assert (done.code, done.out.strip()) == (0, "Signed out of openai; its tokens are deleted.")
    assert not owner.file.exists()
    assert not await owner.oidc.is_valid(f"Bearer {token}")
    assert (await owner.run("logout", "openai")).out.strip() == "You weren't signed in to openai."


async def test_unreachable_authorization_server_is_reported(owner: Owner) -> None:
    config = owner.folder / "config.toml"
    config.write_text(config.read_text().replace(owner.oidc.issuer, "http://127.0.0.1:9"))
    done = await owner.run("login", "openai")
    assert done.code == 1
    assert done.err.startswith("talaria: The sign-in failed: the connection was refused.")


async def test_own_google_client_signs_in_by_pasted_address(owner: Owner, tmp_path: Path) -> None:
    client = {
        "client_id": "own-client",
        "client_secret": "own-client-secret",
        "project_id": "my-project",
        "auth_uri": f"{owner.oidc.issuer}/auth",
        "token_uri": f"{owner.oidc.issuer}/token",
    }
    file = tmp_path / "client_secret.json"
    file.write_text(json.dumps({"installed": client}))
    owner.configure(
        f'[logins.google]\nscope = "openid email offline_access"\n[providers.google]\nbase_url = "{owner.models.url}"\n'
    )
    refused = await owner.run("login", "google")
    assert refused.code == 1
    assert "OAuth client of your own" in refused.err
    done = await owner.sign_in("google", "--client", str(file), person=Person())
    assert (done.code, done.out.splitlines()[0]) == (0, "Signed in to Google as maria@example.org."), done.err
    answered = await owner.run("Hello there")
    assert (answered.code, answered.out.strip()) == (0, "ok")
    assert owner.models.received[-1].headers["x-goog-user-project"] == "my-project"


async def test_a_pasted_address_of_another_sign_in_is_refused(owner: Owner) -> None:
    environment = owner.program.environment()
    typed = b"http://localhost:1455/auth/callback?code=stolen&state=other\n"
    code, _, err = await asyncio.to_thread(
        warm_program.run, ("login", "openai", "--paste"), env=environment, typed=typed
    )
    assert code == 1
    assert err.strip().endswith("That address belongs to another sign-in. Copy the one of this sign-in.")


async def test_login_without_a_name_lists_the_available_sign_ins(tmp_path: Path) -> None:
    program = Program(tmp_path)
    shown = await asyncio.to_thread(program.run, "login")
    assert shown.code == 0
    assert [line.split("\t")[0] for line in shown.out.splitlines()] == ["openai", "github-copilot", "google"]
    wrong = await asyncio.to_thread(program.run, "login", "opnai")
    assert (wrong.code, "`openai`" in wrong.err) == (1, True)


async def test_error_of_a_provider_without_sign_in_names_the_login_command(tmp_path: Path) -> None:
    done = await asyncio.to_thread(Program(tmp_path).run, "model", "chatgpt")
    assert (done.code, done.err.strip()) == (1, "talaria: ChatGPT needs a sign-in: `talaria login openai`.")


@dataclass
class CopilotExchange:
    """GitHub's endpoint that trades a GitHub token for one of Copilot."""

    oidc: OidcServer
    models: GuardedModels
    url: str = ""
    calls: int = 0
    has_subscription: bool = True

    async def answer(self, call: web.Request) -> web.Response:
        self.calls += 1
        kind, _, token = call.headers["Authorization"].partition(" ")
        assert kind == "token"
        if not self.has_subscription:
            return web.json_response({"message": "Resource not accessible by integration"}, status=403)
        if not await self.oidc.is_valid(f"Bearer {token}"):
            return web.json_response({"message": "Bad credentials"}, status=401)
        granted = {"token": token, "expires_at": 4102444800, "endpoints": {"api": self.models.url}}
        return web.json_response(granted)


@pytest.fixture
async def copilot(owner: Owner) -> AsyncIterator[CopilotExchange]:
    exchange = CopilotExchange(owner.oidc, owner.models)
    application = web.Application()
    application.router.add_get("/copilot_internal/v2/token", exchange.answer)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    exchange.url = f"http://127.0.0.1:{runner.addresses[0][1]}/copilot_internal/v2/token"
    owner.configure(
        f'[logins.github-copilot]\nissuer = "{owner.oidc.issuer}"\nclient_id = "public-client"\n'
        f'scope = "openid email"\nexchange_url = "{exchange.url}"\n'
    )
    yield exchange
    await runner.cleanup()


async def test_copilot_token_is_exchanged_and_its_model_server_is_used(owner: Owner, copilot: CopilotExchange) -> None:
    done = await owner.sign_in("github-copilot", "--device", person=Person())
    assert (done.code, done.out.splitlines()[0]) == (0, "Signed in to GitHub Copilot."), done.err
    assert copilot.calls == 1
    answered = await owner.run("Hello there")
    assert (answered.code, answered.out.strip()) == (0, "ok"), answered.err
    call = owner.models.received[-1]
    assert (call.path, call.headers["Copilot-Integration-Id"]) == ("/chat/completions", "vscode-chat")


async def test_copilot_model_with_another_protocol_is_called_over_that_protocol(
    owner: Owner, copilot: CopilotExchange
) -> None:
    def answer(received: Received) -> Say | Fail:
        if "messages" in received.json:
            return Fail(400, kind="unsupported_api_for_model")
        return Say("by responses")

    owner.server.answering(answer)
    await owner.sign_in("github-copilot", "--device", person=Person())
    assert (await owner.run("Hello there")).out.strip() == "by responses"
    before = len(owner.models.received)
    assert (await owner.run("And again")).out.strip() == "by responses"
    calls = [one.path for one in owner.models.received[before:] if one.method == "POST"]
    assert "/chat/completions" not in calls


async def test_account_without_copilot_is_refused(owner: Owner, copilot: CopilotExchange) -> None:
    copilot.has_subscription = False
    done = await owner.sign_in("github-copilot", "--device", person=Person())
    assert done.code == 1
    assert "GitHub Copilot gave no access to this account (HTTP 403)" in done.err
    assert not (owner.folder / "logins" / "github-copilot.json").exists()


async def test_setup_signs_in_and_chooses_a_model(owner: Owner) -> None:
    async with dialogue(owner.program, "setup", "model", env=BROWSER) as wizard:
        await wizard.answer("Provider", "chatgpt")
        await wizard.screen.wait_for("Waiting for the sign-in")
        shown = "".join(line.strip() for line in wizard.text.partition("to sign in to ChatGPT:")[2].splitlines())
        await Person().sign_in(shown.partition("Waiting")[0])
        await wizard.answer("Model [test-model]")
        assert await wizard.end() == 0
    assert "Signed in to ChatGPT as maria@example.org." in wizard.text
    assert "ChatGPT is reachable and offers 1 model." in wizard.text
    assert (await owner.run("Hello there")).out.strip() == "ok"
