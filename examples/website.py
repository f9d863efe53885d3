"""A controller of a custom resource: a ConfigMap per Website, and conditions that follow its pods."""

from collections.abc import Callable, Iterator

from msgspec.structs import replace

from controller_manager.framework import (
    CONFIG_MAPS,
    PODS,
    STALE_CACHE,
    Change,
    Condition,
    ConfigMap,
    Context,
    ControllerSpec,
    For,
    Informer,
    Informers,
    Key,
    Mapped,
    Model,
    Object,
    ObjectMeta,
    Options,
    Owned,
    OwnerReference,
    Pod,
    PolicyRule,
    Recorder,
    Requeue,
    Resource,
    TerminalError,
    condition_of,
    controller_key,
    controller_of,
    controller_ref,
    errors,
    is_condition_true,
    is_pod_ready,
    key_of,
    recheck_owner,
    try_write,
    update_status,
    with_condition,
    with_conditions,
)


class WebsiteSpec(Model):
    text: str = ""


class WebsiteStatus(Model):
    conditions: tuple[Condition, ...] = ()


class Website(Object):
    spec: WebsiteSpec = WebsiteSpec()
    status: WebsiteStatus = WebsiteStatus()


WEBSITES = Resource("example.com", "v1", "websites", "Website", True, Website)


def websites_of_pod(_: Informers, change: Change[Pod]) -> Iterator[Key]:
    """Yield the keys of the websites that the pod serves or served."""
    for pod in (change.before, change.after):
        if pod is not None and (name := (pod.metadata.labels or {}).get("website")):
            yield Key(pod.metadata.namespace, name)


class WebsiteController:
    def __init__(self, context: Context, _: Options) -> None:
        self._client = context.client
        self._events: Recorder = context.events
        self._sites: Informer[Website] = context.informers.get(WEBSITES)
        self._pages, self._pods = context.informers.get(CONFIG_MAPS), context.informers.get(PODS)

    async def reconcile(self, key: Key) -> Requeue | None:
        site = self._sites.get(key)
        if site is None or site.metadata.deletion_timestamp is not None:
            return None
        if not site.spec.text:
            raise TerminalError("spec.text is empty")  # not retried until the Website changes
        try:
            stored = await self._store(site)
        except errors.AlreadyExists:
            return STALE_CACHE  # the server has a ConfigMap that the cache does not show yet
        pods = self._pods.list(key.namespace, {"website": key.name})
        served = Condition(type="Served", status=str(any(map(is_pod_ready, pods))))
        conditions = with_conditions(site.status.conditions, [stored, served])
        await update_status(self._client, WEBSITES, site, replace(site, status=WebsiteStatus(conditions=conditions)))
        return None if is_condition_true(conditions, "Served") else Requeue(60)

    async def _store(self, site: Website) -> Condition:
        page = self._pages.get(key_of(site))
        if page is None:
            await recheck_owner(self._client, WEBSITES, site)  # the cache may show a deleted Website
            owner: OwnerReference = controller_ref(WEBSITES, site)
            meta = ObjectMeta(name=site.metadata.name, namespace=site.metadata.namespace, owner_references=(owner,))
            new = ConfigMap(metadata=meta, data={"index.html": site.spec.text})
            is_created = await try_write(self._client.create(CONFIG_MAPS, new), self._report(site))
            return Condition(type="Stored", status=str(is_created), reason="" if is_created else "NamespaceEnds")
        if controller_key(WEBSITES, page) != key_of(site):
            owned = controller_of(page)
            return Condition(type="Stored", status="False", reason="NameTaken", message=owned.name if owned else "")
        if page.data != {"index.html": site.spec.text}:
            await self._client.update(CONFIG_MAPS, replace(page, data={"index.html": site.spec.text}))
        return Condition(type="Stored", status="True")

    def _report(self, site: Website) -> Callable[[errors.ApiError], None]:
        return lambda error: self._events.warning(site, "FailedCreate", error.message)


def paused(site: Website, reason: str) -> Website:
    """Return the website with the condition Paused, unless it has one."""
    if condition_of(site.status.conditions, "Paused"):
        return site
    new = Condition(type="Paused", status="True", reason=reason)
    return replace(site, status=WebsiteStatus(conditions=with_condition(site.status.conditions, new)))


RULES = (
    PolicyRule(groups=("example.com",), resources=("websites",), verbs=("get", "list", "watch")),
    PolicyRule(groups=("example.com",), resources=("websites/status",), verbs=("update",)),
    PolicyRule(groups=("",), resources=("configmaps",), verbs=("list", "watch", "create", "update")),
    PolicyRule(groups=("",), resources=("pods",), verbs=("list", "watch")),
)
SPECS = (
    ControllerSpec(
        name="website-controller",
        reconciler=WebsiteController,
        options=Options,
        watches=(For(WEBSITES), Owned(CONFIG_MAPS, WEBSITES), Mapped(PODS, websites_of_pod)),
        rbac=RULES,
    ),
)
