"""`make bench`: every benchmark, or those that are named: the keys of `SUITES` and `LONG`."""

import asyncio
import sys
from collections.abc import Callable

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

SUITES: dict[str, Callable[[], list[Result]]] = {
    "api": lambda: asyncio.Runner(loop_factory=uvloop.new_event_loop).run(api.run()),
    "audit": lambda: asyncio.Runner(loop_factory=uvloop.new_event_loop).run(audit.run()),
    "forms": lambda: asyncio.Runner(loop_factory=uvloop.new_event_loop).run(forms.run()),
    "writes": lambda: asyncio.Runner(loop_factory=uvloop.new_event_loop).run(writes.run()),
    "admission": lambda: asyncio.Runner(loop_factory=uvloop.new_event_loop).run(admission.run()),
    "rbac": lambda: asyncio.Runner(loop_factory=uvloop.new_event_loop).run(rbac.run()),
    "nodes": lambda: asyncio.Runner(loop_factory=uvloop.new_event_loop).run(nodes.run()),
    "policies": lambda: asyncio.Runner(loop_factory=uvloop.new_event_loop).run(policies.run()),
    "webhooks": lambda: asyncio.Runner(loop_factory=uvloop.new_event_loop).run(webhooks.run()),
    "custom": lambda: asyncio.Runner(loop_factory=uvloop.new_event_loop).run(custom_resources.run()),
    "bodies": lambda: asyncio.Runner(loop_factory=uvloop.new_event_loop).run(bodies.run()),
    "controllers": lambda: asyncio.Runner(loop_factory=uvloop.new_event_loop).run(controllers.run()),
    "jobs": lambda: asyncio.Runner(loop_factory=uvloop.new_event_loop).run(jobs.run()),
    "namespaces": lambda: asyncio.Runner(loop_factory=uvloop.new_event_loop).run(namespaces.run()),
    "heartbeats": lambda: asyncio.Runner(loop_factory=uvloop.new_event_loop).run(heartbeats.run()),
    "certificates": lambda: asyncio.Runner(loop_factory=uvloop.new_event_loop).run(certificates.run()),
    "expressions": expressions.run,
    "fairness": lambda: asyncio.Runner(loop_factory=uvloop.new_event_loop).run(fairness.run()),
    "mixed": lambda: asyncio.Runner(loop_factory=uvloop.new_event_loop).run(mixed.run()),
    "workers": lambda: asyncio.Runner(loop_factory=uvloop.new_event_loop).run(workers.run()),
    "workloads": lambda: asyncio.Runner(loop_factory=uvloop.new_event_loop).run(workloads.run()),
    "memory": lambda: asyncio.Runner(loop_factory=uvloop.new_event_loop).run(memory.run()),
    "autoscalers": autoscalers.run,
    "scheduling": lambda: asyncio.Runner(loop_factory=uvloop.new_event_loop).run(scheduling.run()),
    "scale": lambda: asyncio.Runner(loop_factory=uvloop.new_event_loop).run(scale.run()),
    "start": start.run,
    "time": time_machine.measure,
    "stores": lambda: asyncio.Runner(loop_factory=uvloop.new_event_loop).run(stores.run()),
    "informer": informer.run,
}


LONG: dict[str, Callable[[], list[Result]]] = {
    "scale-full": lambda: asyncio.Runner(loop_factory=uvloop.new_event_loop).run(scale.run_full()),
}
"""Those that take minutes, and run only if they are named."""


def main() -> None:
    names = sys.argv[1:] or list(SUITES)
    suites = {**SUITES, **LONG}
    unknown = [name for name in names if name not in suites]
    if unknown:
        sys.exit(f"there is no benchmark named {unknown[0]}; there are {', '.join(suites)}")
    print(f"{'':34} {'measured':>18} {'ceiling':>20} {'ratio':>8}")
    for name in names:
        for result in suites[name]():
            print(result, flush=True)


if __name__ == "__main__":
    main()
