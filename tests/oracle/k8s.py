#!/usr/bin/env python3
"""`longhaul render k8s` against Kubernetes' schemas and its own references: `k8s.py --build BUILD`.

No cluster is needed. Each object passes the published schema of its kind (kubernetes-validate). For
JobSet and cert-manager, whose schemas are in no package, the fields that we use are listed here,
and a JobSet's templates are checked as the Jobs that it creates. Then every reference is resolved:
selectors, volumes, keys of secrets, ports of probes, the paths in each settings file; and the
identities are those that `longhaul certs` writes.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile

import kubernetes_validate
import yaml

TOPOLOGY = """run: demo.1
budget_tokens: 100000
model: {vocabulary: 32, dim: 8, layers: 1, heads: 2, kv_heads: 2, ffn: 16, context: 16}
coordinator: {region: europe}
servers: [{name: shard_0, region: europe, shards: [0]}, {name: s1, region: asia, shards: [1]}]
regions:
  europe: {workers: 2}
  asia: {gpus: 8, hosts: 2}
  africa: {ranks: 3, hosts: 2}
  america: {command: [python, "it's.py", "{worker}", "{data}"]}
  na_1: {ranks: 2, data: /srv/here}
"""
PAIR = """server:
  coordinator.store: etcd://a.example:2379,b.example:2379/longhaul
  coordinator.store_secrets: wherever
"""
DOMAIN, IMAGE = "train.example.org", "registry.example.org/longhaul:1"
VERSION = "1.29"
LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
CERTIFICATE = {"secretName", "commonName", "subject", "uris", "dnsNames", "usages", "privateKey",
               "duration", "renewBefore", "issuerRef"}
JOBSET = {"network": {"enableDNSHostnames", "subdomain", "publishNotReadyAddresses"},
          "replicatedJobs": {"name", "replicas", "template"}}
# Secrets that the operator creates: name -> keys (deploy/docs/kubernetes.md).
GIVEN = {"longhaul-job": {"job.keys"}, "longhaul-signers": {"signers"}}
OWN = {"longhaul-etcd"}  # secrets whose keys are the operator's choice
MADE = {"ca.crt", "tls.crt", "tls.key"}  # keys of a certificate's secret


def check(holds, text):
    if not holds:
        raise SystemExit(f"FAILED: {text}")


def tool(build, *words, code=0):
    done = subprocess.run([os.path.join(build, "deploy", "longhaul"), *words], text=True,
                          capture_output=True, check=False)
    check(done.returncode == code, f"longhaul {words}: {done.returncode}: {done.stderr}")
    return done.stdout + done.stderr


class Cluster:
    """The objects that `kubectl apply -k FOLDER` would send, for the kustomizations we use."""

    def __init__(self, folder):
        self.folder, self.objects = folder, []
        top = self.load("kustomization.yaml")[0]
        check(set(top) == {"apiVersion", "kind", "namespace", "resources", "generatorOptions",
                           "configMapGenerator"}, f"{folder}: {set(top)}")
        self.namespace = top["namespace"]
        for name in top["resources"]:
            self.objects += self.load(name)
        check(top["generatorOptions"] == {"disableNameSuffixHash": True}, f"{folder}: hashes")
        self.settings = {}
        for made in top["configMapGenerator"]:
            for name in made["files"]:
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    self.settings[os.path.basename(name)] = file.read()
            self.objects.append({"apiVersion": "v1", "kind": "ConfigMap", "data": self.settings,
                                 "metadata": {"name": made["name"]}})
        check(set(os.listdir(os.path.join(folder, "settings"))) == set(self.settings),
              f"{folder}: settings that no ConfigMap has")
        check(sum(map(len, self.settings.values())) < 1 << 20, f"{folder}: a large ConfigMap")
        for item in self.objects:
            if item["kind"] != "Namespace":
                item["metadata"]["namespace"] = self.namespace

    def load(self, name):
        with open(os.path.join(self.folder, name), encoding="utf-8") as file:
            text = file.read()
        check(text.startswith("# ") and "Not run on a cluster by us." in text.split("\n")[0],
              f"{self.folder}/{name} does not say that it was not run")
        return [item for item in yaml.safe_load_all(text) if item]

    def of(self, kind):
        return [item for item in self.objects if item["kind"] == kind]

    def names(self, kind):
        return {item["metadata"]["name"] for item in self.of(kind)}

    def jobs(self):
        """The Jobs that a JobSet creates."""
        for item in self.of("JobSet"):
            for job in item["spec"]["replicatedJobs"]:
                name = f"{item['metadata']['name']}-{job['name']}-0"
                yield {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
                       **job["template"]}

    def pods(self):
        """(name, template) of all pods."""
        for item in [*self.of("StatefulSet"), *self.of("Deployment"), *self.jobs()]:
            yield item["metadata"]["name"], item["spec"]["template"]


def check_schemas(cluster):
    for item in [*cluster.objects, *cluster.jobs()]:
        name, kind = item["metadata"]["name"], item["kind"]
        check(LABEL.fullmatch(name), f"{kind} {name}: no DNS label")
        if kind == "JobSet":
            check(set(item["spec"]) == set(JOBSET), f"JobSet: {set(item['spec'])}")
            check(set(item["spec"]["network"]) == JOBSET["network"], "JobSet: network")
            for job in item["spec"]["replicatedJobs"]:
                check(set(job) == JOBSET["replicatedJobs"], f"JobSet: {set(job)}")
                last = job["template"]["spec"]["completions"] - 1
                check(len(f"{name}-{job['name']}-0-{last}") <= 63, f"{name}: a long host name")
        elif kind == "Certificate":
            check(set(item["spec"]) == CERTIFICATE, f"Certificate: {set(item['spec'])}")
        else:
            try:
                kubernetes_validate.validate(item, VERSION, strict=True)
            except kubernetes_validate.ValidationError as error:
                check(False, f"{cluster.folder}: {kind} {name}: {error}")
    pairs = [(item["kind"], item["metadata"]["name"]) for item in cluster.objects]
    check(len(pairs) == len(set(pairs)), f"{cluster.folder}: two objects of one name: {pairs}")


def selects(selector, labels):
    return all(labels.get(key) == value for key, value in selector.items())


def check_selectors(cluster):
    labels = [pod["metadata"]["labels"] for _, pod in cluster.pods()]
    for item in cluster.of("StatefulSet") + cluster.of("Deployment"):
        wanted, got = item["spec"]["selector"]["matchLabels"], item["spec"]["template"]
        check(selects(wanted, got["metadata"]["labels"]), f"{item['metadata']['name']}: {wanted}")
        check(sum(selects(wanted, each) for each in labels) == 1, f"{wanted} selects others, too")
    for item in cluster.of("StatefulSet"):
        check(item["spec"]["serviceName"] in cluster.names("Service"), "a StatefulSet's service")
    for item in cluster.of("Service"):
        check(sum(selects(item["spec"]["selector"], each) for each in labels) == 1,
              f"service {item['metadata']['name']} selects no pod, or several")
        check(item["spec"]["publishNotReadyAddresses"], "a server is reached while it is rebuilt")
    for item in cluster.of("PodDisruptionBudget"):
        selector = item["spec"]["selector"]["matchLabels"]
        of = {"servers": "StatefulSet", "coordinators": "Deployment"}[item["metadata"]["name"]]
        check(sum(selects(selector, each) for each in labels) == len(cluster.of(of)),
              f"a budget that is not of all: {selector}")


def secret_keys(cluster, name):
    if name in GIVEN:
        return GIVEN[name]
    if name.endswith("-sign"):
        return {f"{server}.sign" for server in ("shard_0", "s1")}
    made = {item["spec"]["secretName"] for item in cluster.of("Certificate")}
    return MADE if name in made else set()


def check_volumes(cluster, name, pod, templates=()):
    """Gives the paths of the pod's files, and of its folders."""
    spec, files, folders = pod["spec"], set(), set()
    volumes = {v["name"]: v for v in spec["volumes"]}
    mounts = spec["containers"][0]["volumeMounts"]
    paths = [m["mountPath"] for m in mounts]
    check(len(paths) == len(set(paths)), f"{name}: {paths}")
    check({m["name"] for m in mounts} == set(volumes) | set(templates), f"{name}: {mounts}")
    for mount in mounts:
        volume = volumes.get(mount["name"], {})
        at = mount["mountPath"]
        if "configMap" in volume:
            check(volume["configMap"]["name"] in cluster.names("ConfigMap"), f"{name}: {volume}")
            files |= {f"{at}/{key}" for key in cluster.settings}
        elif "projected" in volume:
            check(volume["projected"]["defaultMode"] == 0o440, f"{name}: its secrets' mode")
            for source in volume["projected"]["sources"]:
                for item in source["secret"]["items"]:
                    keys = secret_keys(cluster, source["secret"]["name"])
                    check(item["key"] in keys, f"{name}: no {item} in {source}")
                    files.add(f"{at}/{item['path']}")
        else:
            claim, secret = volume.get("persistentVolumeClaim"), volume.get("secret")
            check(not secret or secret["secretName"] in OWN, f"{name}: {secret}")
            check(not claim or claim["claimName"] in cluster.names("PersistentVolumeClaim"),
                  f"{name}: {claim}")
            folders.add(at)
    return files, folders


def check_settings(name, text, files, folders):
    """Each path in a settings file exists in the pod."""
    found = 0
    for key, value in re.findall(r'^([\w.]+): "([^"]*)"', text, re.M):
        if not value.startswith("/"):
            continue
        found += 1
        inside = any(value.startswith(folder + "/") or value == folder for folder in folders)
        check(value in files or inside, f"{name}: {key} is {value}, which no pod has")
    check(found >= 4, f"{name}: {found} paths")


def check_pods(cluster, build):
    templates = {item["metadata"]["name"]: [v["metadata"]["name"] for v in
                                            item["spec"]["volumeClaimTemplates"]]
                 for item in cluster.of("StatefulSet")}
    used = set()
    for name, pod in cluster.pods():
        container, = pod["spec"]["containers"]
        files, folders = check_volumes(cluster, name, pod, templates.get(name, ()))
        words = " ".join(container["command"])
        check(container["image"] == IMAGE, f"{name}: {container['image']}")
        ports = {port["name"] for port in container.get("ports", [])}
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            if probe in container:
                check(container[probe]["httpGet"]["port"] in ports, f"{name}: {probe}")
        check(pod["spec"]["securityContext"]["runAsNonRoot"]
              and not container["securityContext"]["allowPrivilegeEscalation"], name)
        if "host.sh" in words:
            _, worker = re.search(r"(host\.sh)\W+(\d+)", words).groups()
            own = [key for key in cluster.settings if re.search(rf"-{worker}(\.\d+)?\.yaml", key)]
        else:
            own = [os.path.basename(container["command"][-1])]
        check(own, f"{name}: no settings")
        for key in own:
            used.add(key)
            check_settings(f"{name}/{key}", cluster.settings[key], files, folders)
            kind = "worker" if "host.sh" in words else "server"
            tool(build, "config", "check", os.path.join(cluster.folder, "settings", key), "--kind",
                 kind)
    check(used | {"host.sh"} == set(cluster.settings) | {"host.sh"}, f"{cluster.folder}: {used}")
    if "host.sh" in cluster.settings:
        subprocess.run(["bash", "-n"], input=cluster.settings["host.sh"], text=True, check=True)


def check_identities(cluster, build, folder):
    """The certificates' identities, as `longhaul certs issue` writes them."""
    for item in cluster.of("Certificate"):
        spec = item["spec"]
        uri, = spec["uris"]
        _, domain, _, run, role, region, name = uri.replace("//", "/").split("/")
        check(domain == DOMAIN and run == "demo.1" and spec["commonName"] == name, uri)
        home = os.path.basename(cluster.folder)
        check(home == "servers" or (role, region) == ("worker", home), f"{home}: {uri}")
        tool(build, "certs", "issue", "--dir", f"{folder}/ca", "--run", run, "--role", role,
             "--region", region, "--name", name, "--out", f"{folder}/certs", "--replace")
        said = subprocess.run(["openssl", "x509", "-noout", "-ext", "subjectAltName", "-in",
                               f"{folder}/certs/{name}.pem"], capture_output=True, text=True,
                              check=True).stdout
        check(f"URI:{uri}" in said and f"DNS:{spec['dnsNames'][0]}" in said, f"{uri}: {said}")


def check_regions(clusters):
    asia, africa = clusters["asia"], clusters["africa"]
    gpus = [pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"]
            for _, pod in asia.pods()]
    check(gpus == [4, 4], f"GPUs of each host: {gpus}")
    names = [job["metadata"]["name"] for job in africa.jobs()]
    check(names == ["africa-worker-0-0", "africa-ranks-0-0"], f"{names}")
    for job in africa.jobs():
        container = job["spec"]["template"]["spec"]["containers"][0]
        env = {item["name"]: item.get("value") for item in container["env"]}
        check(env["LEADER"] == "africa-worker-0-0-0.africa:7701", f"{env}")
    for name, cluster in clusters.items():
        policy, = cluster.of("NetworkPolicy")
        apart = name in ("asia", "africa")
        check(policy["spec"]["podSelector"] == {}, f"{name}: a pod without a policy")
        for rule in policy["spec"]["ingress"]:
            check(apart and rule == {"from": [{"podSelector": {}}]}, f"{name}: lets in {rule}")


def check_page():
    """The objects that deploy/docs/kubernetes.md tells an operator to create."""
    page = os.path.join(os.path.dirname(__file__), "..", "..", "deploy", "docs", "kubernetes.md")
    with open(page, encoding="utf-8") as file:
        blocks = re.findall(r"```yaml\n(.*?)```", file.read(), re.S)
    found = [yaml.safe_load(text) for text in blocks]
    check([item["kind"] for item in found] == ["Issuer", "Pod"], f"{found}")
    kubernetes_validate.validate(found[1], VERSION, strict=True)
    pod, = (item["spec"] for item in found if item["kind"] == "Pod")
    container, = pod["containers"]
    confined = container["securityContext"]  # required by the namespace's label
    check(pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["seccompProfile"] ==
          {"type": "RuntimeDefault"} and confined["capabilities"] == {"drop": ["ALL"]}
          and confined["allowPrivilegeEscalation"] is False, "the namespace refuses that pod")


def check_pair(build, folder):
    """Two coordinators on an etcd: each has the etcd's secrets, all other pods both addresses."""
    with open(f"{folder}/pair.yaml", "w", encoding="utf-8") as out:
        out.write(TOPOLOGY + PAIR)
    tool(build, "render", "k8s", f"{folder}/pair.yaml", "--out", f"{folder}/pair", "--domain",
         DOMAIN, "--image", IMAGE)
    servers = Cluster(f"{folder}/pair/servers")
    check_schemas(servers)
    check_selectors(servers)
    check_pods(servers, build)
    check_identities(servers, build, folder)
    check(servers.names("Deployment") == {"coordinator", "coordinator-b"}, "two coordinators")
    both = f"coordinator.{DOMAIN}:7700,coordinator-b.{DOMAIN}:7700"
    for name in ("s1", "shard_0"):
        text = servers.settings[name + ".yaml"]
        check(f'coordinator: "{both}"' in text and "etcd" not in text, text)
    check('dir: "/var/lib/longhaul/coordinator-b"' in servers.settings["coordinator-b.yaml"], "dir")


def check_stored(build, folder):
    """Data and checkpoints in S3: the pods that use it have its access key."""
    stored = "".join(line for line in TOPOLOGY.splitlines(True) if "command" not in line)
    stored = stored.replace(", data: /srv/here", "")
    with open(f"{folder}/stored.yaml", "w", encoding="utf-8") as out:
        out.write(stored + 'server: {checkpoint.store: "s3://b/checkpoints"}\n')
    tool(build, "render", "k8s", f"{folder}/stored.yaml", "--out", f"{folder}/stored", "--domain",
         DOMAIN, "--image", IMAGE, "--data", "s3://b/units")
    for place in ("servers", "regions/europe", "regions/asia"):
        cluster = Cluster(f"{folder}/stored/{place}")
        check_schemas(cluster)
        check_pods(cluster, build)
        for name, pod in cluster.pods():
            source, = pod["spec"]["containers"][0]["envFrom"]
            check(source == {"secretRef": {"name": "longhaul-store", "optional": True}}, name)
            check(pod["spec"]["serviceAccountName"] in cluster.names("ServiceAccount"), name)


def main():
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--build", required=True)
    build = flags.parse_args().build
    with tempfile.TemporaryDirectory(prefix="longhaul-k8s-") as folder:
        with open(f"{folder}/t.yaml", "w", encoding="utf-8") as out:
            out.write(TOPOLOGY)
        tool(build, "render", "k8s", f"{folder}/t.yaml", "--out", f"{folder}/out", "--domain",
             DOMAIN, "--image", IMAGE)
        tool(build, "certs", "init", "--dir", f"{folder}/ca", "--domain", DOMAIN)
        regions = {name: Cluster(f"{folder}/out/regions/{name}")
                   for name in sorted(os.listdir(f"{folder}/out/regions"))}
        check(len(regions) == 5, f"{list(regions)}")
        servers = Cluster(f"{folder}/out/servers")
        for cluster in (servers, *regions.values()):
            check(cluster.namespace == "longhaul-demo-1" and
                  cluster.names("Namespace") == {cluster.namespace}, cluster.namespace)
            check_schemas(cluster)
            check_selectors(cluster)
            check_pods(cluster, build)
            check_identities(cluster, build, folder)
        check_regions(regions)
        check("job.keys" not in servers.settings["coordinator.yaml"], "a key that it does not need")
        check(len(servers.of("StatefulSet")) == 2 and len(servers.of("Deployment")) == 1, "kinds")
        check_page()
        check_pair(build, folder)
        check_stored(build, folder)
        objects = sum(len(c.objects) for c in (servers, *regions.values()))
    print(f"{objects} objects in {1 + len(regions)} clusters: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
