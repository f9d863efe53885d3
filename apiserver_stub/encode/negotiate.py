"""What a verb answered, in the representation the caller asked for; the last step of the hall."""

import asyncio
from bisect import bisect_left
from collections.abc import AsyncIterator, Sequence
from itertools import accumulate

from apiserver_stub.call import Call, Item, Items, Reply, Stream
from apiserver_stub.encode import yaml
from apiserver_stub.encode.accept import JSON, TABLE, YAML, Form, choose
from apiserver_stub.encode.json import encode, indented
from apiserver_stub.encode.views import list_metadata, represent, view
from apiserver_stub.parse import is_on
from controller_manager.api.errors import BadRequest
from controller_manager.api.wire import Response

_CHUNK = 512 * 1024
_COMMA: tuple[bytes, ...] = (b"",)  # joined before the others, it is a comma
_LONGEST_WARNINGS = 4096
_INCLUDED = frozenset({"", "None", "Metadata", "Object"})
_LIVE = (JSON,)
_PLAIN = Form()


def check_accept(call: Call) -> Form:
    """The form the caller wants, known before anything is done. Raises `NotAcceptable` or `BadRequest`."""
    accept = call.request.headers.get("accept", "")
    form = choose(accept, _LIVE) if call.verb == "watch" else choose(accept)
    if form.view == TABLE and call.query.get("includeObject", "") not in _INCLUDED:
        raise BadRequest("includeObject: Unsupported value: supported values: None, Metadata, Object")
    return form


def respond(call: Call, reply: Reply) -> Response:
    """The answer on the wire: whole, or chunk by chunk when it is long or has no end."""
    form, body = check_accept(call), reply.body
    if isinstance(body, Stream):
        return Response(reply.status, _headers(JSON, reply), body.open(represent(call, form.view)))
    pretty = is_on(call.query, "pretty")
    if form == _PLAIN and not pretty:
        whole = body.data if isinstance(body, Item) else _listed(call, body)
        return Response(reply.status, _headers(JSON, reply), whole)
    if form.media == YAML and isinstance(body, Items) and not form.view:
        return Response(reply.status, _headers(YAML, reply), _yaml_chunks(call, body))
    data = _data(call, form.view, body)
    if form.media == YAML:
        data = yaml.dump(data)
    elif pretty:
        data = indented(data)
    return Response(reply.status, _headers(form.media, reply), data)


def _data(call: Call, name: str, body: Item | Items) -> bytes:
    if isinstance(body, Item) and not (name and body.of_kind):
        return body.data
    if isinstance(body, Items) and not name:
        return b"".join(_pieces(call, body))
    return view(call, name, body)


def _listed(call: Call, items: Items) -> bytes | AsyncIterator[bytes]:
    """A collection in one piece when it is short, otherwise in chunks made as they are taken."""
    ends = list(accumulate(map(len, items.objects)))
    if not ends or ends[-1] <= _CHUNK:
        return b"".join(_pieces(call, items))
    return _chunks(_head(call, items), items.objects, ends)


def _pieces(call: Call, items: Items) -> Sequence[bytes]:
    return (_head(call, items), b",".join(items.objects), b"]}")


def _head(call: Call, items: Items) -> bytes:
    kind = call.kind
    head = encode({"kind": kind.list_kind, "apiVersion": kind.api_version, "metadata": list_metadata(items)})
    return head[:-1] + b',"items":['


async def _chunks(head: bytes, objects: Sequence[bytes], ends: Sequence[int]) -> AsyncIterator[bytes]:
    """Each object is copied once, into its chunk; `ends` are the sizes of the objects up to and with each."""
    yield head
    start = 0
    before: tuple[bytes, ...] = ()
    while start < len(objects):
        reached = ends[start - 1] if start else 0
        end = bisect_left(ends, reached + _CHUNK, start) + 1
        yield b",".join((*before, *objects[start:end]))
        start, before = end, _COMMA
    yield b"]}"


async def _yaml_chunks(call: Call, items: Items) -> AsyncIterator[bytes]:
    """A collection as YAML, object by object: writing one takes a hundred times as long as sending its JSON."""
    head = yaml.dump(_head(call, items) + b"]}").removesuffix(b" []\n")
    parts, size = [head, b"\n" if items.objects else b" []\n"], 0
    for data in items.objects:
        parts.append(yaml.dump(b"[%b]" % data))
        size += len(parts[-1])
        if size >= _CHUNK:
            yield b"".join(parts)
            parts, size = [], 0
        await asyncio.sleep(0)
    yield b"".join(parts)


def _headers(media: str, reply: Reply) -> dict[str, str]:
    headers = {"content-type": media}
    if reply.warnings:
        headers["warning"] = ", ".join(_warnings(reply.warnings))
    return headers


def _warnings(texts: Sequence[str]) -> list[str]:
    """Warning values (RFC 7234, section 5.5), as many as a header line holds."""
    values: list[str] = []
    room = _LONGEST_WARNINGS
    for text in texts:
        plain = "".join(c if c.isprintable() else " " for c in text).encode("ascii", "backslashreplace").decode()
        escaped = plain[:256].replace("\\", "\\\\").replace('"', '\\"')
        room -= len(escaped)
        if room < 0:
            break
        values.append(f'299 - "{escaped}"')
    return values
