"""A controller that keeps as many pods as a ReplicaSet asks for."""

from functools import partial

from controller_manager.framework import (
    PODS,
    Context,
    ControllerRefManager,
    ControllerSpec,
    For,
    Key,
    Model,
    Object,
    Options,
    Owned,
    PodControl,
    PodTemplateSpec,
    PolicyRule,
    Resource,
    is_pod_terminal,
    pod_from_template,
    slow_start,
)


class SetSpec(Model):
    replicas: int = 1
    template: PodTemplateSpec = PodTemplateSpec()


class ReplicaSet(Object):
    spec: SetSpec = SetSpec()


SETS = Resource("apps", "v1", "replicasets", "ReplicaSet", True, ReplicaSet)


class Replicator:
    def __init__(self, context: Context, _: Options) -> None:
        self._client, self._control = context.client, PodControl(context.client, context.events)
        self._sets, self._pods = context.informers.get(SETS), context.informers.get(PODS)

    async def reconcile(self, key: Key) -> None:
        owner = self._sets.get(key)
        if owner is None or owner.metadata.deletion_timestamp is not None:
            return
        wanted, template = owner.spec.replicas, owner.spec.template
        labels = (template.metadata.labels or {}).items()
        pods = await ControllerRefManager(self._client, SETS, owner).claim(
            PODS, self._pods.list(key.namespace), lambda pod: labels <= (pod.metadata.labels or {}).items()
        )
        active = [pod for pod in pods if not is_pod_terminal(pod) and pod.metadata.deletion_timestamp is None]
        new = [pod_from_template(SETS, owner, template)] * (wanted - len(active))
        created = await slow_start(new, partial(self._control.create, owner))
        deleted = await slow_start(active[wanted:], partial(self._control.delete, owner))
        for error in filter(None, (created.error, deleted.error)):
            raise error


RULES = (
    PolicyRule(groups=("apps",), resources=("replicasets",), verbs=("get", "list", "watch")),
    PolicyRule(groups=("",), resources=("pods",), verbs=("list", "watch", "create", "patch", "delete")),
)
SPECS = (
    ControllerSpec(
        name="replicator", reconciler=Replicator, options=Options, watches=(For(SETS), Owned(PODS, SETS)), rbac=RULES
    ),
)
