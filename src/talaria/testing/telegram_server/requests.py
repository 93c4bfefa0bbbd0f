"""Read the parameters of a request: query, form, multipart or JSON."""

import msgspec
from aiohttp import BodyPartReader, web

from talaria.testing.telegram_server.files import Upload
from talaria.testing.telegram_server.refusals import Refusal, bad_request


async def read_request(request: web.Request) -> dict[str, object]:
    """Return the parameters by name; files are `Upload`, values of forms are text."""
    values: dict[str, object] = dict(request.query)
    match request.content_type:
        case "application/json":
            values |= await _json(request)
        case "application/x-www-form-urlencoded":
            values |= {name: value for name, value in (await request.post()).items() if isinstance(value, str)}
        case "multipart/form-data":
            values |= await _multipart(request)
    return values


def decode_values(values: dict[str, object]) -> dict[str, object]:
    """Return the parameters as a test looks at them: what is JSON inside a form is decoded."""
    return {name: _decoded(value) if isinstance(value, str) else value for name, value in values.items()}


def _decoded(value: str) -> object:
    if not value.startswith(("{", "[")):
        return value
    try:
        return msgspec.json.decode(value)
    except msgspec.DecodeError:
        return value


async def _json(request: web.Request) -> dict[str, object]:
    body = await request.read()
    if not body:
        return {}
    try:
        return msgspec.json.decode(body, type=dict[str, object])
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise bad_request(f"can't parse request body as JSON object: {error}") from error


async def _multipart(request: web.Request) -> dict[str, object]:
    values: dict[str, object] = {}
    try:
        async for part in await request.multipart():
            if not isinstance(part, BodyPartReader) or part.name is None:
                raise bad_request("can't parse multipart/form-data")
            data = bytes(await part.read(decode=True))
            if part.filename is None:
                values[part.name] = data.decode()
            else:
                values[part.name] = Upload(data, part.filename, part.headers.get("Content-Type", ""))
    except ValueError as error:
        raise Refusal(400, "Bad Request: can't parse multipart/form-data") from error
    return values
