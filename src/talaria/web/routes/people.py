"""Routes for people and access: pairing requests, approved people, codes for browsers, and API keys."""

import asyncio
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Annotated

from msgspec import Meta, Struct

from talaria.access.api_keys import (
    SCOPES,
    KeyScope,
    create_key,
    list_keys,
    new_token,
    remove_key_file,
    revoke_key,
)
from talaria.access.browsers import (
    BROWSERS_TOPIC,
    PAIRING_CODE_LIFE,
    create_code,
    digest_token,
    is_waiting,
    read_browsers,
    resolve_person,
)
from talaria.access.pairing import RULES, WEB, approve_code, approve_request, offer_browser_code, refuse_request
from talaria.commands.application import Application
from talaria.contracts.store import Store, Subscription, Transaction
from talaria.contracts.stores.access import PairedPerson
from talaria.core.errors import NotFound, Refused
from talaria.http.errors import Problem, make_conflict, make_too_many
from talaria.http.routing import Reply, Route, make_json_reply
from talaria.settings.profiles import Profile
from talaria.web.front_door import (
    AGENT_OWNER,
    ANYONE,
    SignInLimiter,
    WebRequest,
    describe_browser,
    make_cookie,
    read_token,
)
from talaria.web.wire import Done

_TAG = "web"
_GROUP = 4
_WAIT_SECONDS = 25.0
_Name = Annotated[str, Meta(min_length=1, max_length=200)]


class PairedPersonView(Struct, frozen=True, kw_only=True):
    """A person on a network, or a browser, that was approved or asks to be."""

    platform: str
    user_id: str
    name: str
    since: datetime | None


class NetworkView(Struct, frozen=True, kw_only=True):
    """A chat network; ``configured`` if it has its tokens."""

    name: str
    configured: bool


class ApiKeyView(Struct, frozen=True, kw_only=True):
    """An API key without the key itself."""

    name: str
    scopes: tuple[KeyScope, ...]
    created_at: datetime


class PeopleView(Struct, frozen=True, kw_only=True):
    """People who may talk to the agent or ask to, and API keys; the settings have more."""

    requests: list[PairedPersonView]
    approved: list[PairedPersonView]
    networks: list[NetworkView]
    api_keys: list[ApiKeyView]
    scopes: tuple[KeyScope, ...]


class PairingAnswer(Struct, frozen=True):
    """The person whose request or access is concerned."""

    platform: _Name
    user_id: _Name


class BrowserApproval(Struct, frozen=True):
    """The code that a browser shows, and the person who uses it; empty for the owner."""

    code: Annotated[str, Meta(min_length=1, max_length=64)]
    person: Annotated[str, Meta(max_length=200)] = ""


class BrowserCodeRequest(Struct, frozen=True):
    """Person for whom to make a code; empty for the owner."""

    person: Annotated[str, Meta(max_length=200)] = ""


class BrowserCode(Struct, frozen=True, kw_only=True):
    """A one-use code to sign in with, and the modules of a QR code with its address, row by row."""

    code: str
    address: str
    minutes: int
    modules: list[str]


class PairingCodeView(Struct, frozen=True, kw_only=True):
    """The code that a sign-in page shows until the owner has approved it."""

    code: str
    minutes: int


class PairingState(Struct, frozen=True):
    """State of a browser that shows a code; ``waiting`` until the owner has answered."""

    approved: bool
    waiting: bool


class ApiKeyRequest(Struct, frozen=True):
    """A new API key."""

    name: Annotated[str, Meta(min_length=1, max_length=64)]
    scopes: Annotated[list[KeyScope], Meta(min_length=1, max_length=len(SCOPES))]


class CreatedApiKey(Struct, frozen=True, kw_only=True):
    """An API key, shown once."""

    name: str
    scopes: tuple[KeyScope, ...]
    key: str


class PeopleRoutes:
    """Pairing, people and API keys."""

    def __init__(self, store: Store, application: Application, profile: Profile) -> None:
        self._store = store
        self._application = application
        self._profile = profile
        self._limiter = SignInLimiter()
        self._waiting: dict[str, Subscription] = {}  # one request per browser that shows a code

    def routes(self) -> tuple[Route, ...]:
        """Return the routes."""
        return (
            Route(method="POST", path="/web/pairing", handler=self._ask, summary="Show a pairing code in this browser",
                  scope=ANYONE, reply_type=PairingCodeView, tag=_TAG),
            Route(method="GET", path="/web/pairing", handler=self._wait, summary="Wait for the owner's approval",
                  scope=ANYONE, reply_type=PairingState, tag=_TAG),
            Route(method="GET", path="/web/people", handler=self._show, summary="List people, requests and API keys",
                  scope=AGENT_OWNER, reply_type=PeopleView, tag=_TAG),
            Route(method="POST", path="/web/people/approve", handler=self._approve,
                  summary="Approve a pairing request", scope=AGENT_OWNER, takes=PairingAnswer, reply_type=Done,
                  tag=_TAG),
            Route(method="POST", path="/web/people/refuse", handler=self._refuse, summary="Refuse a pairing request",
                  scope=AGENT_OWNER, takes=PairingAnswer, reply_type=Done, tag=_TAG),
            Route(method="POST", path="/web/people/revoke", handler=self._revoke, summary="Revoke a person's access",
                  scope=AGENT_OWNER, takes=PairingAnswer, reply_type=Done, tag=_TAG),
            Route(method="POST", path="/web/browsers/approve", handler=self._approve_browser,
                  summary="Sign in a browser that shows a code", scope=AGENT_OWNER, takes=BrowserApproval,
                  reply_type=Done, tag=_TAG),
            Route(method="POST", path="/web/browsers/code", handler=self._make_code,
                  summary="Make a one-use code for another device", scope=AGENT_OWNER, takes=BrowserCodeRequest,
                  reply_type=BrowserCode, tag=_TAG),
            Route(method="POST", path="/web/api-keys", handler=self._create_key, summary="Create an API key",
                  scope=AGENT_OWNER, takes=ApiKeyRequest, reply_type=CreatedApiKey, status=201, tag=_TAG),
            Route(method="DELETE", path="/web/api-keys/{name*}", handler=self._revoke_key, summary="Revoke an API key",
                  scope=AGENT_OWNER, reply_type=Done, tag=_TAG),
        )  # fmt: skip

    async def _ask(self, request: WebRequest) -> Reply:
        if not self._application.settings_admin.current.access.pairing:
            raise Problem("Pairing is switched off. Ask the owner for a code.", HTTPStatus.FORBIDDEN, code="no_pairing")
        self._limiter.count(request.address)
        label = f"{describe_browser(request.headers.get('user-agent', ''))} ({request.address})"
        offered = await self._store.write(lambda tx: offer_browser_code(tx, label))
        if offered is None:
            raise make_too_many("Too many browsers ask right now. Wait a minute.", seconds=60, code="too_many_tries")
        code, token = offered
        view = PairingCodeView(code=f"{code[:_GROUP]}-{code[_GROUP:]}", minutes=_count_minutes(RULES.code_life))
        return make_json_reply(view, headers={"set-cookie": make_cookie(request, token)})

    async def _wait(self, request: WebRequest) -> Reply:
        """Reply when the owner has answered, or after a while without an answer; a newer request ends this one."""
        digest = digest_token(read_token(request))
        async with self._store.subscribe(BROWSERS_TOPIC) as subscription:
            state = await self._store.read(lambda tx: _read_pairing(tx, digest))
            if state.waiting and digest in self._waiting:
                self._waiting[digest].wake()
            self._waiting[digest] = subscription
            try:
                async with asyncio.timeout(_WAIT_SECONDS):
                    while state.waiting:
                        await subscription.wait()
                        if self._waiting.get(digest) is not subscription:
                            raise make_conflict("Another page of this browser waits now.", code="waiting_elsewhere")
                        state = await self._store.read(lambda tx: _read_pairing(tx, digest))
            except TimeoutError:
                pass
            finally:
                if self._waiting.get(digest) is subscription:
                    del self._waiting[digest]
        return make_json_reply(state)

    async def _show(self, request: WebRequest) -> Reply:
        waiting, approved, keys = await self._store.read(
            lambda tx: (tx.pairing.waiting(), tx.pairing.people(), list_keys(tx))
        )
        view = PeopleView(
            requests=[_build_person_view(one) for one in waiting],
            approved=[_build_person_view(one) for one in approved],
            networks=[NetworkView(name=name, configured=ready) for name, ready in self._application.platforms.items()],
            api_keys=[ApiKeyView(name=one.name, scopes=one.scopes, created_at=one.created_at) for one in keys],
            scopes=SCOPES,
        )
        return make_json_reply(view)

    async def _approve(self, request: WebRequest) -> Reply:
        pairing = request.read(PairingAnswer)
        await self._store.write(lambda tx: approve_request(tx, pairing.platform, pairing.user_id))
        return make_json_reply(Done())

    async def _refuse(self, request: WebRequest) -> Reply:
        pairing = request.read(PairingAnswer)
        await self._store.write(lambda tx: refuse_request(tx, pairing.platform, pairing.user_id))
        return make_json_reply(Done())

    async def _revoke(self, request: WebRequest) -> Reply:
        pairing = request.read(PairingAnswer)
        if not await self._store.write(lambda tx: tx.pairing.revoke(pairing.platform, pairing.user_id)):
            raise NotFound(f"Nobody with the id `{pairing.user_id[:64]}` is approved on {pairing.platform[:64]}.")
        return make_json_reply(Done())

    async def _approve_browser(self, request: WebRequest) -> Reply:
        approval = request.read(BrowserApproval)
        person = resolve_person(self._application.settings_admin.current, approval.person)
        found = await self._store.write(lambda tx: approve_code(tx, WEB, approval.code, person=person))
        if found is None:
            raise Refused("No browser shows this code, or it has expired.")
        return make_json_reply(Done())

    async def _make_code(self, request: WebRequest) -> Reply:
        import segno  # noqa: PLC0415 (loaded when a QR code is drawn)

        person = resolve_person(self._application.settings_admin.current, request.read(BrowserCodeRequest).person)
        code = await self._store.write(lambda tx: create_code(tx, person=person, life=PAIRING_CODE_LIFE))
        origin = request.headers.get("origin") or f"http://{request.headers.get('host', '')}"
        matrix = segno.make(f"{origin}/#code={code}", error="m", micro=False).matrix
        rows = ["".join("1" if one else "0" for one in row) for row in matrix]
        view = BrowserCode(code=code, address=origin, minutes=_count_minutes(PAIRING_CODE_LIFE), modules=rows)
        return make_json_reply(view)

    async def _create_key(self, request: WebRequest) -> Reply:
        key_request, token = request.read(ApiKeyRequest), new_token()
        key = await self._store.write(lambda tx: create_key(tx, key_request.name.strip(), key_request.scopes, token))
        return make_json_reply(CreatedApiKey(name=key.name, scopes=key.scopes, key=token), status=HTTPStatus.CREATED)

    async def _revoke_key(self, request: WebRequest) -> Reply:
        name = request.parts["name"]
        known = {key.name: key.digest for key in await self._store.read(list_keys)}
        await self._store.write(lambda tx: revoke_key(tx, name))
        remove_key_file(self._profile, known.get(name, ""))
        return make_json_reply(Done())


def _read_pairing(tx: Transaction, digest: str) -> PairingState:
    return PairingState(approved=digest in read_browsers(tx), waiting=is_waiting(tx, digest))


def _build_person_view(person: PairedPerson) -> PairedPersonView:
    return PairedPersonView(platform=person.platform, user_id=person.user_id, name=person.name, since=person.since)


def _count_minutes(life: timedelta) -> int:
    return round(life.total_seconds() / 60)
