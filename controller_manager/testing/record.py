"""`python -m controller_manager.testing record`: records the watch events of a real cluster to a file."""

import asyncio
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec

from controller_manager.common.api.model import Object
from controller_manager.common.api.resource import Resource
from controller_manager.common.base.clock import monotonic, utc_now
from controller_manager.common.base.errors import CannotStart
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.base.tasks import Tasks
from controller_manager.common.options.command_line import command_line
from controller_manager.common.options.flag import Options, flag
from controller_manager.common.options.parse import FlagSet
from controller_manager.common.options.types import Duration, StringList
from controller_manager.common.transport.kubeconfig import from_flags
from controller_manager.framework.cache.change import Change
from controller_manager.framework.cache.informers import Informers
from controller_manager.framework.client.client import Client
from controller_manager.framework.client.discovery import Discovery, resources
from controller_manager.testing.recording import RecordedResource, RecordingWriter, Type, redacted

_WATCHED = frozenset({"list", "watch"})
# Skipped unless named: secret data, and frequent objects that do not affect workload controllers.
_UNASKED = frozenset({"secrets", "events", "events.events.k8s.io", "leases.coordination.k8s.io"})
_LONGEST_START = 60.0  # maximum seconds for the first listings


class RecordOptions(Options):
    """Recording"""

    kubeconfig: str = flag("", "Client configuration of the cluster.", metavar="file")
    output: str = flag("recording.jsonl.gz", "File that is written.", metavar="file")
    duration: Duration = flag("1m", "How long to record.", minimum=0)
    resources: StringList = flag(
        (),
        "What to record, like pods or deployments.apps; by default everything but secrets, events and leases. Values "
        "of secrets are left out even if they are named.",
    )
    namespace: str = flag("", "Record objects of this namespace alone.")
    selector: str = flag("", "Record objects with these labels alone.")
    config_map_data: bool = flag(False, "Keep the values of config maps too.")


def main(arguments: Sequence[str]) -> None:
    """Record with the given command-line arguments. Exits the process on errors."""
    summary = "Record the watch events of a cluster for replay in tests."
    options = command_line("python -m controller_manager.testing record", summary, FlagSet(RecordOptions), arguments)[
        RecordOptions
    ]
    try:
        asyncio.run(_record(options))
    except CannotStart as error:
        sys.stderr.write(f"record: {error}\n")
        sys.exit(1)


async def _record(options: RecordOptions) -> None:
    from controller_manager.common.transport.http_transport import HttpTransport  # --help does not load it

    transport = HttpTransport(from_flags(options.kubeconfig))
    try:
        rows = await record(Client(transport), options)
    finally:
        await transport.close()
    sys.stdout.write(f"{options.output}: {rows} rows\n")


async def record(client: Client, options: RecordOptions) -> int:
    """Record a cluster; return the number of rows. Raises `CannotStart` if a named resource is not served."""
    found = await resources(client)
    chosen, left_out = choose(found, options)
    recorded = {one.name: RecordedResource(one.group, one.version, one.plural) for one in chosen}
    began = monotonic()
    with RecordingWriter(Path(options.output), utc_now(), list(recorded.values()), left_out) as writer:
        informers = Informers(client, Runtime("recorder"))

        def note(resource: RecordedResource, change: Change[Object]) -> None:
            for kind, tree in _events(change):
                kept = redacted(resource, tree, config_map_data=options.config_map_data)
                writer.add(monotonic() - began, kind, resource, kept)

        for one in chosen:
            namespace = options.namespace if one.namespaced else ""
            informer = informers.get(one, namespace=namespace, labels=options.selector)
            informer.subscribe(partial(note, recorded[one.name]))
        async with Tasks() as tasks:
            tasks.start(informers.run(), name="informers")
            with suppress(TimeoutError):
                async with asyncio.timeout(_LONGEST_START):
                    for informer in informers:
                        await informer.synced()
            await asyncio.sleep(max(0.0, options.duration - (monotonic() - began)))
        return writer.rows


def choose(found: Discovery, options: RecordOptions) -> tuple[list[Resource[Object]], list[str]]:
    """Return the resources to record, and the names of the other served resources. Raises `CannotStart`."""
    chosen: list[Resource[Object]] = []
    left_out: list[str] = []
    for one in found.preferred():
        resource = one.resource
        if not one.verbs >= _WATCHED:
            continue
        asked = resource.name in options.resources if options.resources else resource.name not in _UNASKED
        outside = options.namespace and not resource.namespaced and resource.name not in options.resources
        if asked and not outside:
            chosen.append(
                Resource(resource.group, resource.version, resource.plural, resource.kind, resource.namespaced, Object)
            )
        else:
            left_out.append(resource.name)
    if lacking := [name for name in options.resources if name not in {one.name for one in chosen}]:
        raise CannotStart(f"--resources: the cluster serves no {', '.join(lacking)} that can be watched")
    return chosen, left_out


def _events(change: Change[Object]) -> Iterator[tuple[Type, dict[str, object]]]:
    """Yield the row of a change. A resync has no row; a missed deletion is recorded as DELETED."""
    after, before = change.after, change.before
    if after is None:
        if before is not None:
            yield "DELETED", msgspec.json.decode(before.raw)
    elif change.initial and before is None:
        yield "LISTED", msgspec.json.decode(after.raw)
    elif before is None:
        yield "ADDED", msgspec.json.decode(after.raw)
    elif before.metadata.resource_version != after.metadata.resource_version:
        yield "MODIFIED", msgspec.json.decode(after.raw)
