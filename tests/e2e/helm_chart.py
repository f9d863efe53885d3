"""Lints a chart and installs it once for each set of values, in its own process; prints the results as JSON."""

import asyncio
import json
import sys
from typing import Any

import helm_sdkpy


async def main(kubeconfig: str, namespace: str, chart: str, cases: str) -> dict[str, Any]:
    """`cases` holds values by release name, as JSON."""
    helm = helm_sdkpy.Configuration(namespace=namespace, kubeconfig=kubeconfig)
    shown: dict[str, Any] = {"lint": await helm_sdkpy.Lint(helm).run(chart)}
    for name, values in json.loads(cases).items():
        try:
            done = await helm_sdkpy.Install(helm).run(
                name, chart, values, wait=False, disable_openapi_validation=False, server_side_apply=True
            )
        except helm_sdkpy.HelmError as error:
            shown[name] = {"error": str(error)}
        else:
            shown[name] = {"manifest": done.get("manifest", ""), "notes": done.get("info", {}).get("notes", "")}
    return shown


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(*sys.argv[1:]))))
