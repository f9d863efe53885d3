"""Random numbers are drawn from the system in advance and never repeat."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from controller_manager.common.base.random import SystemRandom


@pytest.mark.parametrize("bits", [1, 24, 127, 128, 129, 300])
def test_random_numbers_have_the_requested_bits(bits: int) -> None:
    source = SystemRandom()
    drawn = [source.getrandbits(bits) for _ in range(1000)]
    assert max(drawn) < 1 << bits
    assert max(drawn).bit_length() == bits
    assert sum(number & 1 for number in drawn) > 300


def test_random_numbers_never_repeat_across_threads() -> None:
    source = SystemRandom()
    with ThreadPoolExecutor(4) as threads:
        drawn = list(threads.map(lambda _: source.getrandbits(128), range(4000)))
    assert len(set(drawn)) == 4000


def test_system_randomness_is_read_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    usual = os.urandom
    monkeypatch.setattr(os, "urandom", lambda size: asked.append(size) or usual(size))
    source = SystemRandom()
    for _ in range(300):
        source.getrandbits(24)
    assert len(asked) == 2


def test_secrets_are_read_from_system_directly(monkeypatch: pytest.MonkeyPatch) -> None:
    source = SystemRandom()
    source.getrandbits(128)
    pool = list(source._drawn)
    source.randbytes(16)
    assert source._drawn == pool


def test_forked_process_has_its_own_randomness() -> None:
    source = SystemRandom()
    source.getrandbits(128)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, source.getrandbits(128).to_bytes(16))
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    number = int.from_bytes(os.read(read, 16))
    os.close(read)
    os.close(write)
    assert number not in {source.getrandbits(128) for _ in range(255)}
