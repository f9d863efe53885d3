"""OpenAPI of aggregated servers: listed and proxied in version 3, merged in version 2."""

from typing import Any

from controller_manager.common.api.wire import Request, Response

ROOT = "/apis/x.example.com/v1"
NAME = ROOT.removeprefix("/")
SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
SCHEMA = {"$ref": "#/definitions/com.example.Foo"}
OPERATION = {"operationId": "readFoo", "responses": {"200": {"description": "OK", "schema": SCHEMA}}}
V2 = {
    "swagger": "2.0",
    "paths": {f"{ROOT}/foos/{{name}}": {"get": OPERATION}, "/version/": {"get": OPERATION}},
    "definitions": {
        "com.example.Foo": {"type": "object", "properties": {"metadata": {"$ref": f"#/definitions/{META}"}}},
        META: {"type": "object", "properties": {"name": {"type": "string"}}},
    },
}


class Extension:
    """A server that serves OpenAPI documents and counts uncached reads."""

    def __init__(self, reply: Any, resources: Any) -> None:
        self._reply, self._resources = reply, resources
        self.read: list[str] = []
        self.index: Any = {"paths": {NAME: {"serverRelativeURL": f"/openapi/v3/{NAME}?hash=ABC"}, "version": {}}}
        self.document: bytes | None = None

    async def __call__(self, request: Request) -> Response:
        if request.path == ROOT:
            return self._reply(200, self._resources)
        if request.path.startswith("/openapi/"):
            self.read.append(f"{request.path} {request.headers['x-remote-user']}")
        if request.path == "/openapi/v3" and self.index is not None:
            return self._reply(200, self.index)
        if request.path == f"/openapi/v3/{NAME}":
            return self._reply(200, {"openapi": "3.0.0", "query": dict(request.query)})
        if request.path == "/openapi/v2" and self.document is not None:
            return Response(200, {"content-type": "application/json"}, self.document)
        if request.path == "/openapi/v2":
            if request.headers.get("if-none-match") == '"1"':
                return Response(304)
            return self._reply(200, V2, etag='"1"')
        return self._reply(404, {})


async def test_v3_documents_are_listed_and_proxied(front: Any, reply: Any, resources: Any) -> None:
    extension = Extension(reply, resources)
    await front.aggregate(extension)
    found = await front.eventually(lambda: front("GET", "/openapi/v3"), lambda found: NAME in found[1]["paths"])
    paths = found[1]["paths"]
    assert paths[NAME] == {"serverRelativeURL": f"/openapi/v3/{NAME}?hash=ABC"}
    assert "hash=" in paths["version"]["serverRelativeURL"]  # the ETag of the server in front
    assert (await front("GET", paths[NAME]["serverRelativeURL"]))[1] == {"openapi": "3.0.0", "query": {"hash": "ABC"}}
    assert extension.read[-1] == f"/openapi/v3/{NAME} admin"
    assert extension.read[0] == "/openapi/v3 system:aggregator"
    assert (await front("GET", "/openapi/v3/apis/x.example.com/v2"))[0] == 404
    await front("DELETE", f"{SERVICES}/v1.x.example.com")
    assert NAME not in (await front("GET", "/openapi/v3"))[1]["paths"]
    assert (await front("GET", f"/openapi/v3/{NAME}"))[0] == 404


async def test_v2_documents_are_merged(front: Any, reply: Any, resources: Any) -> None:
    before = (await front.send("GET", "/openapi/v2")).headers["etag"]
    extension = Extension(reply, resources)
    await front.aggregate(extension)
    path = f"{ROOT}/foos/{{name}}"
    found = (await front.eventually(lambda: front("GET", "/openapi/v2"), lambda found: path in found[1]["paths"]))[1]
    assert found["paths"][path]["get"]["operationId"] == "readFoo"
    own = found["definitions"][META]
    assert "annotations" in own["properties"]
    foo = found["definitions"]["com.example.Foo"]
    assert foo["properties"]["metadata"] == {"$ref": f"#/definitions/{META}_v2"}
    assert list(found["definitions"][f"{META}_v2"]["properties"]) == ["name"]
    after = await front.send("GET", "/openapi/v2", accept="application/com.github.proto-openapi.spec.v2.v1.0+protobuf")
    assert after.status == 200
    assert b"readFoo" in after.body
    assert after.headers["etag"] != before
    await front("DELETE", f"{SERVICES}/v1.x.example.com")
    assert path not in (await front("GET", "/openapi/v2"))[1]["paths"]


async def test_v2_only_documents_are_served_as_v3(front: Any, reply: Any, resources: Any) -> None:
    extension = Extension(reply, resources)
    extension.index = None
    await front.aggregate(extension)
    found = await front.eventually(lambda: front("GET", "/openapi/v3"), lambda found: NAME in found[1]["paths"])
    code, document = await front("GET", found[1]["paths"][NAME]["serverRelativeURL"])
    assert (code, list(document["paths"])) == (200, [f"{ROOT}/foos/{{name}}"])
    assert f"/openapi/v3/{NAME} admin" not in extension.read


async def test_malformed_or_oversized_documents_are_skipped(front: Any, reply: Any, resources: Any) -> None:
    extension = Extension(reply, resources)
    extension.document, extension.index = b'{"paths": {"a": "' + b"x" * (5 << 20) + b'"}}', {"paths": {NAME: 1}}
    await front.aggregate(extension)
    await front.eventually(lambda: front("GET", "/openapi/v3"), lambda _: bool(extension.read))
    assert NAME not in (await front("GET", "/openapi/v3"))[1]["paths"]
    assert (await front("GET", "/openapi/v2"))[0] == 200
    assert (await front("GET", f"/openapi/v3/{NAME}"))[0] == 404
