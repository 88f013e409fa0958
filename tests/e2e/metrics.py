#!/usr/bin/env python3
"""Metrics of the real programs: `metrics.py --build BUILD`.

Three regions, two shard servers and a coordinator on loopback, each with `http.listen`. Every row
of the registry is exported by a process. A real Prometheus scrapes them and answers every query of
deploy/prometheus; the alert rules' own cases run in promtool. The coordinator serves its page,
curves and log. Probes are answered.
"""
import argparse
import contextlib
import json
import pathlib
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request

from world import REGIONS, Failure, World, check, until

TREE = pathlib.Path(__file__).resolve().parents[2]
RULES = TREE / "deploy/prometheus"
# Metrics that a healthy run on loopback does not export.
RARE = {"longhaul_loop_metric", "longhaul_loop_last_exit",
        "longhaul_learning_rate", "longhaul_alarm_active",
        "longhaul_run_paused_timestamp_seconds", "longhaul_privacy_epsilon",
        "longhaul_privacy_charged_steps", "longhaul_member_epsilon",
        "longhaul_member_charged_steps", "longhaul_leads", "longhaul_leader_number",
        "longhaul_coordinator_store_away"}


def get(address, path, code=200):
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=20) as answer:
            text, status = answer.read().decode(), answer.status
    except urllib.error.HTTPError as error:
        text, status = error.read().decode(), error.code
    check(status == code, f"{path} of {address}: {status}, not {code}: {text[:200]}")
    return text


def families(text):
    return {line.split("{")[0].split(" ")[0] for line in text.splitlines()
            if line and line[0] != "#"}


def registry():
    """name -> (type, letters of the roles), from the page generated from the registry."""
    rows = re.findall(r"^\| `(longhaul_\w+)` \| (\w+) \| ([\w, ]+) \|",
                      (TREE / "deploy/docs/metrics.md").read_text(encoding="utf-8"), re.M)
    check(len(rows) > 40, "the registry's page has too few rows")
    return {name: (kind, roles) for name, kind, roles in rows}


def tools(build):
    """Debian's prometheus and promtool, unpacked in the build folder: nothing is installed."""
    place = pathlib.Path(build).resolve().parent / "prometheus"
    if not (place / "usr/bin/promtool").exists():
        place.mkdir(parents=True, exist_ok=True)
        subprocess.run(["apt-get", "-qq", "download", "prometheus"], cwd=place, check=True,
                       stderr=subprocess.DEVNULL)
        package = next(place.glob("prometheus_*.deb"))
        subprocess.run(["dpkg", "-x", package, place], check=True)
        package.unlink()
    return place / "usr/bin"


def queries():
    alerts = re.findall(r"^ +expr: (.+)$", (RULES / "alerts.yml").read_text(encoding="utf-8"), re.M)
    board = json.loads((RULES / "dashboard.json").read_text(encoding="utf-8"))
    return alerts, [t["expr"] for p in board["panels"] for t in p["targets"]]


def told_by(nodes):
    """Metric -> kinds of the nodes that export it."""
    told = {}
    for node in nodes:
        text = get(node.http, "/metrics")
        for family in families(text):
            told.setdefault(re.sub("_(bucket|sum|count)$", "", family), set()).add(node.kind)
        for line in text.splitlines():  # each sample stands once
            check(text.count("\n" + line.rsplit(" ", 1)[0] + " ") <= 1 or line[0] == "#",
                  f"{node.name}: twice: {line}")
    return told


def check_told(nodes):
    wanted = {name for name in registry() if name not in RARE}
    with contextlib.suppress(Failure):  # the missing ones are reported below
        until("every metric is told", lambda: wanted <= set(told_by(nodes)))
    told = set(told_by(nodes))
    check(wanted <= told, f"no process tells {wanted - told}")
    check(told <= set(registry()), f"{told - set(registry())} are not of the registry")


def check_prometheus(world, nodes):
    place, alerts, board = tools(world.build), *queries()
    for what in (["check", "rules", RULES / "alerts.yml"],
                 ["test", "rules", RULES / "alerts_test.yml"]):
        ran = subprocess.run([place / "promtool", *what], cwd=RULES, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        check(ran.returncode == 0, f"promtool {what[0]} {what[1]}: {ran.stdout}")
    config = pathlib.Path(world.dir) / "prometheus.yml"
    config.write_text(json.dumps({
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(RULES / "alerts.yml")],
        "scrape_configs": [{"job_name": "longhaul",
                            "static_configs": [{"targets": [n.http for n in nodes]}]}]}),
        encoding="utf-8")
    log = open(pathlib.Path(world.dir) / "prometheus.log", "w", encoding="utf-8")
    server = subprocess.Popen(
        [place / "prometheus", f"--config.file={config}", "--web.listen-address=127.0.0.1:0",
         f"--storage.tsdb.path={world.dir}/prometheus"], stdout=log, stderr=log)
    try:
        def listens():
            text = pathlib.Path(log.name).read_text(encoding="utf-8")
            found = re.search(r"Listening on\" address=(127\.0\.0\.1:\d+)", text)
            return found and "ready to receive web requests" in text and found.group(1)

        def ask(query):
            quoted = urllib.parse.urlencode({"query": query})
            answer = json.loads(get(address, f"/api/v1/query?{quoted}"))
            check(answer["status"] == "success", f"{query}: {answer}")
            return answer["data"]["result"]

        address = until("Prometheus listens", listens)
        until("it has scraped all", lambda: len(ask("up == 1")) == len(nodes))
        until("rates are known", lambda: ask("rate(longhaul_push_seconds_count[5m]) > 0"))
        for query in alerts:
            ask(query)  # Prometheus parses it
        for query in board:
            until(f"{query} has an answer", lambda q=query: ask(q))
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(60)
        log.close()


def check_page(coordinator):
    page = get(coordinator.http, "/")
    check("<title>Longhaul</title>" in page and "http" not in
          re.sub(r"http://www\.w3\.org/\S+", "", page), "the page fetches something from outside")
    until("curves", lambda: any(s["metric"] == "longhaul_member_loss" for s in json.loads(
        get(coordinator.http, "/history.json"))["series"]))
    check("program.begin" in get(coordinator.http, "/log"), "its log is not shown")


def check_probes(worker):
    check(get(worker.http, "/readyz") == get(worker.http, "/healthz") == "ok\n", "it is not ready")


def play(world):
    http = {"http.listen": "127.0.0.1:0"}
    coordinator = world.coordinator(**http).start().listening()
    store = {"checkpoint.store": f"file://{world.path('store')}"}
    servers = [world.server(i, coordinator, **http, **store).start().listening() for i in range(2)]
    workers = [world.worker(region, coordinator, **http, **{"trainer.tokens_per_s": 1500}).start()
               for region in REGIONS]
    nodes = [coordinator, *servers, *workers]
    for node in nodes:
        node.http = until(f"{node.name} tells where", lambda n=node: n.status().get("http"))
    until("pushes", lambda: all(w.status().get("accepted", 0) > 3 for w in workers))
    until("checkpoints", lambda: all(
        sum(s.status()["seconds"]["checkpoint"]["count"]) for s in servers))
    check_told(nodes)
    check_prometheus(world, nodes)
    check_page(coordinator)
    check_probes(workers[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", required=True)
    flags = parser.parse_args()
    with World(flags.build, units=960) as world:
        play(world)
    print("ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
