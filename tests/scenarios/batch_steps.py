"""Recorded steps on jobs, cron jobs and their pods, and the observed state after each step.

The expected states in `jobs.jsonl` and `cron_jobs.jsonl` come from the same steps on a real API server with
kube-controller-manager 1.36. No node runs the pods: steps set their status. Generated names, uids and times are left
out or counted.
"""

import json
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from controller_manager.common.api.errors import ApiError
from controller_manager.framework.client.rest_client import Call
from controller_manager.testing import Cluster

Tree = dict[str, Any]
SendRequest = Callable[[str, str, Tree | None], Awaitable[tuple[int, Tree]]]
"""Sends a request (method, path, body) and returns status code and body of the answer."""

BATCH, CORE = "/apis/batch/v1/namespaces", "/api/v1/namespaces"
INDEX = "batch.kubernetes.io/job-completion-index"
FAILURES = "batch.kubernetes.io/job-index-failure-count"
IGNORED = "batch.kubernetes.io/job-index-ignored-failure-count"
TRACKED = "batch.kubernetes.io/job-tracking"
_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def sender_of(cluster: Cluster) -> SendRequest:
    """Return a function that sends requests to the server of a cluster."""

    async def ask(method: str, path: str, body: Tree | None) -> tuple[int, Tree]:
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        data = json.dumps(body).encode() if body is not None else b""
        try:
            return 200, json.loads(await cluster.client.raw(Call(method, path, body=data, content_type=kind)))
        except ApiError as refusal:
            return refusal.code, {}

    return ask


def template(**spec: Any) -> Tree:
    container = {"name": "main", "image": "i:1", "env": [{"name": "A", "value": "b"}]}
    meta = {"labels": {"app": "x"}, "annotations": {"a": "b"}}
    return {"metadata": meta, "spec": {"restartPolicy": "Never", "containers": [container], **spec}}


def stamp(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


class BatchSteps:
    """Requests in one namespace, and the events there."""

    def __init__(self, ask: SendRequest, namespace: str, now: Callable[[], datetime]) -> None:
        self._send_request = ask
        self._batch, self._core = f"{BATCH}/{namespace}", f"{CORE}/{namespace}"
        self._now = now
        self._refused = 0

    async def take(self, verb: str, *words: Any) -> int:
        """Run a step; return the status code of a rejected request, or 0."""
        self._refused = 0
        await getattr(self, verb)(*words)
        return self._refused

    async def wait(self) -> None:
        """Do nothing, so that only time passes."""

    async def send(self, method: str, path: str, body: Tree | None = None) -> Tree:
        code, answer = await self._send_request(method, path, body)
        if code >= 400:
            self._refused = code
        return answer

    async def items(self, path: str) -> list[Tree]:
        found: list[Tree] = (await self.send("GET", path))["items"]
        return found

    async def events(self, kind: str) -> Tree:
        """Return the count of each event about objects of a kind."""
        counts: Counter[str] = Counter()
        for one in await self.items(f"{self._core}/events"):
            if one["involvedObject"]["kind"] == kind:
                counts[f"{one['type']} {one['reason']}"] += one.get("count") or 1
        return dict(sorted(counts.items()))

    async def end_job(self, name: str, kind: str) -> None:
        """Mark a job as finished, in place of the controller that manages it."""
        at = stamp(self._now())
        first = {"Complete": "SuccessCriteriaMet", "Failed": "FailureTarget"}[kind]
        both = [{"type": one, "status": "True", "lastTransitionTime": at, "reason": "R"} for one in (first, kind)]
        status = {"conditions": both, "startTime": at, **({"completionTime": at} if kind == "Complete" else {})}
        await self.send("PATCH", f"{self._batch}/jobs/{name}/status", {"status": status})


class JobSteps(BatchSteps):
    """Runs steps on the job `work` and on its pods."""

    def __init__(self, ask: SendRequest, namespace: str, now: Callable[[], datetime]) -> None:
        super().__init__(ask, namespace, now)
        self._starts: list[str] = []

    async def create(self, spec: Tree, pod: Tree | None = None, **metadata: Any) -> None:
        base = {"template": template(**(pod or {}))}
        meta = {"name": "work", "annotations": {"own": "1"}, **metadata}
        tree = {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {**base, **spec}}
        await self.send("POST", f"{self._batch}/jobs", tree)

    async def change(self, spec: Tree) -> None:
        await self.send("PATCH", f"{self._batch}/jobs/work", {"spec": spec})

    async def status(self, status: Tree) -> None:
        await self.send("PATCH", f"{self._batch}/jobs/work/status", {"status": status})

    async def delete_job(self, propagation: str) -> None:
        body = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation}
        await self.send("DELETE", f"{self._batch}/jobs/work", body)

    async def pods(self) -> list[Tree]:
        every = await self.items(f"{self._core}/pods")
        return sorted(every, key=lambda one: (_index(one), one["metadata"]["name"]))

    async def chosen(self, which: int | Sequence[int]) -> list[Tree]:
        """Return the first `which` unfinished pods, or those of the indexes `which`."""
        alive = [
            one
            for one in await self.pods()
            if one["status"]["phase"] in ("Pending", "Running") and "deletionTimestamp" not in one["metadata"]
        ]
        if isinstance(which, int):
            return alive[:which]
        return [one for one in alive if _index(one) in map(str, which)]

    async def bind(self, which: int | Sequence[int]) -> None:
        """Bind pods to a missing node, so that they are deleted with a grace period."""
        for pod in await self.chosen(which):
            name = pod["metadata"]["name"]
            target = {"kind": "Node", "apiVersion": "v1", "name": "n1"}
            body = {"kind": "Binding", "apiVersion": "v1", "metadata": {"name": name}, "target": target}
            await self.send("POST", f"{self._core}/pods/{name}/binding", body)

    async def run(self, which: int | Sequence[int], ready: bool = True, restarts: int = 0) -> None:
        await self.bind(which)
        at = stamp(self._now())
        for pod in await self.chosen(which):
            seen = {"state": {"running": {"startedAt": at}}, "ready": ready, "started": True, "restartCount": restarts}
            condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": at}
            status = {"phase": "Running", "conditions": [condition], "containerStatuses": [_container(seen)]}
            await self._set_status(pod, status)

    async def end(self, which: int | Sequence[int], code: int = 0, condition: str = "") -> None:
        """Finish pods with an exit code, and with a condition if it is given."""
        for pod in await self.chosen(which):
            await self._set_status(pod, self._ended(code, condition))

    async def end_going(self, code: int = 143) -> None:
        """Finish the pods that are being deleted."""
        for pod in await self.pods():
            if "deletionTimestamp" in pod["metadata"]:
                await self._set_status(pod, self._ended(code, ""))

    def _ended(self, code: int, condition: str) -> Tree:
        at = stamp(self._now())
        ended = {"terminated": {"exitCode": code, "reason": "Over", "startedAt": at, "finishedAt": at}}
        seen = _container({"state": ended, "ready": False, "started": False, "restartCount": 0})
        conditions = (
            [{"type": condition, "status": "True", "lastTransitionTime": at, "reason": "R"}] if condition else []
        )
        phase = "Failed" if code or condition else "Succeeded"
        return {"phase": phase, "containerStatuses": [seen], "conditions": conditions}

    async def _set_status(self, pod: Tree, status: Tree) -> None:
        await self.send("PATCH", f"{self._core}/pods/{pod['metadata']['name']}/status", {"status": status})

    async def delete(self, which: int | Sequence[int]) -> None:
        for pod in await self.chosen(which):
            await self.send("DELETE", f"{self._core}/pods/{pod['metadata']['name']}")

    async def gone(self) -> None:
        """Delete terminating pods at once, as far as their finalizers allow."""
        body = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
        for pod in await self.pods():
            if "deletionTimestamp" in pod["metadata"]:
                await self.send("DELETE", f"{self._core}/pods/{pod['metadata']['name']}", body)

    async def relabel(self, which: int | Sequence[int], labels: Tree) -> None:
        """Change the labels of pods."""
        for pod in await self.chosen(which):
            change = {"metadata": {"labels": labels}}
            await self.send("PATCH", f"{self._core}/pods/{pod['metadata']['name']}", change)

    async def orphan(self, name: str) -> None:
        """Add a pod without controller that the job selects."""
        job = await self.send("GET", f"{self._batch}/jobs/work")
        meta = {"name": name, "labels": job["spec"]["selector"]["matchLabels"]}
        spec = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "i:9"}]}
        await self.send(
            "POST", f"{self._core}/pods", {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
        )

    async def seen(self) -> Tree:
        jobs = await self.items(f"{self._batch}/jobs")
        pods = await self.pods()
        return {
            "job": self._job(jobs[0]) if jobs else None,
            "pods": sorted(_pod(one) for one in pods),
            "events": await self.events("Job"),
        }

    async def whole(self) -> Tree:
        """Return the fields of the first unfinished pod that the job decides."""
        (pod, *_) = await self.chosen(1) or await self.pods()
        meta, spec = pod["metadata"], pod["spec"]
        kept = {name: meta.get(name) for name in ("labels", "annotations", "finalizers", "ownerReferences")}
        env = [one.get("env") for one in spec["containers"]]
        name = {"generateName": meta.get("generateName"), "name": meta["name"][:-5]}
        more = {key: spec.get(key) for key in ("hostname", "schedulingGates", "nodeSelector", "tolerations")}
        found: Tree = json.loads(_UID.sub("uid", json.dumps({**kept, **name, **more, "env": env})))
        return found

    def _job(self, job: Tree) -> Tree:
        status = job.get("status", {})
        kept = {
            key: value
            for key, value in status.items()
            if key not in ("conditions", "startTime", "completionTime", "uncountedTerminatedPods") and value
        }
        conditions = [f"{one['type']} {one['status']} {one.get('reason', '')}" for one in status.get("conditions", ())]
        uncounted = status.get("uncountedTerminatedPods", {})
        counts = {key: len(value) for key, value in uncounted.items()}
        start = status.get("startTime")
        if start and start not in self._starts:
            self._starts.append(start)
        return {
            **kept,
            "conditions": conditions,
            "start": self._starts.index(start) + 1 if start else 0,
            "completion": "completionTime" in status,
            "uncounted": counts,
            "generation": job["metadata"].get("generation"),
            **({"going": True} if "deletionTimestamp" in job["metadata"] else {}),
        }


class CronJobSteps(BatchSteps):
    """Runs steps on the cron job `tick` and on its jobs; times are minutes since the start of the row."""

    def __init__(self, ask: SendRequest, namespace: str, now: Callable[[], datetime]) -> None:
        super().__init__(ask, namespace, now)
        self._base = now().replace(second=0, microsecond=0)

    async def create(self, spec: Tree, **metadata: Any) -> None:
        work = {"template": template(), "managedBy": "example.org/hand"}
        job = {"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}, "spec": work}
        given = {"jobTemplate": job, **spec, "schedule": self._clock(spec["schedule"])}
        meta = {"name": "tick", **metadata}
        tree = {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": meta, "spec": given}
        await self.send("POST", f"{self._batch}/cronjobs", tree)

    def _clock(self, schedule: str) -> str:
        """Replace `<1 Asia/Tokyo>` in a schedule by the minute and hour of that time zone in one minute."""

        def shown(match: re.Match[str]) -> str:
            moment = (self._base + timedelta(minutes=int(match[1]))).astimezone(ZoneInfo(match[2]))
            return f"{moment.minute} {moment.hour}"

        return re.sub(r"<(-?\d+) ([^>]+)>", shown, schedule)

    async def change(self, spec: Tree) -> None:
        given = {**spec, "schedule": self._clock(spec["schedule"])} if "schedule" in spec else spec
        await self.send("PATCH", f"{self._batch}/cronjobs/tick", {"spec": given})

    async def last(self, minute: int) -> None:
        """Set the last schedule time, in minutes after the start."""
        at = stamp(self._base + timedelta(minutes=minute))
        await self.send("PATCH", f"{self._batch}/cronjobs/tick/status", {"status": {"lastScheduleTime": at}})

    async def end(self, minute: int, kind: str) -> None:
        await self.end_job(self._named(minute), kind)

    def _named(self, minute: int) -> str:
        return f"tick-{int(self._base.timestamp()) // 60 + minute}"

    async def drop(self, minute: int) -> None:
        """Delete the job of a minute."""
        body = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
        await self.send("DELETE", f"{self._batch}/jobs/{self._named(minute)}", body)

    async def add(self, name: str, owned: bool, kind: str = "") -> None:
        """Add a foreign job, finished if `kind` is given, and owned by the cron job if `owned`."""
        spec = {"template": template(), "managedBy": "example.org/hand"}
        tree = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}
        await self.send("POST", f"{self._batch}/jobs", tree)
        if kind:
            await self.end_job(name, kind)
        if owned:
            cron = await self.send("GET", f"{self._batch}/cronjobs/tick")
            owner = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "tick", "uid": cron["metadata"]["uid"]}
            change = {"metadata": {"ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}]}}
            await self.send("PATCH", f"{self._batch}/jobs/{name}", change)

    async def occupy(self, minute: int) -> None:
        """Create a job that takes the name of the one for a minute."""
        await self.add(self._named(minute), False)

    async def delete_cron(self, propagation: str) -> None:
        body = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation}
        await self.send("DELETE", f"{self._batch}/cronjobs/tick", body)

    async def seen(self) -> Tree:
        crons = await self.items(f"{self._batch}/cronjobs")
        jobs = await self.items(f"{self._batch}/jobs")
        return {
            "cron": self._cron(crons[0]) if crons else None,
            "jobs": sorted(f"{self._minute(one['metadata']['name'])} {_ended_by(one)}".strip() for one in jobs),
            "events": await self.events("CronJob"),
        }

    async def whole(self) -> Tree:
        """Return the fields of the first job that the cron job decides."""
        (job, *_) = await self.items(f"{self._batch}/jobs")
        meta, spec = job["metadata"], job["spec"]
        kept = {name: meta.get(name) for name in ("labels", "annotations", "ownerReferences", "generateName")}
        parts = json.loads(_UID.sub("uid", json.dumps({**kept, "labels of pods": spec["template"]["metadata"]})))
        notes = parts["annotations"]
        notes["batch.kubernetes.io/cronjob-scheduled-timestamp"] = self._since(
            notes["batch.kubernetes.io/cronjob-scheduled-timestamp"]
        )
        found: Tree = json.loads(json.dumps(parts).replace(meta["name"], str(self._minute(meta["name"]))))
        return found

    def _cron(self, cron: Tree) -> Tree:
        status = cron.get("status", {})
        last, success = status.get("lastScheduleTime"), status.get("lastSuccessfulTime")
        return {
            "active": [self._minute(one["name"]) for one in status.get("active", ())],
            "last": self._since(last) if last else None,
            "success": success is not None,
        }

    def _minute(self, name: str) -> str:
        number = name.removeprefix("tick-")
        return str(int(number) - int(self._base.timestamp()) // 60) if number.isdigit() else name

    def _since(self, text: str) -> str:
        """Return a time as minutes since the start, with its UTC offset."""
        moment = datetime.fromisoformat(text)
        minutes = (moment - self._base).total_seconds() / 60
        return f"{minutes:g} {moment.utcoffset()}"


def _container(seen: Tree) -> Tree:
    return {"name": "main", "image": "i:1", "imageID": "", **seen}


def _index(pod: Tree) -> str:
    index: str = (pod["metadata"].get("annotations") or {}).get(INDEX, "-")
    return index


def _pod(pod: Tree) -> str:
    meta = pod["metadata"]
    notes = meta.get("annotations") or {}
    words = [_index(pod), pod["status"]["phase"]]
    words += ["tracked"] * (TRACKED in meta.get("finalizers", ()))
    words += ["going"] * ("deletionTimestamp" in meta)
    words += ["free"] * (not meta.get("ownerReferences"))
    words += [f"{label}={notes[name]}" for label, name in (("failed", FAILURES), ("ignored", IGNORED)) if name in notes]
    return " ".join(words)


def _ended_by(job: Tree) -> str:
    going = ["going"] * ("deletionTimestamp" in job["metadata"])
    conditions = job.get("status", {}).get("conditions", ())
    ended = [one["type"] for one in conditions if one["type"] in ("Complete", "Failed") and one["status"] == "True"]
    return " ".join([*ended, *going])
