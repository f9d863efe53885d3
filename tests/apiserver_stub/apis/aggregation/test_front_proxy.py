"""Headers of proxied requests: the user that is added, and the caller's headers that are removed."""

from apiserver_stub.apis.aggregation.front_proxy import forwarded
from apiserver_stub.webhooks.relay import returned
from controller_manager.common.api.wire import Request
from controller_manager.common.serving.authentication import RequestHeaderConfig, User

ANN = User("ann", "42", ("dev", "ops"), {"example.com/Tea Time%": ("a, b", "c")})
READ = RequestHeaderConfig((), ("X-Remote-User",), ("X-Remote-Uid",), ("X-Remote-Group",), ("X-Remote-Extra-",))


def test_server_behind_proxy_reads_the_same_user() -> None:
    passed = forwarded(Request("GET", "/apis/x/v1"), ANN, "1", "ext:443")
    found = READ.user_of(passed)
    assert found is not None
    assert (found.name, found.uid, found.groups) == ("ann", "42", ("dev", "ops"))
    assert found.extra == {"example.com/tea time%": ("a, b", "c")}
    assert passed.values("x-remote-extra-example.com%2ftea%20time%25") == ("a, b", "c")


def test_caller_identity_headers_are_not_forwarded() -> None:
    own = {
        "authorization": "Bearer secret", "x-remote-user": "root", "x-remote-uid": "0", "x-remote-group": "masters",
        "x-remote-extra-scope": "all", "impersonate-user": "root", "impersonate-extra-a": "b", "audit-id": "2",
        "host": "front", "connection": "keep-alive, X-Hop", "x-hop": "1", "transfer-encoding": "chunked",
        "te": "trailers", "upgrade": "h2c", "expect": "100-continue", "accept": "a/b", "cookie": "c=d",
    }  # fmt: skip
    request = Request(
        "GET", "/apis/x/v1", (("a", "b"),), own, repeated={"x-remote-group": ("a", "b"), "accept": ("a",)}
    )
    passed = forwarded(request, User("joe"), "1", "ext:443")
    assert passed.headers == {
        "accept": "a/b", "cookie": "c=d", "audit-id": "1", "x-forwarded-host": "ext:443", "x-forwarded-proto": "https",
        "x-forwarded-uri": "/apis/x/v1", "x-remote-user": "joe",
    }  # fmt: skip
    assert passed.repeated == {"accept": ("a",)}
    assert (passed.method, passed.path, passed.query) == ("GET", "/apis/x/v1", (("a", "b"),))


def test_proxy_headers_and_websocket_tokens_are_not_forwarded() -> None:
    proxies = RequestHeaderConfig((), ("X-Who",), ("X-Which",), ("X-Teams",), ("X-More-",))
    own = {
        "x-who": "root", "x-which": "0", "x-teams": "masters", "x-more-scope": "all", "x-whose": "kept",
        "sec-websocket-protocol": "base64url.bearer.authorization.k8s.io.c2VjcmV0, v4.channel.k8s.io, v5",
    }  # fmt: skip
    request = Request("GET", "/apis/x/v1", (), own, repeated={"sec-websocket-protocol": ("a", "b")})
    passed = forwarded(request, User("joe"), "1", "ext:443", proxies)
    shown = {"audit-id", "x-forwarded-host", "x-forwarded-proto", "x-forwarded-uri", "x-remote-user"}
    kept = {name: value for name, value in passed.headers.items() if name not in shown}
    assert kept == {"x-whose": "kept", "sec-websocket-protocol": "v4.channel.k8s.io, v5"}
    assert passed.repeated == {}


def test_hop_by_hop_response_headers_are_removed() -> None:
    own = {"connection": "close, x-hop", "x-hop": "1", "transfer-encoding": "chunked", "content-length": "9"}
    assert returned({**own, "content-type": "a/b", "etag": "c"}) == {"content-type": "a/b", "etag": "c"}
