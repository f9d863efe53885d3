"""Snapshots of a running server, restored under unused revisions, and checks, by the command line."""

# ruff: noqa: ASYNC240 - other processes and files are waited for on purpose

import asyncio
import json
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from apiserver_stub.common.flags import FLAGS
from apiserver_stub.process.build import build
from apiserver_stub.process.lifecycle import ApiServer
from controller_manager.common.api.wire import Certificate, Request
from controller_manager.common.base.runtime import Runtime

ADMIN = Certificate("admin", ("system:masters",))
CONFIGS = "/api/v1/namespaces/default/configmaps"
JUMP = 1_000_000_000


def command(*words: object) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-m", "apiserver_stub", *map(str, words)]
    return subprocess.run(program, capture_output=True, text=True, timeout=120, check=False)


def refusal(*words: object) -> str:
    done = command(*words)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.startswith(f"apiserver-stub {words[0]}: ")
    return done.stderr


def make(folder: Path) -> ApiServer:
    return build(FLAGS.parse([f"--data-dir={folder}", "--advertise-address=192.0.2.1"]), Runtime("test"))


async def ask(api: ApiServer, method: str, url: str, body: Any = None, **query: str) -> tuple[int, Any]:
    data = b"" if body is None else json.dumps(body).encode()
    answer = await api.handle(Request(method, url, tuple(query.items()), {}, data, ADMIN))
    assert isinstance(answer.body, bytes)
    return answer.status, json.loads(answer.body)


async def config(api: ApiServer, name: str) -> str:
    code, made = await ask(api, "POST", CONFIGS, {"metadata": {"name": name}})
    assert code == 201
    version: str = made["metadata"]["resourceVersion"]
    return version


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ApiServer]:
    api = make(tmp_path / "data")
    await api.start()
    yield api
    await api.stop()


@pytest.mark.e2e
async def test_snapshot_is_restored_under_later_revisions(server: ApiServer, tmp_path: Path) -> None:
    version = await config(server, "before")
    file, folder = tmp_path / "saved.db", tmp_path / "restored"
    busy = True

    async def write() -> None:
        number = 0
        while busy:
            await config(server, f"meanwhile-{number}")
            number += 1

    async with asyncio.TaskGroup() as group:
        writing = group.create_task(write())
        done = await asyncio.to_thread(command, "snapshot", f"--data-dir={tmp_path / 'data'}", f"--file={file}")
        busy = False
    assert writing.done()
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{file}: ")
    late = await config(server, "after")
    assert file.stat().st_mode & 0o777 == 0o600
    assert [name.name for name in tmp_path.iterdir() if name.name.startswith("saved")] == ["saved.db"]
    assert command("check", f"--file={file}").stdout.startswith(f"{file}: whole, ")
    assert command("check", f"--data-dir={tmp_path / 'data'}").returncode == 0

    done = command("restore", f"--file={file}", f"--data-dir={folder}")
    assert (done.returncode, done.stderr) == (0, "")
    api = make(folder)
    await api.start()
    names = [item["metadata"]["name"] for item in (await ask(api, "GET", CONFIGS))[1]["items"]]
    assert "before" in names
    assert "after" not in names
    assert api.store.revision > JUMP + int(version)
    assert int(await config(api, "new")) > JUMP
    for known in (version, late):
        assert (await ask(api, "GET", CONFIGS, resourceVersion=known, resourceVersionMatch="Exact"))[0] == 410
        assert (await ask(api, "GET", CONFIGS, watch="1", resourceVersion=known))[0] == 410
    await api.stop()
    assert "already exists" in refusal("restore", f"--file={file}", f"--data-dir={folder}")
    assert "already exists" in refusal("snapshot", f"--data-dir={folder}", f"--file={file}")


@pytest.mark.e2e
async def test_truncated_snapshot_is_not_restored(server: ApiServer, tmp_path: Path) -> None:
    for number in range(20):
        await config(server, f"c{number}")
    file, folder = tmp_path / "saved.db", tmp_path / "restored"
    assert command("snapshot", f"--data-dir={tmp_path / 'data'}", f"--file={file}").returncode == 0
    whole = file.read_bytes()
    connection = sqlite3.connect(file)
    connection.execute("DELETE FROM log WHERE key LIKE 'default/c7%'")
    connection.commit()
    connection.close()
    for work in (("check",), ("restore", f"--data-dir={folder}")):
        assert "has lost records: it holds" in refusal(*work, f"--file={file}")
    file.write_bytes(whole[: len(whole) // 2])
    assert "damaged" in refusal("restore", f"--data-dir={folder}", f"--file={file}")
    file.write_bytes(b"something else")
    assert "is damaged, in use or not a store" in refusal("check", f"--file={file}")
    file.unlink()
    assert f"there is no file {file}" in refusal("check", f"--file={file}")
    assert "there is no store" in refusal("snapshot", f"--data-dir={folder}", f"--file={file}")
    assert not file.exists()
    assert not folder.exists()


@pytest.mark.e2e
async def test_damaged_store_yields_no_snapshot(tmp_path: Path) -> None:
    api = make(tmp_path / "data")
    await api.start()
    await config(api, "a")
    await config(api, "b")
    await api.stop()
    connection = sqlite3.connect(tmp_path / "data" / "apiserver.db")
    connection.execute("DELETE FROM log WHERE key = 'default/a'")
    connection.commit()
    connection.close()
    file = tmp_path / "saved.db"
    assert "has lost records: 1 record up to" in refusal("check", f"--data-dir={tmp_path / 'data'}")
    assert "has lost records" in refusal("snapshot", f"--data-dir={tmp_path / 'data'}", f"--file={file}")
    assert not file.exists()
    assert not file.with_name("saved.db.part").exists()


@pytest.mark.e2e
async def test_cluster_is_exported_and_imported_while_running(server: ApiServer, tmp_path: Path) -> None:
    version = await config(server, "before")
    file, folder = tmp_path / "cluster.export", tmp_path / "moved"
    done = await asyncio.to_thread(command, "export", f"--data-dir={tmp_path / 'data'}", f"--file={file}")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{file}: ")
    late = await config(server, "after")
    assert file.stat().st_mode & 0o777 == 0o600

    done = command("import", f"--file={file}", f"--data-dir={folder}", "--revision-jump=1000")
    assert (done.returncode, done.stderr) == (0, "")
    api = make(folder)
    await api.start()
    names = [item["metadata"]["name"] for item in (await ask(api, "GET", CONFIGS))[1]["items"]]
    assert "before" in names
    assert "after" not in names
    assert int(await config(api, "new")) > int(version) + 1000
    for known in (version, late):
        assert (await ask(api, "GET", CONFIGS, resourceVersion=known, resourceVersionMatch="Exact"))[0] == 410
        assert (await ask(api, "GET", CONFIGS, watch="1", resourceVersion=known))[0] == 410
    await api.stop()
    file.write_bytes(file.read_bytes()[:-100])
    assert "is truncated after record" in refusal("import", f"--file={file}", f"--data-dir={tmp_path / 'new'}")
    assert not (tmp_path / "new").exists()


@pytest.mark.e2e
def test_commands_have_help_and_errors() -> None:
    assert "Command apiserver-stub restore:" in command("--help").stdout
    for name in ("snapshot", "restore", "export", "import", "check"):
        done = command(name, "--help")
        assert (done.returncode, f"apiserver-stub {name} [flags]" in done.stdout) == (0, True)
    done = command("restore")
    assert (done.returncode, "--file must name the file of the snapshot" in done.stderr) == (1, True)


@pytest.mark.e2e
def test_help_imports_no_server_modules() -> None:
    code = "import sys\nfrom apiserver_stub.process.main import main\nsys.argv = ['x', '--help']\n"
    code += "try:\n    main()\nexcept SystemExit:\n    print(sorted({'aiohttp', 'cryptography'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
