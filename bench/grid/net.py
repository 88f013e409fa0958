"""Regions as network namespaces whose links have a bandwidth and no delay, as in one rack.

Each region's device is joined to one bridge. `tc tbf` limits the region's sending and its receiving
to the same rate. The methods are those of longhaul-wanem's regions in bench/frontdoor.py; its
daemon in user space would be the bottleneck at 5 Gbit/s.
"""
import json
import subprocess
import sys
import time

INTERFACE = "eth0"
SEND = ("import socket, sys, time\n"
        "s = socket.create_connection((sys.argv[1], int(sys.argv[2])))\n"
        "end, data = time.monotonic() + float(sys.argv[3]), bytes(1 << 16)\n"
        "while time.monotonic() < end: s.sendall(data)\n")


def must(*words):
    """Runs a command of iproute2; raises its error message."""
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}: {done.stderr.strip()} (shaped links need root, "
                         "iproute2 and a kernel with veth, bridge and sch_tbf)")
    return done.stdout


class Shaped:
    """The regions of one cell; close() leaves no namespace."""

    interface = INTERFACE

    def __init__(self, regions, mbit, name):
        self.regions, self.mbit = list(regions), mbit
        self.switch = f"{name}-switch"
        self.made = []
        try:
            self._make(name)
        except BaseException:
            self.close()
            raise

    def _make(self, name):
        self.space = {region: f"{name}-{region}" for region in self.regions}
        for space in (self.switch, *self.space.values()):
            must("ip", "netns", "add", space)
            self.made.append(space)
            must("ip", "-n", space, "link", "set", "lo", "up")
        must("ip", "-n", self.switch, "link", "add", "br0", "type", "bridge")
        must("ip", "-n", self.switch, "link", "set", "br0", "up")
        for region, space in self.space.items():
            must("ip", "-n", self.switch, "link", "add", region, "type", "veth", "peer", "name",
                 INTERFACE, "netns", space)
            must("ip", "-n", self.switch, "link", "set", region, "master", "br0", "up")
            must("ip", "-n", space, "addr", "add", f"{self.host(region)}/24", "dev", INTERFACE)
            must("ip", "-n", space, "link", "set", INTERFACE, "up")
            self._shape(space, INTERFACE)
            self._shape(self.switch, region)

    def _shape(self, space, device):
        """A queue of 20 ms, and a burst of 1 ms or two segments as the kernel forms them."""
        burst = max(131072, int(self.mbit * 125)) if self.mbit >= 10 else 16384
        must("tc", "-n", space, "qdisc", "add", "dev", device, "root", "tbf", "rate",
             f"{int(self.mbit * 1000)}kbit", "burst", str(burst), "latency",
             "20ms" if self.mbit >= 10 else "400ms")

    def host(self, region):
        """The address of a region; the hub is the first one."""
        at = 0 if region == "hub" else self.regions.index(region)
        return f"10.78.0.{at + 1}"

    def address(self, region, port):
        """Where a program of a region listens."""
        return f"{self.host(region)}:{port}"

    def enter(self, region):
        """The prefix of a command that shall run in a region."""
        space = self.space[self.regions[0] if region == "hub" else region]
        return ["ip", "netns", "exec", space]

    def sent(self):
        """Bytes that the first region sent and received so far."""
        said = json.loads(must("ip", "-n", self.space[self.regions[0]], "-j", "-s", "link", "show",
                               "dev", INTERFACE))[0]["stats64"]
        return said["tx"]["bytes"], said["rx"]["bytes"]

    def measured(self, seconds=1.0):
        """Mbit/s that one TCP flow carries from the first region to the second."""
        first, second = self.regions[:2]
        code = ("import socket\n"
                f"s = socket.create_server(('{self.host(second)}', 7790))\n"
                "print('ready', flush=True)\n"
                "c = s.accept()[0]\n"
                "while c.recv(1 << 20): pass\n")
        with subprocess.Popen([*self.enter(second), sys.executable, "-c", code],
                              stdout=subprocess.PIPE, text=True) as sink:
            sink.stdout.readline()
            before, begun = self.sent()[0], time.monotonic()
            subprocess.run([*self.enter(first), sys.executable, "-c", SEND, self.host(second),
                            "7790", str(seconds)], check=True)
            sink.wait()
            return (self.sent()[0] - before) * 8e-6 / (time.monotonic() - begun)

    def close(self):
        """Removes every namespace; their devices are removed with them."""
        while self.made:
            subprocess.run(["ip", "netns", "del", self.made.pop()], check=False)
