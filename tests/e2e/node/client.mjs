// What users of @kubernetes/client-node do, told as one JSON object on standard output.
import * as k8s from "@kubernetes/client-node";

const config = new k8s.KubeConfig();
config.loadFromFile(process.argv[2]);
const namespace = process.argv[3];
const core = config.makeApiClient(k8s.CoreV1Api);
const apps = config.makeApiClient(k8s.AppsV1Api);
const objects = k8s.KubernetesObjectApi.makeApiClient(config);
const told = {};

const configMap = (name, data) => ({ apiVersion: "v1", kind: "ConfigMap", metadata: { name, namespace }, data });
const labels = { app: "web" };
const deployment = {
  apiVersion: "apps/v1",
  kind: "Deployment",
  metadata: { name: "web", namespace },
  spec: {
    replicas: 2,
    selector: { matchLabels: labels },
    template: { metadata: { labels }, spec: { containers: [{ name: "web", image: "web:1" }] } },
  },
};

async function until(done, what) {
  for (let tries = 0; tries < 200; tries++) {
    if (done()) return;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error(`waited in vain for ${what}`);
}

// The informer keeps a copy while the rest happens.
const listing = () => core.listNamespacedConfigMap({ namespace, labelSelector: "seen=yes" });
const informer = k8s.makeInformer(config, `/api/v1/namespaces/${namespace}/configmaps`, listing, "seen=yes");
const seen = [];
for (const kind of ["add", "update", "delete"]) informer.on(kind, (object) => seen.push([kind, object.metadata.name]));
let stopping = false;
informer.on("error", (error) => { if (!stopping) throw error; });
await informer.start();

const made = await core.createNamespacedConfigMap({ namespace, body: configMap("a", { k: "1" }) });
told.created = [made.metadata.name, made.metadata.creationTimestamp instanceof Date];
const read = await core.readNamespacedConfigMap({ name: "a", namespace });
read.metadata.labels = { seen: "yes" };
told.replaced = (await core.replaceNamespacedConfigMap({ name: "a", namespace, body: read })).metadata.labels;
try {
  await core.replaceNamespacedConfigMap({ name: "a", namespace, body: read });
} catch (error) {
  told.conflict = [error.code, JSON.parse(error.body).reason];
}

const patched = async (strategy, body) =>
  (await core.patchNamespacedConfigMap({ name: "a", namespace, body },
    k8s.setHeaderOptions("Content-Type", strategy))).data;
told.patches = [
  await patched(k8s.PatchStrategy.JsonPatch, [{ op: "replace", path: "/data/k", value: "2" }]),
  await patched(k8s.PatchStrategy.MergePatch, { data: { m: "3" } }),
  await patched(k8s.PatchStrategy.StrategicMergePatch, { data: { k: null } }),
];

await objects.create(deployment);
const applied = await objects.patch(
  { ...deployment, spec: { ...deployment.spec, replicas: 3 } }, undefined, undefined, "node", true,
  k8s.PatchStrategy.ServerSideApply);
told.applied = [applied.spec.replicas, applied.metadata.managedFields.map((one) => one.manager).includes("node")];
const scale = await apps.readNamespacedDeploymentScale({ name: "web", namespace });
scale.spec.replicas = 5;
told.scaled = (await apps.replaceNamespacedDeploymentScale({ name: "web", namespace, body: scale })).spec.replicas;

const events = [];
const watching = await new k8s.Watch(config).watch(
  `/api/v1/namespaces/${namespace}/configmaps`, { resourceVersion: made.metadata.resourceVersion },
  (kind, object) => events.push([kind, object.metadata.name]), () => {});
await core.createNamespacedConfigMap({ namespace, body: configMap("b", {}) });
await core.deleteNamespacedConfigMap({ name: "a", namespace });
await until(() => events.some(([kind]) => kind === "DELETED"), "the watch");
watching.abort();
told.events = events;
await until(() => seen.some(([kind]) => kind === "delete"), "the informer");
stopping = true;
await informer.stop();
told.seen = seen;

for (const name of ["c", "d", "e"]) await core.createNamespacedConfigMap({ namespace, body: configMap(name, {}) });
const names = [];
let _continue;
do {
  const page = await core.listNamespacedConfigMap({ namespace, limit: 2, _continue });
  names.push(...page.items.map((item) => item.metadata.name));
  _continue = page.metadata._continue;
} while (_continue);
told.pages = names;

try {
  await core.readNamespacedPod({ name: "nobody", namespace });
} catch (error) {
  told.missing = [error.code, JSON.parse(error.body).message];
}
told.version = (await config.makeApiClient(k8s.VersionApi).getCode()).major;
told.groups = (await config.makeApiClient(k8s.ApisApi).getAPIVersions()).groups.some((group) => group.name === "apps");
console.log(JSON.stringify(told));
