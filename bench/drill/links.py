"""A world of longhaul-wanem that lasts as long as this process, and faults of its links."""
import contextlib
import ctypes
import os
import random
import re
import signal
import subprocess
import threading

UNITS_MS = {"s": 1000.0, "ms": 1.0, "us": 0.001}
STORM_LOSS = "30%"


def _die_with_parent():
    """In the child: gets SIGTERM when the drill ends."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)


def _ms(text):
    number, unit = re.fullmatch(r"([\d.e+]+)(s|ms|us)", text).groups()
    return float(number) * UNITS_MS[unit]


class Links:
    """The regions in their order, the delay in ms and the loss of each directed pair."""

    def __init__(self, build, path, instance):
        self.program = [os.path.join(os.path.abspath(build), "deploy", "longhaul-wanem"), "-n",
                        instance]
        self.daemon = subprocess.Popen([*self.program, "up", "-f", path], stdout=subprocess.PIPE,
                                       text=True, preexec_fn=_die_with_parent)
        if not self.daemon.stdout.readline().endswith(" is up\n"):
            raise SystemExit(f"no emulated links (they need root and /dev/net/tun): {path}")
        self.regions, self.delay_ms, self.loss = [], {}, {}
        self.stormy, self.over = threading.Lock(), threading.Event()
        self._read()

    def _read(self):
        regions, pairs = self.tell("show").split("\n\n")
        self.regions = [line.split()[0] for line in regions.splitlines()[1:]]
        for line in pairs.splitlines()[1:]:
            near, far, delay, _, _, _, loss = line.split()[:7]
            self.delay_ms[near, far], self.loss[near, far] = _ms(delay), loss

    def tell(self, *words):
        return subprocess.run([*self.program, *words], check=True, capture_output=True,
                              text=True).stdout

    def rtt_s(self, near, far):
        if near == far:
            return 0.0
        return (self.delay_ms[near, far] + self.delay_ms[far, near]) / 1000

    def address(self, region, port):
        return f"10.77.{self.regions.index(region) + 1}.1:{port}"

    def enter(self, region):
        """The prefix of a command that shall run in a region."""
        return [*self.program, "exec", region, "--"]

    @contextlib.contextmanager
    def cut(self, region):
        self.tell("cut", region)
        yield
        self.tell("heal", region)

    @contextlib.contextmanager
    def storm(self, region):
        """Many packets are lost on all paths to and from a region."""
        with self.stormy:
            self.tell("set", region, "all", f"loss={STORM_LOSS}")
            yield
            for (near, far), loss in self.loss.items():
                if region in (near, far):
                    self.tell("set", near, "to", far, f"loss={loss}")

    def weather(self, region, seed):
        """Short storms from now on, until the end."""
        def blow():
            draw = random.Random(seed)
            while not self.over.wait(draw.uniform(7, 13)):
                with self.storm(region):
                    self.over.wait(draw.uniform(0.5, 1.5))
        threading.Thread(target=blow, daemon=True).start()

    def close(self):
        self.over.set()
        with self.stormy:
            self.daemon.terminate()
            self.daemon.wait()
            self.daemon.stdout.close()
