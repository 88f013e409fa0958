"""The stages of an exchange: when each stage of its pushes ended at all processes, by their logs'
common clock (`mono_us`), for round.py.

The author knows a push by its step, the others by its version, which the author logs
(`push.folded`). A server logs pushes in the order of their versions. Only pushes count that cross a
link twice: to a server in another region, and from there to a worker in a third one.
"""
import os
import re

import live

NAMED = re.compile(r"shard (\d+): (\w+/\d+)(?: is version (\d+))?")
FOLDED = re.compile(r"shard (\d+): version (\d+) kind 1")
GROUP = ("group.made", "group.synced", "group.done")
STAGES = (  # name, first and last event, the link's own share
    ("encode", "push.cut", "push.encoded", ""),
    ("seal_and_disk", "push.encoded", "push.made", ""),
    ("to_send", "push.made", "push.sent", ""),
    ("to_server", "push.sent", "push.received", "trip bytes"),
    ("unseal", "push.received", "push.unsealed", ""),
    ("wait_for_group", "push.unsealed", "group.made", ""),
    ("log", "group.made", "group.synced", ""),
    ("fold", "group.synced", "group.done", ""),
    ("to_follower", "group.done", "folded", "trip bytes"),
    ("to_author", "group.done", "push.decided", "trip"),
    ("whole", "push.cut", "folded", "trip bytes trip bytes"),
)


def _events(run, node):
    for e in live.Run.log(run, node):
        yield e["event"], e["mono_us"] / 1e6, e.get("text", "")


def _of_author(run, worker):
    """{(shard, version): time of each event} of its pushes; the same of records that it folded."""
    pushes, versions, folded = {}, {}, {}
    for event, at, text in _events(run, worker):
        if event.startswith("push.") and (said := NAMED.match(text)):
            pushes.setdefault(said.group(1, 2), {}).setdefault(event, at)
            if said[3]:
                versions[said.group(1, 2)] = int(said[1]), int(said[3])
        elif event == "record.folded" and (said := FOLDED.match(text)):
            folded[int(said[1]), int(said[2])] = at
    return {versions[name]: push for name, push in pushes.items() if name in versions}, folded


def _of_server(run, server):
    """The time of each event, for each push to its one shard, in the order of their versions."""
    events = list(_events(run, server))
    sizes = [int(text.split()[2]) for event, _, text in events if event == "push.begun"]
    received, unsealed = ([at for event, at, _ in events if event == which]
                          for which in ("push.received", "push.unsealed"))
    for size, first, last in zip(sizes, received, unsealed):
        push = {"bytes": size, "push.received": first, "push.unsealed": last}
        for which in GROUP:
            last = next((at for event, at, _ in events if event == which and at >= last), last)
            push[which] = last
        yield push


def measure(run, servers, rtt_ms, mbit):
    """{stage: ([seconds], the link's share)}. `servers`: (name, region) of each shard's."""
    authors = {worker: _of_author(run, worker) for worker in run.workers}
    took, share = {name: [] for name, *_ in STAGES}, {}
    for shard, (server, region) in enumerate(servers):
        mine = sorted((key, worker) for worker, (pushes, _) in authors.items()
                      for key in pushes if key[0] == shard)
        for (key, author), there in zip(mine, _of_server(run, server)):
            link = {"trip": rtt_ms / 2e3, "bytes": there["bytes"] * 8 / (mbit * 1e6)}
            for worker, (_, folded) in authors.items():
                if worker == author or key not in folded or \
                        any(who.startswith(region) for who in (worker, author)):
                    continue
                at = {**authors[author][0][key], **there, "folded": folded[key]}
                for name, begin, end, needs in STAGES:
                    if begin in at and end in at:
                        took[name].append(max(0.0, at[end] - at[begin]))
                    share[name] = sum(link[need] for need in needs.split())
    return {name: (seconds, share[name]) for name, seconds in took.items() if seconds}
