"""What a write adds is noted in the resource quotas of its namespace before it is made, so that none is exceeded.

A write that fails afterwards stays counted until the controller of quotas counts again.
"""

from functools import partial
from typing import cast

import orjson
from msgspec.structs import replace

from apiserver_stub.admission.chain import AdmissionRequest
from apiserver_stub.admission.quotas import QUOTAS, charged, concerns
from apiserver_stub.call import APIRequest
from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.kinds.trees import put_in
from apiserver_stub.verbs.guaranteed_update import Fresh, Write, guaranteed_update
from apiserver_stub.verbs.scope import RequestScope
from controller_manager.api.errors import NotFound


async def charge(scope: RequestScope, call: APIRequest, request: AdmissionRequest) -> None:
    """Note what a create or an update adds. Raises `Forbidden` for what does not fit."""
    if not scope.store.count(QUOTAS) or not concerns(request):
        return
    rows = scope.store.snapshot(QUOTAS).items(prefix=f"{call.namespace}/")
    names = [row.name for row in rows if charged(orjson.loads(row.data), request) is not None]
    if request.dry_run:
        return
    for name in names:
        await _charge(scope, call, request, name)


async def _charge(scope: RequestScope, call: APIRequest, request: AdmissionRequest, name: str) -> None:
    kind = cast("ResourceInfo", scope.kinds.find("", "v1", QUOTAS))
    try:
        await guaranteed_update(scope, replace(call, kind=kind, name=name, subresource=None), partial(_decide, request))
    except NotFound:
        return  # and limits nothing any more


async def _decide(request: AdmissionRequest, fresh: Fresh) -> Write | None:
    quota = fresh()
    used = charged(quota, request)
    if used is None:
        return None
    put_in(quota, ("status", "used"), used)
    return Write(quota)
