"""Deployment controller: claims the replica sets of a deployment and takes one rollout step per change."""

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from controller_manager.common.api.apps import DEPLOYMENTS, RECREATE, REPLICA_SETS, Deployment, ReplicaSet
from controller_manager.common.api.core import PODS, Pod, is_pod_terminal
from controller_manager.common.api.errors import ApiError
from controller_manager.common.api.resource import Key
from controller_manager.common.base import clock
from controller_manager.framework import (
    Change,
    Context,
    ControllerRefManager,
    ControllerSpec,
    For,
    Informers,
    Int32,
    Mapped,
    Options,
    PolicyRule,
    Requeue,
    TransportError,
    controller_key,
    flag,
    update_status,
)

from ..replica_set import COUNTS_TERMINATING
from ..shared.controlled import (
    BY_CONTROLLER,
    OwnedObjects,
    controlled_by,
    may_be_done,
    owners_concerned,
    selector_of,
    selects,
)
from .rollout import Rollout


class DeploymentOptions(Options):
    """Deployment controller"""

    concurrent_deployment_syncs: Int32 = flag(5, "Deployments that are worked on at the same time.", minimum=1)


# Observed: the deployment, the replica sets that it controls or may adopt, and their pods that have not ended.
# Decided:                                         Done:
#   gone                                           nothing
#   empty selector                                 a warning; nothing else
#   being deleted                                  status
#   paused                                         condition; proportional scaling; history; status
#   rollback requested                             template and annotations of that revision
#   scaled (annotation of its sets differs)        proportional scaling; status
#   Recreate: older sets have replicas             scale them to 0; status
#   Recreate: older pods have not ended            status
#   otherwise, no set has the present template     create it, if its name is free; continue
#   RollingUpdate: the table of `sizes.py`         one step of it; status
#   everything as desired                          delete sets beyond the history limit; status
# The newest set has the highest revision and copies the annotations of the deployment. Conditions report progress
# (`status.py`). Without progress the key is requeued at the deadline.


class DeploymentController:
    """Reconciles one deployment."""

    def __init__(self, context: Context, options: DeploymentOptions) -> None:
        self._client = context.client
        self._events = context.events
        self._deployments = context.informers.get(DEPLOYMENTS)
        self._replica_sets = context.informers.get(REPLICA_SETS)
        self._pods = context.informers.get(PODS)
        self._own = OwnedObjects(context.client, self._replica_sets, REPLICA_SETS)
        self._terminating = context.enabled(COUNTS_TERMINATING)

    async def reconcile(self, key: Key) -> Requeue | None:
        """Take the next step of deployment `key`."""
        deployment = self._deployments.get(key)
        if deployment is None:
            self._own.forget(key)
            return None
        selector = selector_of(deployment)
        if selector.empty:
            await self._refuse(deployment)
            return None
        manager = ControllerRefManager(self._client, DEPLOYMENTS, deployment)
        candidates = await self._own.claimable_by(deployment, selector)
        found = await manager.claim(REPLICA_SETS, candidates, lambda one: selector.matches(one.metadata.labels))
        rollout = Rollout(self._client, self._events, deployment, found, clock.utc_now(), self._has_pods)
        try:
            return await rollout.sync(terminating=self._terminating)
        except (ApiError, TransportError) as error:
            if may_be_done(error):
                self._own.doubt(deployment)
            raise
        finally:
            self._own.wrote(deployment, *rollout.written)

    async def _refuse(self, deployment: Deployment) -> None:
        """Warn about a deployment that selects everything, and update only its observed generation."""
        self._events.warning(
            deployment, "SelectingAll", "This deployment is selecting all pods. A non-empty selector is required."
        )
        status = replace(deployment.status, observed_generation=deployment.metadata.generation)
        await update_status(self._client, DEPLOYMENTS, deployment, replace(deployment, status=status))

    def _has_pods(self, replica_sets: Iterable[ReplicaSet]) -> bool:
        return any(
            not is_pod_terminal(pod) for one in replica_sets for pod in controlled_by(self._pods, one.metadata.uid)
        )


def deployment_of_pod(informers: Informers, change: Change[Pod]) -> Iterator[Key]:
    """Yield the Recreate deployment that waited for a pod, once the pod has ended."""
    ended = change.after is None or (is_pod_terminal(change.after) and not change.initial)
    if not ended or (change.before is not None and is_pod_terminal(change.before)):
        return
    key = controller_key(REPLICA_SETS, change.object)
    owner = informers.get(REPLICA_SETS).get(key) if key is not None else None
    found = controller_key(DEPLOYMENTS, owner) if owner is not None else None
    deployment = informers.get(DEPLOYMENTS).get(found) if found is not None else None
    if found is not None and deployment is not None and deployment.spec.strategy.type == RECREATE:
        yield found


SPECS = (
    ControllerSpec(
        name="deployment-controller",
        sharded_by=DEPLOYMENTS,
        queue="deployment",
        aliases=("deployment",),
        reconciler=DeploymentController,
        options=DeploymentOptions,
        workers=lambda options: options.concurrent_deployment_syncs,
        watches=(
            For(DEPLOYMENTS),
            Mapped(REPLICA_SETS, owners_concerned(DEPLOYMENTS, selects), indexes=BY_CONTROLLER),
            Mapped(PODS, deployment_of_pod, indexes=BY_CONTROLLER),
        ),
        rbac=(
            PolicyRule(groups=("apps",), resources=("deployments",), verbs=("get", "list", "watch", "update")),
            PolicyRule(groups=("apps",), resources=("deployments/status", "deployments/finalizers"), verbs=("update",)),
            PolicyRule(
                groups=("apps",),
                resources=("replicasets",),
                verbs=("get", "list", "watch", "create", "update", "patch", "delete"),
            ),
            PolicyRule(groups=("",), resources=("pods",), verbs=("list", "watch")),
        ),
    ),
)
