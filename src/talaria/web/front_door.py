"""The web app's front door: browsers are known by a cookie or a proxy; foreign pages can change nothing."""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from time import monotonic

from msgspec import Struct

from talaria.access.browsers import (
    BROWSER_LIFE,
    Browser,
    digest_token,
    is_use_recorded,
    read_browsers,
    record_use,
)
from talaria.access.policy import People
from talaria.contracts.store import Store
from talaria.contracts.stores.sessions import Session, Viewer
from talaria.core.errors import StoreError
from talaria.core.messages import OWNER, chat_sender
from talaria.http.errors import Problem, make_too_many
from talaria.http.openapi import RouteGroup
from talaria.http.routing import Reply, Request, Route, make_json_reply
from talaria.settings.model import Settings

SOURCE = "web"
ANYONE, USER, AGENT_OWNER = "anyone", "user", "owner"  # scopes of routes
_CONTENT_TYPES = ("application/json", "application/octet-stream")  # neither is sent without a preflight request
_CACHE_SECONDS = 1.0  # for which a browser signed out by another process is still known
_TRIES, _TRIES_SECONDS = 5, 60.0
_MOST_ADDRESSES = 1024


class WebError(Struct, frozen=True):
    """An error: a sentence for people, and a code for programs."""

    message: str
    code: str


class WebErrorReply(Struct, frozen=True):
    """The body of an error reply."""

    error: WebError


def describe_web(routes: Sequence[Route]) -> RouteGroup:
    """Return the routes of the web app with what they have in common.

    Those of its page and its files are left out.
    """
    return RouteGroup(
        routes=[route for route in routes if route.path.startswith("/web/")],
        error_type=WebErrorReply,
        scheme_name="browser",
        scheme={
            "type": "apiKey",
            "in": "cookie",
            "name": "talaria-PORT",
            "description": "The cookie of a signed-in browser, named after the port; with `__Host-` first on HTTPS.",
        },
        requirements={
            USER: "Requires a signed-in browser.",
            AGENT_OWNER: "Requires a signed-in browser of the owner.",
        },
        change_headers=("x-talaria",),
    )


class WebCaller(Struct, frozen=True):
    """A signed-in browser; ``person`` is empty for the owner, ``digest`` if a proxy names the person."""

    name: str = ""
    person: str = ""
    digest: str = ""

    @property
    def is_owner(self) -> bool:
        """Return whether this is the owner of the agent, who sees everything."""
        return not self.person

    @property
    def sender(self) -> str:
        """The sender of messages from this browser."""
        return OWNER if self.is_owner else chat_sender(SOURCE, self.person)

    @property
    def viewer(self) -> Viewer | None:
        """Viewer of the lists; ``None`` for everything."""
        return None if self.is_owner else Viewer(self.person)

    def may_see(self, session: Session) -> bool:
        """Return whether a session is shown to this person."""
        return self.is_owner or (session.owner == self.person and not session.audience)

    def is_own(self, session: Session) -> bool:
        """Return whether a session is this person's; one that nobody has written in yet is the owner's."""
        return session.owner == self.person or (self.is_owner and session.owner.startswith(f"{SOURCE}/"))


WebRequest = Request[WebCaller]


class SignInLimiter:
    """Counts tries to sign in: a few per minute and address."""

    def __init__(self) -> None:
        self._tries: OrderedDict[str, list[float]] = OrderedDict()

    def count(self, address: str) -> None:
        """Count a try, or raise a `Problem` after too many."""
        now = monotonic()
        recent = [at for at in self._tries.pop(address, []) if now - at < _TRIES_SECONDS]
        self._tries[address] = recent
        if len(self._tries) > _MOST_ADDRESSES:
            self._tries.popitem(last=False)
        if len(recent) >= _TRIES:
            raise make_too_many("Too many tries. Wait a minute.", seconds=round(_TRIES_SECONDS), code="too_many_tries")
        recent.append(now)


class WebFrontDoor:
    """Identifies browsers by their cookie and refuses requests that another site's page may have sent."""

    def __init__(self, store: Store, read_settings: Callable[[], Settings]) -> None:
        self._store = store
        self._read_settings = read_settings
        self._browsers: Mapping[str, Browser] = {}
        self._read_at: float | None = None

    async def authenticate(self, request: WebRequest, scope: str) -> WebCaller:
        """Return the browser that sent a request; raises a `Problem` for an unknown one or a missing right."""
        if request.method not in ("GET", "HEAD"):
            check_same_origin(request)
        if scope == ANYONE:
            return WebCaller()
        caller = await self._find_caller(request)
        if scope == AGENT_OWNER and not caller.is_owner:
            raise Problem("Only the owner of this agent can do that.", HTTPStatus.FORBIDDEN, code="not_allowed")
        return caller

    async def check_again(self, request: WebRequest, scope: str) -> None:
        """Raise a `Problem` for a browser that is known to be signed out."""
        if scope != ANYONE:
            with suppress(StoreError):
                await self._find_caller(request)

    def render_problem(self, problem: Problem) -> Reply:
        """Return an error as JSON."""
        answer = WebErrorReply(WebError(str(problem), problem.code or "invalid_request"))
        return make_json_reply(answer, status=problem.status, headers=problem.headers)

    async def _find_caller(self, request: WebRequest) -> WebCaller:
        if (named := find_proxied_caller(request, self._read_settings())) is not None:
            return named
        token = read_token(request)
        digest = digest_token(token) if token else ""
        known = await self._read()
        if token and digest not in known:  # it may have signed in a moment ago
            known = await self._read(fresh=True)
        browser = known.get(digest)
        if browser is None:
            raise Problem("You aren't signed in.", HTTPStatus.UNAUTHORIZED, code="not_signed_in")
        if not is_use_recorded(browser):
            await self._store.write(lambda tx: record_use(tx, digest))
            self._read_at = None
        return WebCaller(browser.id, browser.person, digest)

    async def _read(self, *, fresh: bool = False) -> Mapping[str, Browser]:
        if fresh or self._read_at is None or monotonic() - self._read_at >= _CACHE_SECONDS:
            self._browsers = await self._store.read(read_browsers)
            self._read_at = monotonic()
        return self._browsers


def check_same_origin(request: WebRequest) -> None:
    """Raise a `Problem` unless a page of this server sent the request.

    Browsers tell where a request comes from. The content type and the header can't be sent by a foreign page without
    a preflight request, which is never granted here.
    """
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin", "")
    is_same = site == "same-origin" if site is not None else origin.partition("://")[2] == request.headers.get("host")
    if not is_same or request.headers.get("x-talaria") != "web":
        raise Problem("This request didn't come from the web app.", HTTPStatus.FORBIDDEN, code="cross_site")
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() not in _CONTENT_TYPES:
        message = "The body must be `application/json`, or `application/octet-stream` for a file."
        raise Problem(message, HTTPStatus.UNSUPPORTED_MEDIA_TYPE, code="unsupported_media_type")


def find_proxied_caller(request: WebRequest, settings: Settings) -> WebCaller | None:
    """Return the person whom a trusted proxy names; ``None`` without one, or if the settings don't know them.

    The proxy names them for every page that sends a request from their browser, so pages of other sites get nothing.
    """
    api = settings.api
    user = request.headers.get(api.proxy_header.lower(), "") if api.proxy_header else ""
    is_foreign = request.headers.get("sec-fetch-site", "none") not in ("same-origin", "none")
    if not user or is_foreign or request.address not in api.proxy_addresses:
        return None
    names = People(settings.people).names(SOURCE, {user})
    if names & set(settings.access.blocked):
        return None
    if names & set(settings.access.owners):
        return WebCaller(f"proxy:{user}")
    person = next((name for name in names if name in settings.people), "")
    return WebCaller(f"proxy:{user}", person) if person else None


def is_secure(request: WebRequest) -> bool:
    """Return whether the page was loaded over HTTPS, as far as the browser tells."""
    return request.headers.get("origin", "").startswith("https://")


def make_cookie(request: WebRequest, token: str) -> str:
    """Return the header that gives a browser its token; an empty token deletes it."""
    secure = is_secure(request)
    life = round(BROWSER_LIFE.total_seconds()) if token else 0
    name = _build_cookie_name(request, secure=secure)
    return f"{name}={token}; Max-Age={life}; Path=/; HttpOnly; SameSite=Strict{'; Secure' if secure else ''}"


def read_token(request: WebRequest) -> str:
    """Return the token of the cookie, or an empty string."""
    cookie: SimpleCookie = SimpleCookie()
    with suppress(CookieError):
        cookie.load(request.headers.get("cookie", ""))
    for secure in (True, False):
        if found := cookie.get(_build_cookie_name(request, secure=secure)):
            return found.value
    return ""


def _build_cookie_name(request: WebRequest, *, secure: bool) -> str:
    """Return the name of the cookie, with the port: cookies of all ports of a machine share one jar."""
    port = request.headers.get("host", "").rpartition(":")[2]
    return f"{'__Host-' if secure else ''}talaria-{port if port.isdecimal() else 'web'}"


def describe_browser(agent: str) -> str:
    """Return a short name for a browser from its `User-Agent`."""
    systems = ("Android", "iPhone", "iPad", "Windows", "Mac OS X", "CrOS", "Linux")
    browsers = {"Firefox/": "Firefox", "Edg/": "Edge", "OPR/": "Opera", "Chrome/": "Chrome", "Safari/": "Safari"}
    name = next((label for part, label in browsers.items() if part in agent), "Browser")
    system = next((one for one in systems if one in agent), "")
    return f"{name} on {system.replace('Mac OS X', 'macOS').replace('CrOS', 'ChromeOS')}" if system else name
