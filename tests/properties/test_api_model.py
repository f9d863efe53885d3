"""Under any sequence of reads and writes, the API answers like a dictionary with a change log."""

import itertools
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

SPACES, PLURALS, NAMES = ("one", "two"), ("configmaps", "pods"), ("a", "b")
KEYS = st.tuples(st.sampled_from(PLURALS), st.sampled_from(SPACES), st.sampled_from(NAMES))
LABELS = st.sampled_from([{}, {"x": "1"}, {"x": "2"}, {"x": "1", "y": "2"}])
SELECTORS = st.sampled_from(["", "x=1", "x!=1", "x", "!y", "x in (1, 2),y=2", "y notin (1)"])
TYPES = {"merge": "application/merge-patch+json", "strategic": "application/strategic-merge-patch+json"}

Key = tuple[str, str, str]


class Thing(NamedTuple):
    """An object as the model knows it."""

    revision: int
    uid: str
    labels: dict[str, str]


class Change(NamedTuple):
    """One entry of the log: the object before and after."""

    revision: int
    key: Key
    before: Thing | None
    after: Thing | None


def selects(selector: str, labels: dict[str, str]) -> bool:
    x, y = labels.get("x"), labels.get("y")
    return {
        "": True,
        "x=1": x == "1",
        "x!=1": x != "1",
        "x": x is not None,
        "!y": y is None,
        "x in (1, 2),y=2": x is not None and y == "2",
        "y notin (1)": y != "1",
    }[selector]


class ApiMachine(RuleBasedStateMachine):
    """Applies the same operations to the server and to `things`, and compares them."""

    new_api: ClassVar[Callable[[], Any]]
    versions = Bundle("versions")

    def __init__(self) -> None:
        super().__init__()
        self.api = type(self).new_api()
        self.things: dict[Key, Thing] = {}
        self.log: list[Change] = []

    def teardown(self) -> None:
        self.api.close()

    @initialize(target=versions)
    def begin(self) -> int:
        for space in SPACES:
            assert self.api.ask("POST", "/api/v1/namespaces", {"metadata": {"name": space}}).status == 201
        return int(self.api.revision)

    # writing

    @rule(target=versions, key=KEYS, labels=LABELS)
    def create(self, key: Key, labels: dict[str, str]) -> int:
        code, tree = self.ask("POST", self.collection(key), self.body(key, labels))
        if key in self.things:
            assert (code, tree["reason"]) == (409, "AlreadyExists")
        else:
            assert code == 201
            self.record_write(key, tree, labels)
        return int(self.api.revision)

    @rule(target=versions, key=KEYS, labels=LABELS, version=st.sampled_from(["newest", "none"]) | versions)
    def update(self, key: Key, labels: dict[str, str], version: str | int) -> int:
        thing = self.things.get(key)
        body = self.body(key, labels)
        if version != "none":
            newest = thing.revision if thing else 1
            body["metadata"]["resourceVersion"] = str(newest if version == "newest" else version)
        if thing and "spec" in body:  # completed by the server, and almost immutable
            body["spec"] = self.ask("GET", self.path(key))[1]["spec"]
        code, tree = self.ask("PUT", self.path(key), body)
        if thing is None:
            assert (code, tree["reason"]) == (404, "NotFound")
        elif version not in ("none", "newest", thing.revision):
            assert (code, tree["reason"]) == (409, "Conflict")
        else:
            assert code == 200
            self.record_write(key, tree, labels)
        return int(self.api.revision)

    @rule(target=versions, key=KEYS, labels=LABELS, kind=st.sampled_from(["merge", "strategic", "json"]))
    def patch(self, key: Key, labels: dict[str, str], kind: str) -> int:
        thing = self.things.get(key)
        if kind == "json":
            operations = [{"op": "add", "path": "/metadata/labels", "value": labels}]
            headers = {"content-type": "application/json-patch+json"}
            code, tree = self.ask("PATCH", self.path(key), operations, headers=headers)
            after = labels
        else:
            removed = dict.fromkeys(set("xy") - set(labels))
            body = {"metadata": {"labels": {**labels, **removed}}}
            code, tree = self.ask("PATCH", self.path(key), body, headers={"content-type": TYPES[kind]})
            after = labels
        assert code == (404 if thing is None else 200)
        if thing is not None:
            self.record_write(key, tree, after)
        return int(self.api.revision)

    @rule(target=versions, key=KEYS, condition=st.sampled_from(["none", "uid", "wrong uid"]) | versions)
    def delete(self, key: Key, condition: str | int) -> int:
        thing = self.things.get(key)
        presumed: dict[str, str] = {}
        if condition == "wrong uid":
            presumed = {"uid": "another"}
        elif condition == "uid":
            presumed = {"uid": thing.uid if thing else "any"}
        elif condition != "none":
            presumed = {"resourceVersion": str(condition)}
        code, tree = self.ask("DELETE", self.path(key), {"preconditions": presumed})
        fits = condition in ("none", "uid") or (thing and condition == thing.revision)
        assert code == (404 if thing is None else 200 if fits else 409), tree
        if code == 200 and thing:
            self.record_deletions({key: [self.api.revision - 1, self.api.revision][-self.changes_of(key[0]) :]})
        return int(self.api.revision)

    @rule(plural=st.sampled_from(PLURALS), space=st.sampled_from(SPACES), selector=SELECTORS)
    def delete_collection(self, plural: str, space: str, selector: str) -> None:
        before = int(self.api.revision)
        assert self.ask("DELETE", f"/api/v1/namespaces/{space}/{plural}", labelSelector=selector)[0] == 200
        gone = self.selected(plural, space, selector)
        assert self.api.revision == before + len(gone) * self.changes_of(plural)
        seen: dict[str, list[int]] = {}
        for event in self.watched(plural, space, before, ""):
            metadata = event["object"]["metadata"]
            seen.setdefault(metadata["name"], []).append(int(metadata["resourceVersion"]))
        self.record_deletions({(plural, space, name): revisions for name, revisions in seen.items()})
        assert sorted(seen) == sorted(name for _, _, name in gone)

    # reading

    @rule(key=KEYS)
    def get(self, key: Key) -> None:
        code, tree = self.ask("GET", self.path(key))
        thing = self.things.get(key)
        assert code == (404 if thing is None else 200)
        assert thing is None or self.thing(tree) == thing

    @rule(plural=st.sampled_from(PLURALS), space=st.sampled_from(("", *SPACES)), selector=SELECTORS)
    def list_now(self, plural: str, space: str, selector: str) -> None:
        code, tree = self.ask("GET", self.place(plural, space), labelSelector=selector)
        assert (code, int(tree["metadata"]["resourceVersion"])) == (200, self.api.revision)
        assert self.items_of(tree) == [(key, self.things[key]) for key in self.selected(plural, space, selector)]

    @rule(plural=st.sampled_from(PLURALS), space=st.sampled_from(("", *SPACES)), version=versions)
    def list_the_past(self, plural: str, space: str, version: int) -> None:
        past = {"resourceVersion": version, "resourceVersionMatch": "Exact"}
        code, tree = self.ask("GET", self.place(plural, space), **past)
        assert (code, int(tree["metadata"]["resourceVersion"])) == (200, version)
        assert self.items_of(tree) == sorted(self.objects_at(version, plural, space).items())

    @rule(key=KEYS, labels=LABELS, limit=st.sampled_from([1, 2, 5]))
    def list_in_pages_while_it_changes(self, key: Key, labels: dict[str, str], limit: int) -> None:
        plural = key[0]
        expected, version = sorted(self.objects_at(self.api.revision, plural, "").items()), self.api.revision
        found: list[tuple[Key, Thing]] = []
        token = ""
        while token or not found:
            code, tree = self.ask("GET", self.place(plural, ""), limit=limit, **{"continue": token})
            assert (code, int(tree["metadata"]["resourceVersion"])) == (200, version)
            found += self.items_of(tree)
            left = tree["metadata"].get("remainingItemCount", 0)
            assert left == len(expected) - len(found)
            token = tree["metadata"].get("continue", "")
            assert bool(token) is (left > 0)
            if not token:
                break
            if key in self.things:
                self.delete(key, "none")
            else:
                self.create(key, labels)
        assert found == expected

    @rule(plural=st.sampled_from(PLURALS), space=st.sampled_from(("", *SPACES)), start=versions, selector=SELECTORS)
    def watch(self, plural: str, space: str, start: int, selector: str) -> None:
        events = [
            (event["type"], self.key(event["object"], plural), self.thing(event["object"]))
            for event in self.watched(plural, space, start, selector)
        ]
        changes = [change for change in self.log if change.revision > start and self.within(change.key, plural, space)]
        expected = [self.event(change, selector) for change in changes]
        assert events == [event for event in expected if event]

    @invariant()
    def revisions_are_counted(self) -> None:
        assert not self.log or self.log[-1].revision <= self.api.revision
        assert all(a.revision < b.revision for a, b in itertools.pairwise(self.log))

    # the model

    def changes_of(self, plural: str) -> int:
        """The number of events of a deletion: a pod first gets its end of grace."""
        return 2 if plural == "pods" else 1

    def record_deletions(self, revisions: dict[Key, list[int]]) -> None:
        """Record deletions, with the revisions of their last changes."""
        changes = []
        for key, (*marked, gone) in revisions.items():
            thing = self.things.pop(key)
            for revision in marked:
                before, thing = thing, thing._replace(revision=revision)
                changes.append(Change(revision, key, before, thing))
            changes.append(Change(gone, key, thing, None))
        self.log += sorted(changes, key=lambda change: change.revision)

    def record_write(self, key: Key, tree: dict[str, Any], labels: dict[str, str]) -> None:
        """Record a write; one that changes nothing makes no revision."""
        before, after = self.things.get(key), self.thing(tree)
        assert after.labels == labels
        if before is not None:
            assert after.uid == before.uid
            assert (after == before) == (before.labels == labels)
        if after != before:
            assert after.revision == self.api.revision
            self.things[key] = after
            self.log.append(Change(after.revision, key, before, after))

    def objects_at(self, version: int, plural: str, space: str) -> dict[Key, Thing]:
        """The objects at a version."""
        things: dict[Key, Thing] = {}
        for change in self.log:
            if change.revision <= version and self.within(change.key, plural, space):
                things.pop(change.key, None)
                if change.after:
                    things[change.key] = change.after
        return things

    def event(self, change: Change, selector: str) -> tuple[str, Key, Thing] | None:
        """The event of a change for a watcher with a selector."""
        before = change.before if change.before and selects(selector, change.before.labels) else None
        after = change.after if change.after and selects(selector, change.after.labels) else None
        if after:
            return ("MODIFIED" if before else "ADDED", change.key, after)
        # an object that leaves is shown as before, at the version of the change
        return ("DELETED", change.key, before._replace(revision=change.revision)) if before else None

    def selected(self, plural: str, space: str, selector: str) -> list[Key]:
        keys = sorted(key for key in self.things if self.within(key, plural, space))
        return [key for key in keys if selects(selector, self.things[key].labels)]

    @staticmethod
    def within(key: Key, plural: str, space: str) -> bool:
        return key[0] == plural and space in ("", key[1])

    # the wire

    def ask(self, *arguments: Any, **more: Any) -> tuple[int, dict[str, Any]]:
        answer = self.api.ask(*arguments, **more)
        return answer.status, answer.tree

    def watched(self, plural: str, space: str, start: int, selector: str) -> list[dict[str, Any]]:
        query = {"watch": 1, "resourceVersion": start, "timeoutSeconds": 1, "labelSelector": selector}
        answer = self.api.ask("GET", self.place(plural, space), **query)
        assert answer.status == 200
        return answer.events

    def items_of(self, tree: dict[str, Any]) -> list[tuple[Key, Thing]]:
        plural = {"ConfigMapList": "configmaps", "PodList": "pods"}[tree["kind"]]
        found = ((self.key(item, plural), self.thing(item)) for item in tree["items"])
        return [(key, thing) for key, thing in found if key[1] in SPACES]  # every cluster has other objects of the kind

    @staticmethod
    def key(tree: dict[str, Any], plural: str) -> Key:
        return plural, tree["metadata"]["namespace"], tree["metadata"]["name"]

    @staticmethod
    def thing(tree: dict[str, Any]) -> Thing:
        metadata = tree["metadata"]
        return Thing(int(metadata["resourceVersion"]), metadata["uid"], metadata.get("labels", {}))

    @staticmethod
    def body(key: Key, labels: dict[str, str]) -> dict[str, Any]:
        plural, _, name = key
        tree: dict[str, Any] = {"metadata": {"name": name, "labels": labels}}
        return tree | ({"spec": {"containers": [{"name": "c", "image": "i"}]}} if plural == "pods" else {})

    @staticmethod
    def place(plural: str, space: str) -> str:
        return f"/api/v1/namespaces/{space}/{plural}" if space else f"/api/v1/{plural}"

    def collection(self, key: Key) -> str:
        return self.place(key[0], key[1])

    def path(self, key: Key) -> str:
        return f"{self.collection(key)}/{key[2]}"


@pytest.mark.parametrize("examples", [20, pytest.param(1000, marks=pytest.mark.long)])
def test_api_agrees_with_a_model(new_api: Callable[[], Any], examples: int) -> None:
    machine = type("BoundApiMachine", (ApiMachine,), {"new_api": staticmethod(new_api)})
    run_state_machine_as_test(machine, settings=settings(max_examples=examples, stateful_step_count=50, deadline=None))
