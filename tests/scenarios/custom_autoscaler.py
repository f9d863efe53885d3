"""Recorded steps on an autoscaler whose target is a custom resource, and the observed state after each step."""

from tests.scenarios.batch_steps import SendRequest, Tree

GROUP = "sea.example.org"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SCALE = {
    "specReplicasPath": ".spec.crew",
    "statusReplicasPath": ".status.aboard",
    "labelSelectorPath": ".status.selector",
}
OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


class CustomAutoscalerSteps:
    """Runs steps on the custom object `anna` of the kind Boat and on its autoscaler; the verbs are those of the
    recording.
    """

    def __init__(self, ask: SendRequest, namespace: str) -> None:
        self._send_request = ask
        self._boats = f"/apis/{GROUP}/v1/namespaces/{namespace}/boats"
        self._scalers = f"/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers"
        self._events = f"/api/v1/namespaces/{namespace}/events"

    async def take(self, verb: str, *words: object) -> None:
        await getattr(self, verb)(*words)

    async def define(self, scaled: bool) -> None:
        """Define the custom resource, with a scale subresource if `scaled`."""
        names = {"plural": "boats", "kind": "Boat", "listKind": "BoatList", "singular": "boat"}
        parts: Tree = {"status": {}, **({"scale": SCALE} if scaled else {})}
        schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": OPEN, "status": OPEN}}}
        version = {"name": "v1", "served": True, "storage": True, "schema": schema, "subresources": parts}
        spec = {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]}
        tree = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "spec": spec}
        await self._send_request("POST", DEFINITIONS, {**tree, "metadata": {"name": f"boats.{GROUP}"}})

    async def launch(self, crew: int) -> None:
        tree = {"apiVersion": f"{GROUP}/v1", "kind": "Boat", "metadata": {"name": "anna"}, "spec": {"crew": crew}}
        await self._send_request("POST", self._boats, tree)
        await self.board(crew)

    async def board(self, aboard: int) -> None:
        status = {"aboard": aboard, "selector": "boat=anna"}
        await self._send_request("PATCH", f"{self._boats}/anna/status", {"status": status})

    async def man(self, crew: int) -> None:
        await self._send_request("PATCH", f"{self._boats}/anna", {"spec": {"crew": crew}})

    async def sink(self) -> None:
        await self._send_request("DELETE", f"{self._boats}/anna", None)

    async def scale(self, kind: str, least: int, most: int) -> None:
        target = {"apiVersion": f"{GROUP}/v1", "kind": kind, "name": "anna"}
        cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}
        metrics = [{"type": "Resource", "resource": cpu}]
        spec = {"scaleTargetRef": target, "minReplicas": least, "maxReplicas": most, "metrics": metrics}
        tree = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "anna"}}
        await self._send_request("POST", self._scalers, {**tree, "spec": spec})

    async def limit(self, least: int, most: int) -> None:
        change = {"spec": {"minReplicas": least, "maxReplicas": most}}
        await self._send_request("PATCH", f"{self._scalers}/anna", change)

    async def seen(self) -> Tree:
        _, scaler = await self._send_request("GET", f"{self._scalers}/anna", None)
        code, boat = await self._send_request("GET", f"{self._boats}/anna", None)
        _, events = await self._send_request("GET", self._events, None)
        status = scaler.get("status", {})
        events_seen = (one for one in events["items"] if one["involvedObject"]["kind"] == "HorizontalPodAutoscaler")
        return {
            "crew": boat["spec"]["crew"] if code == 200 else None,
            "replicas": [status.get("currentReplicas", 0), status.get("desiredReplicas", 0)],
            "conditions": sorted(
                f"{one['type']} {one['status']} {one['reason']}" for one in status.get("conditions") or ()
            ),
            "events": sorted({f"{one['type']} {one['reason']}" for one in events_seen}),
        }
