"""The ceilings: a bare aiohttp server with the same loop and TLS, answering from prepared bytes; runs as a process.

`GET /object` answers one body; `GET /list` streams the body of a list; `POST /` commits its body in a group to
SQLite, as the store does; `GET /watch` keeps the response open, and `POST /burst` writes lines to all that are open.
"""

import argparse
import asyncio
import sqlite3
import ssl
from pathlib import Path

import uvloop
from aiohttp import web

CHUNK = 256 * 1024


class GroupCommit:
    """Appends bodies to a log, all that wait in one transaction."""

    def __init__(self, path: str) -> None:
        self._database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "locking_mode=EXCLUSIVE"):
            self._database.execute(f"PRAGMA {pragma}")
        self._database.execute("CREATE TABLE log (revision INTEGER PRIMARY KEY, data BLOB)")
        self._waiting: list[tuple[bytes, asyncio.Future[None]]] = []
        self._wake = asyncio.Event()

    async def append(self, data: bytes) -> None:
        done = asyncio.get_running_loop().create_future()
        self._waiting.append((data, done))
        self._wake.set()
        await done

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._wake.wait()
            self._wake.clear()
            group, self._waiting = self._waiting, []
            await loop.run_in_executor(None, self._write, [data for data, _ in group])
            for _, done in group:
                done.set_result(None)

    def _write(self, bodies: list[bytes]) -> None:
        self._database.execute("BEGIN")
        self._database.executemany("INSERT INTO log (data) VALUES (?)", [(body,) for body in bodies])
        self._database.execute("COMMIT")


async def serve(port: int, cert: str, key: str, folder: Path) -> None:
    single, listing = (folder / "object.json").read_bytes(), (folder / "list.json").read_bytes()
    line = (folder / "line.json").read_bytes()
    commits = GroupCommit(str(folder / f"ceiling-{port}.db"))
    watchers: set[web.StreamResponse] = set()

    async def get(_: web.Request) -> web.Response:
        return web.Response(body=single, content_type="application/json")

    async def list_(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "application/json"})
        await response.prepare(request)
        for start in range(0, len(listing), CHUNK):
            await response.write(listing[start : start + CHUNK])
        await response.write_eof()
        return response

    async def create(request: web.Request) -> web.Response:
        body = await request.read()
        await commits.append(body)
        return web.Response(body=body, status=201, content_type="application/json")

    async def watch(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "application/json"})
        await response.prepare(request)
        watchers.add(response)
        try:
            await asyncio.Event().wait()
        finally:
            watchers.discard(response)
        return response

    async def burst(request: web.Request) -> web.Response:
        for _ in range(int(request.query["count"])):
            for response in tuple(watchers):
                await response.write(line)
        return web.Response()

    application = web.Application(client_max_size=4 << 20)
    application.add_routes(
        [
            web.get("/object", get),
            web.get("/list", list_),
            web.post("/create", create),
            web.get("/watch", watch),
            web.post("/burst", burst),
        ]
    )
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(cert, key)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls).start()
    await commits.run()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--cert", required=True)
    parser.add_argument("--key", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    given = parser.parse_args()
    uvloop.run(serve(given.port, given.cert, given.key, given.folder))


if __name__ == "__main__":
    main()
