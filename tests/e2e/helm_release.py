"""Runs one release through helm's own library, in its own process; prints the results as JSON."""

import asyncio
import json
import sys
from typing import Any

import helm_sdkpy
from kubernetes import client, config

RUNNING = {"controllers": ["*"]}


async def main(kubeconfig: str, namespace: str, chart: str, side: str) -> dict[str, Any]:
    """Install, upgrade, roll back, uninstall."""
    with config.new_client_from_config(config_file=kubeconfig) as api:
        apps = client.AppsV1Api(api)

        def replicas() -> list[int]:
            return [item.spec.replicas for item in apps.list_namespaced_deployment(namespace).items]

        helm = helm_sdkpy.Configuration(namespace=namespace, kubeconfig=kubeconfig)
        how: dict[str, Any] = {"server_side_apply": side == "server", "wait": False}
        checked = {"disable_openapi_validation": False}
        seen: list[int] = []
        await helm_sdkpy.Install(helm).run("mgr", chart, RUNNING, **how, **checked)
        seen += replicas()
        await helm_sdkpy.Upgrade(helm).run("mgr", chart, {**RUNNING, "replicas": 4}, **how, **checked)
        seen += replicas()
        await helm_sdkpy.Upgrade(helm).run("mgr", chart, {**RUNNING, "replicas": 2}, **how)
        seen += replicas()
        history = await helm_sdkpy.History(helm).run("mgr")
        await helm_sdkpy.Uninstall(helm).run("mgr", wait=False)
        return {"replicas": seen, "history": history, "left": replicas()}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(*sys.argv[1:]))))
