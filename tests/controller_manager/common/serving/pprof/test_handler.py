"""The pprof pages."""

import asyncio
import html.parser
import signal
from collections.abc import Callable
from typing import Any

import pytest

from controller_manager.common.api.errors import BadRequest, Conflict, NotFound
from controller_manager.common.api.wire import Request, Response
from controller_manager.common.base.tasks import Tasks
from controller_manager.common.serving.pprof import Contention, PprofPages, heap
from controller_manager.common.serving.pprof.heap import Census

Read = Callable[[bytes], Any]
UNITS = {
    "profile": ["samples/count", "cpu/nanoseconds"],
    "heap": ["alloc_objects/count", "alloc_space/bytes", "inuse_objects/count", "inuse_space/bytes"],
    "allocs": ["alloc_objects/count", "alloc_space/bytes", "inuse_objects/count", "inuse_space/bytes"],
    "goroutine": ["goroutine/count"],
    "threadcreate": ["threadcreate/count"],
    "block": ["contentions/count", "delay/nanoseconds"],
    "mutex": ["contentions/count", "delay/nanoseconds"],
    "trace": ["stretches/count", "time/nanoseconds"],
}


def describe(task: str) -> dict[str, str]:
    return {"task": task}


@pytest.fixture
def pages() -> PprofPages:
    return PprofPages(
        "the-manager", ["the-manager", "--master=https://a:b@c"], describe, Contention(describe, on=False)
    )


@pytest.fixture(autouse=True)
def small_census(monkeypatch) -> None:
    """Replaces the census, because a test process has millions of objects; `test_census` tests a real one."""
    found = Census()
    found.count(["a", "b", 1])

    async def take_census() -> Census:
        return found

    monkeypatch.setattr(heap, "take_census", take_census)


async def get(pages: PprofPages, name: str, **query: str) -> Response:
    return await pages.answer(Request("GET", f"/debug/pprof/{name}", tuple(query.items())))


def content(response: Response) -> bytes:
    assert isinstance(response.body, bytes)
    return response.body


@pytest.mark.parametrize("name", UNITS)
@pytest.mark.parametrize("query", [{}, {"seconds": "1", "gc": "1"}])
@pytest.mark.virtual
async def test_every_profile_is_a_valid_pprof_file(pages: PprofPages, read: Read, name: str, query: dict[str, str]):
    began = asyncio.get_running_loop().time()
    response = await get(pages, name, **query)
    took = asyncio.get_running_loop().time() - began
    found = read(content(response))
    text = found.string_table
    assert [f"{text[one.type]}/{text[one.unit]}" for one in found.sample_type] == UNITS[name]
    assert response.headers["content-type"] == "application/octet-stream"
    assert response.headers["content-disposition"] == f'attachment; filename="{name}"'
    asked = int(query.get("seconds", {"profile": 30, "trace": 1}.get(name, 0)))
    assert took == pytest.approx(asked, abs=0.1)
    assert found.duration_nanos == pytest.approx(asked * 1e9, abs=1e8)
    assert found.time_nanos > 1_700_000_000 * 10**9


@pytest.mark.parametrize("name", UNITS)
@pytest.mark.virtual
async def test_every_profile_is_available_as_text(pages: PprofPages, name: str):
    response = await get(pages, name, debug="1")
    assert response.headers["content-type"] == "text/plain; charset=utf-8"
    assert content(response).decode().startswith(f"{name} profile: total ")


async def test_index_links_to_every_profile(pages: PprofPages):
    links: list[str] = []

    class Links(html.parser.HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            links.extend(value for name, value in attrs if name == "href" and value)

    page = content(await get(pages, "")).decode()
    Links().feed(page)
    assert {link.partition("?")[0] for link in links} == {*UNITS, "cmdline"}
    assert "goroutine?debug=2" in links
    assert "the-manager" in page
    assert f'<td>{len(asyncio.all_tasks())}</td><td><a href="goroutine">' in page


async def test_cmdline_and_symbol_pages(pages: PprofPages):
    assert content(await get(pages, "cmdline")) == b"the-manager\0--master=https://<masked>@c"
    assert content(await get(pages, "symbol")) == b"num_symbols: 0\n"


@pytest.mark.parametrize("name", ["nothing", "heap/", "../metrics", "heap/heap", "HEAP"])
async def test_unknown_profile_is_not_found(pages: PprofPages, name: str):
    with pytest.raises(NotFound, match=r"^there is no profile .*; there are allocs, block, "):
        await get(pages, name)


async def test_excessive_seconds_are_refused_before_start(pages: PprofPages):
    with pytest.raises(BadRequest):
        await get(pages, "profile", seconds="121")
    assert signal.getitimer(signal.ITIMER_PROF)[0] == 0


@pytest.mark.parametrize(
    ("first", "second", "together"),
    [
        ("profile", "trace", False),
        ("heap", "allocs", False),
        ("block", "block", False),
        ("goroutine", "goroutine", False),
        ("profile", "heap", True),
        ("goroutine", "block", True),
    ],
)
@pytest.mark.virtual
async def test_concurrent_profiles_of_one_kind_conflict(pages: PprofPages, first: str, second: str, together: bool):
    async with Tasks() as tasks:
        running = tasks.start(get(pages, first, seconds="120"), name="first")
        await asyncio.sleep(1)
        if together:
            assert (await get(pages, second, seconds="1")).status == 200
        else:
            with pytest.raises(Conflict, match=r"another profile of .* is being taken: try again when it has ended"):
                await get(pages, second, seconds="1")
        running.cancel()
        await asyncio.wait((running,))
        assert (await get(pages, second, seconds="1")).status == 200


@pytest.mark.virtual
async def test_values_of_variables_are_never_shown(pages: PprofPages):
    async def hold(secret: str) -> None:
        await asyncio.sleep(600 + len(secret))

    async with Tasks() as tasks:
        tasks.start(hold("hunter2"), name="holds")
        for name in (*UNITS, ""):
            for debug in ("1", "2"):
                assert b"hunter2" not in content(await get(pages, name, debug=debug, seconds="1"))
