"""The benchmarks by name, each measured in a process of its own, so that no figure depends on which ran before."""

import asyncio
import multiprocessing
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Coroutine
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import uvloop

from benchmarks import (
    admission,
    api,
    audit,
    autoscalers,
    bodies,
    certificates,
    controllers,
    custom_resources,
    expressions,
    fairness,
    forms,
    heartbeats,
    informer,
    jobs,
    memory,
    mixed,
    namespaces,
    nodes,
    policies,
    rbac,
    scale,
    scheduling,
    start,
    stores,
    time_machine,
    webhooks,
    workers,
    workloads,
    writes,
)
from benchmarks.harness import Result

Suite = Callable[[], list[Result] | Coroutine[Any, Any, list[Result]]]

SUITES: dict[str, Suite] = {
    "api": api.run,
    "audit": audit.run,
    "forms": forms.run,
    "writes": writes.run,
    "admission": admission.run,
    "rbac": rbac.run,
    "nodes": nodes.run,
    "policies": policies.run,
    "webhooks": webhooks.run,
    "custom": custom_resources.run,
    "bodies": bodies.run,
    "controllers": controllers.run,
    "jobs": jobs.run,
    "namespaces": namespaces.run,
    "heartbeats": heartbeats.run,
    "certificates": certificates.run,
    "expressions": expressions.run,
    "fairness": fairness.run,
    "mixed": mixed.run,
    "workers": workers.run,
    "workloads": workloads.run,
    "memory": memory.run,
    "autoscalers": autoscalers.run,
    "scheduling": scheduling.run,
    "scale": scale.run,
    "start": start.run,
    "time": time_machine.run,
    "stores": stores.run,
    "informer": informer.run,
}

LONG: dict[str, Suite] = {"scale-full": scale.run_full}
"""Those that take minutes, and run only if they are named."""


def measure(name: str) -> list[Result]:
    """Measure in another process; what it and its children log is shown only if it fails."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        log.touch()
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, mp_context=spawn, initializer=_log_to, initargs=(log,)) as process:
            try:
                return process.submit(_measure, name).result()
            except BaseException:
                with log.open() as lines:
                    shutil.copyfileobj(lines, sys.stderr)
                raise


def _log_to(path: Path) -> None:
    with path.open("w") as log:
        os.dup2(log.fileno(), sys.stderr.fileno())


def _measure(name: str) -> list[Result]:
    found = {**SUITES, **LONG}[name]()
    return found if isinstance(found, list) else asyncio.Runner(loop_factory=uvloop.new_event_loop).run(found)
