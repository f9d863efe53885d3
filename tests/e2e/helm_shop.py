"""Runs the chart `shop` through the life cycle of releases, in its own process; prints the results as JSON."""

import asyncio
import contextlib
import json
import sys
from pathlib import Path
from typing import Any

import helm_sdkpy
from kubernetes import client, config

CHART = str(Path(__file__).parent / "shop")


class Shop:
    """Releases in a namespace, one after the other, and their objects."""

    def __init__(self, api: client.ApiClient, kubeconfig: str, namespace: str) -> None:
        self.core, self.apps, self.namespace = client.CoreV1Api(api), client.AppsV1Api(api), namespace
        self.helm = helm_sdkpy.Configuration(namespace=namespace, kubeconfig=kubeconfig)
        self.how: dict[str, Any] = {"server_side_apply": True, "wait": False, "disable_openapi_validation": False}

    async def install(self, name: str, **more: Any) -> str:
        """The error message; empty on success."""
        try:
            await helm_sdkpy.Install(self.helm).run(name, CHART, {}, **self.how, **more)
        except helm_sdkpy.InstallError as refusal:
            return str(refusal)
        return ""

    async def upgrade(self, values: dict[str, Any], **more: Any) -> str:
        """The error message; empty on success."""
        try:
            await helm_sdkpy.Upgrade(self.helm).run("a", CHART, values, **self.how, **more)
        except helm_sdkpy.UpgradeError as refusal:
            return str(refusal)
        return ""

    async def uninstall(self, name: str) -> None:
        """Remove a release; the library fails on the response if objects remain, after it has finished."""
        with contextlib.suppress(AttributeError):
            await helm_sdkpy.Uninstall(self.helm).run(name, wait=False)

    def configs(self) -> dict[str, Any]:
        """The data of each ConfigMap."""
        return {one.metadata.name: one.data for one in self.core.list_namespaced_config_map(self.namespace).items}

    def replicas(self) -> int:
        return int(self.apps.read_namespaced_deployment("shop", self.namespace).spec.replicas)

    def key(self) -> str:
        return str(self.core.read_namespaced_secret("drawn-once", self.namespace).data["key"])


async def main(kubeconfig: str, namespace: str) -> dict[str, Any]:
    """Install, upgrade with valid, invalid and conflicting values, uninstall, adopt what remained."""
    with config.new_client_from_config(config_file=kubeconfig) as api:
        shop = Shop(api, kubeconfig, namespace)
        shown: dict[str, Any] = {"install": await shop.install("a"), "installed": shop.configs()}
        key = shop.key()
        shown |= {"upgrade": await shop.upgrade({"replicas": 3}), "upgraded": shop.configs()}
        shown["lookup"] = shop.key() == key
        shown |= {"bad": await shop.upgrade({"flag": "not a label"}), "after bad": shop.replicas()}
        shown["status"] = (await helm_sdkpy.Status(shop.helm).run("a"))["info"]["status"]
        patch = {"spec": {"replicas": 9}}
        shop.apps.patch_namespaced_deployment("shop", namespace, patch, field_manager="somebody")
        shown |= {"contested": await shop.upgrade({"replicas": 4}), "after contest": shop.replicas()}
        shown |= {"forced": await shop.upgrade({"replicas": 4}, force_conflicts=True), "after force": shop.replicas()}
        await shop.uninstall("a")
        shown["left"] = sorted(shop.configs())
        shown["not ours"] = await shop.install("b")
        shown["taken over"] = await shop.install("b", take_ownership=True)
        return shown


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(*sys.argv[1:]))))
