"""Negotiation of Accept headers: tables, and properties that hold for any header."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apiserver_stub.encode.accept import PARTIAL, TABLE, Representation, representations
from apiserver_stub.encode.serializers import CBOR, JSON, MEDIA, PROTOBUF, YAML, Serializer

OF_META, OF_BETA = "g=meta.k8s.io;v=v1", "g=meta.k8s.io;v=v1beta1"
V1, BETA = "meta.k8s.io/v1", "meta.k8s.io/v1beta1"
ALL = (*MEDIA, CBOR)


@pytest.mark.parametrize(
    ("accept", "first"),
    [
        ("", Representation(JSON)),
        ("  ", Representation(JSON)),
        ("*/*", Representation(JSON)),
        ("application/*", Representation(JSON)),
        ("Application/JSON; charset=utf-8", Representation(JSON)),
        ("application/yaml", Representation(YAML)),
        ("application/yaml, application/json", Representation(YAML)),
        ("application/yaml;q=0.5, application/json", Representation(JSON)),
        ("*/*, application/yaml", Representation(YAML)),
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", Representation(JSON)),
        ("application/vnd.kubernetes.protobuf, application/json", Representation(PROTOBUF)),
        ("application/json, application/vnd.kubernetes.protobuf", Representation(JSON)),
        ("application/vnd.kubernetes.protobuf;stream=watch", Representation(PROTOBUF)),
        ("application/json;stream=watch", Representation(JSON)),
        ("application/json;stream=other, application/yaml", Representation(YAML)),
        ("application/yaml;stream=watch, application/json", Representation(JSON)),
        ("application/cbor, application/json;q=0.9", Representation(CBOR)),
        (f"application/json;as=Table;{OF_META},application/json", Representation(JSON, TABLE, V1)),
        (f"application/json;as=Table;{OF_BETA},application/json", Representation(JSON, TABLE, BETA)),
        (f"application/yaml;as=Table;{OF_META}", Representation(YAML, TABLE, V1)),
        ("application/json;as=Table;v=v1;g=other,application/yaml", Representation(YAML)),
        ("application/json;as=Table;g=meta.k8s.io;v=v2,application/yaml", Representation(YAML)),
        ("application/json;as=Unheard;g=meta.k8s.io;v=v1,application/yaml", Representation(YAML)),
        ("application/json;v=v1,application/yaml", Representation(YAML)),
        (f"application/json;as=PartialObjectMetadataList;{OF_META}", Representation(JSON, PARTIAL, V1, many=True)),
        (
            f"application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;{OF_META}",
            Representation(PROTOBUF, PARTIAL, V1),
        ),
        ("application/json;pretty=1", Representation(JSON, pretty=True)),
        ("application/json;q=0, */*;q=0.1", Representation(JSON)),
        ("application/json;q=x", Representation(JSON)),
        ('application/json;as="Table";v="v1";g="meta.k8s.io"', Representation(JSON, TABLE, V1)),
    ],
)
def test_most_specific_media_type_is_preferred(accept: str, first: Representation) -> None:
    """API concepts, Headers and media types: several may be listed for fallback."""
    assert representations(accept, ALL)[0] == first


@pytest.mark.parametrize("accept", ["text/html", "application/json;q=0", ",;", "x", "application/cbor-seq"])
def test_unsupported_header_yields_no_representation(accept: str) -> None:
    assert representations(accept, ALL) == ()


@pytest.mark.parametrize(
    ("accept", "media"),
    [
        ("", [JSON]),
        ("*/*", [JSON, PROTOBUF, CBOR]),
        ("application/yaml", []),
        ("application/yaml, application/json", [JSON]),
        ("application/vnd.kubernetes.protobuf;stream=watch, application/json;stream=watch", [PROTOBUF, JSON]),
        ("application/cbor", [CBOR]),
        ("application/cbor-seq", [CBOR]),
    ],
)
def test_watch_offers_streaming_media_types(accept: str, media: list[Serializer]) -> None:
    assert [form.serializer for form in representations(accept, ALL, watching=True)] == media


def test_disabled_media_type_is_not_offered() -> None:
    assert representations("application/cbor", MEDIA) == ()
    assert [form.serializer for form in representations("*/*", MEDIA)] == [JSON, YAML, PROTOBUF]


@settings(max_examples=200)
@given(st.text(max_size=60) | st.text('aplicton/jsym*;=,q0.1 "', max_size=60), st.booleans())
def test_any_header_yields_at_most_50_representations(accept: str, watching: bool) -> None:
    found = representations(accept, ALL, watching)
    assert len(set(found)) == len(found) <= 50
    assert not watching or all(form.serializer.watch_type for form in found)


def test_only_the_beginning_of_a_long_header_is_read() -> None:
    assert representations("text/html," * 100_000 + "application/json", ALL) == ()
    assert representations("application/yaml," + "text/html," * 100_000, ALL) == (Representation(YAML),)


weights = st.floats(0.001, 1).map(lambda q: round(q, 3))
names = st.sampled_from([JSON.media_type, YAML.media_type, "text/html"])


@settings(max_examples=100)
@given(st.lists(st.tuples(names, weights), min_size=1, max_size=6))
def test_highest_weight_wins_and_first_among_equals(ranges: list[tuple[str, float]]) -> None:
    offered = [(media, q) for media, q in ranges if media != "text/html"]
    found = representations(", ".join(f"{media};q={q}" for media, q in ranges), ALL)
    assert [form.serializer.media_type for form in found[:1]] == [
        media for media, q in offered if q == max(weight for _, weight in offered)
    ][:1]
