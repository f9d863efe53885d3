"""Lists are split where a chunk is full; every object is in one chunk, in order."""

from hypothesis import given
from hypothesis import strategies as st

from apiserver_stub.encode.representations import CHUNK, chunk_bounds


@given(st.lists(st.integers(1, CHUNK * 2), max_size=12))
def test_chunks_are_contiguous_and_end_when_full(sizes: list[int]) -> None:
    objects = [bytes(size) for size in sizes]
    bounds = list(chunk_bounds(objects))
    assert [at for start, end in bounds for at in range(start, end)] == list(range(len(objects)))
    for start, end in bounds:
        assert sum(sizes[start : end - 1]) < CHUNK
        assert sum(sizes[start:end]) >= CHUNK or end == len(sizes)
