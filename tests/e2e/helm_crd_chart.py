"""Installs a chart with a definition and a boat, in its own process; prints the results as JSON."""

import asyncio
import json
import sys
from typing import Any

import helm_sdkpy
from kubernetes import client, config


async def main(kubeconfig: str, namespace: str, chart: str, group: str) -> dict[str, Any]:
    """Install, upgrade with valid and invalid values, uninstall."""
    with config.new_client_from_config(config_file=kubeconfig) as api:
        custom = client.CustomObjectsApi(api)

        def sizes() -> dict[str, int]:
            items = custom.list_namespaced_custom_object(group, "v1", namespace, "boats")["items"]
            return {item["metadata"]["name"]: item["spec"]["size"] for item in items}

        helm = helm_sdkpy.Configuration(namespace=namespace, kubeconfig=kubeconfig)
        how: dict[str, Any] = {"server_side_apply": True, "wait": False, "disable_openapi_validation": False}
        await helm_sdkpy.Install(helm).run("harbour", chart, {"size": 3}, **how)
        seen = [sizes()]
        await helm_sdkpy.Upgrade(helm).run("harbour", chart, {"size": 5}, **how)
        seen.append(sizes())
        bad = ""
        try:
            await helm_sdkpy.Upgrade(helm).run("harbour", chart, {"size": 0}, **how)
        except helm_sdkpy.UpgradeError as refusal:
            bad = str(refusal)
        await helm_sdkpy.Uninstall(helm).run("harbour", wait=False)
        seen.append(sizes())
        return {"sizes": seen, "bad": bad}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(*sys.argv[1:]))))
