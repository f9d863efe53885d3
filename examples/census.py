"""A controller that works by time: it counts the pods of each namespace, with flags, metrics and logs of its own."""

import asyncio
from pathlib import Path

from controller_manager.framework import (
    NAMESPACES,
    NODES,
    PODS,
    STRATEGIC_MERGE_PATCH,
    Add,
    ConfigError,
    Context,
    ControllerSpec,
    Counters,
    Duration,
    Family,
    Gauges,
    Histograms,
    Int32,
    Key,
    Logger,
    Mapped,
    Options,
    PolicyRule,
    Priority,
    Quantity,
    Reconciler,
    Source,
    StringList,
    StringMap,
    Watch,
    flag,
    in_parallel,
    main,
)


class CensusOptions(Options):
    """Census"""

    period: Duration = flag("1m", "Time between two counts.", minimum=1)
    workers: Int32 = flag(2, "Number of namespaces that are counted at the same time.", minimum=1)
    largest_manifest: Quantity = flag("64Ki", "Size from which a pod counts as large.")
    skipped_namespaces: StringList = flag(("kube-system",), "Namespaces that are not counted.")
    node_labels: StringMap = flag({}, "Labels to set on every node.")
    census_file: str = flag("", "Path of an existing file that the last counts are written to.")


COUNTS = Family("census_counts_total", "Number of counts, by namespace.", "counter", ("namespace",))
PRESENT = Family("census_pods", "Number of pods at the last count, by namespace.", "gauge", ("namespace",))
SIZES = Family("census_pod_bytes", "Size of pods in bytes.", "histogram", buckets=(1e3, 1e4, 1e5, 1e6))


class Census:
    """A reconciler that is a source too: `run` adds a key per namespace in each period."""

    def __init__(self, context: Context, options: CensusOptions) -> None:
        self._client, self._options = context.client, options
        self._log: Logger = context.log
        self._namespaces, self._nodes = context.informers.get(NAMESPACES), context.informers.get(NODES)
        self._pods = context.informers.get(PODS)
        registry = context.runtime.registry
        self._counts, self._present = Counters(COUNTS, registry), Gauges(PRESENT, registry)
        self._sizes = Histograms(SIZES, registry)

    async def run(self, add: Add) -> None:
        labels = {"metadata": {"labels": dict(self._options.node_labels)}}
        nodes = [Key("", node.metadata.name) for node in self._nodes.list()]
        await in_parallel(nodes, lambda key: self._client.patch(NODES, key, labels, STRATEGIC_MERGE_PATCH), at_once=8)
        while True:
            for namespace in self._namespaces.list():
                add(namespace.metadata.name, "census", Priority.LOW)
            await asyncio.sleep(self._options.period)

    async def reconcile(self, namespace: str) -> None:
        if namespace in self._options.skipped_namespaces:
            return
        pods = self._pods.list(namespace)
        large = sum(len(pod.raw) >= self._options.largest_manifest for pod in pods)
        for pod in pods:
            self._sizes.observe(len(pod.raw))
        self._counts.add(namespace)
        self._present.set(len(pods), namespace)
        self._log.info("counted pods", namespace=namespace, pods=len(pods), large=large)


def check(options: CensusOptions) -> None:
    """Called when the process starts; the process does not start if it raises."""
    if options.census_file and not Path(options.census_file).exists():
        raise ConfigError(f"--census-file: no such file: {options.census_file}")


def is_source(reconciler: Reconciler[str]) -> bool:
    return isinstance(reconciler, Source)


WATCHES: tuple[Watch, ...] = (Mapped(NAMESPACES), Mapped(NODES), Mapped(PODS))  # caches only: no change wakes a key
RULES = (
    PolicyRule(groups=("",), resources=("namespaces", "nodes", "pods"), verbs=("list", "watch")),
    PolicyRule(groups=("",), resources=("nodes",), verbs=("patch",)),
)
SPECS = (
    ControllerSpec(
        name="census-controller",
        reconciler=Census,
        options=CensusOptions,
        watches=WATCHES,
        workers=lambda options: options.workers,
        check=check,
        rbac=RULES,
    ),
)

if __name__ == "__main__":
    main(SPECS, name="census")
