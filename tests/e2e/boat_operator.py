"""A kopf operator of boats, run by `kopf run`; it prints each action after it is done."""

import os
from typing import Any

import kopf

BOATS = (os.environ["GROUP"], "v1", "boats")


def _log(*words: object) -> None:
    print(*words, flush=True)


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    settings.posting.enabled = False
    settings.persistence.finalizer = f"{BOATS[0]}/harbour-master"
    settings.peering.lifetime = 3


@kopf.on.create(*BOATS)
def build(name: str, spec: kopf.Spec, **_: Any) -> dict[str, int]:
    _log("built", name)
    return {"planks": spec["size"] * 10}


@kopf.on.create(*BOATS)
def launch(name: str, labels: kopf.Labels, **_: Any) -> str:
    if "tide" not in labels:
        raise kopf.TemporaryError("no tide", delay=0.2)
    _log("launched", name)
    return "afloat"


@kopf.on.update(*BOATS, field="spec.size")
def refit(name: str, old: int, new: int, patch: kopf.Patch, **_: Any) -> None:
    patch.status["refitted"] = f"{old} to {new}"
    _log("refitted", name)


@kopf.on.field(*BOATS, field="spec.sails")
def hoist(name: str, new: int | None, patch: kopf.Patch, **_: Any) -> None:
    if new is not None:
        patch.status["hoisted"] = new
        _log("hoisted", name)


@kopf.on.delete(*BOATS)
def scrap(name: str, **_: Any) -> None:
    _log("scrapped", name)


@kopf.timer(*BOATS, interval=0.5)
def look(name: str, status: kopf.Status, patch: kopf.Patch, **_: Any) -> None:
    if status.get("looks", 0) < 3:
        patch.status["looks"] = status.get("looks", 0) + 1
    else:
        _log("looked", name)


@kopf.daemon(*BOATS)
async def sail(name: str, stopped: kopf.DaemonStopped, **_: Any) -> None:
    _log("sails", name)
    await stopped.wait()
    _log("rests", name)
