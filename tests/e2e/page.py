#!/usr/bin/env python3
"""The coordinator's page in a browser: `page.py --build BUILD`.

A run has an alarm, and an operator has paused it with a reason that is HTML. Headless Chromium
opens the page, light and dark, at the width of a desktop screen and of a phone: the alarm, the
regions and their curves are there, nothing is wider than the screen, the reason is shown as text.
The page sends requests only to the coordinator, and only reads. The pictures are in
BUILD/page-*.png.

Debian's chromium-headless-shell and its libraries are unpacked beside the build folder: nothing is
installed. Exit status 77 if the package cannot be downloaded.
"""
import base64
import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import zlib

from loopback import play
from world import REGIONS, check, until

PACKAGE, FONTS = "chromium-headless-shell", "fonts-dejavu-core"
WORDS = "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>"
SIZES = {"desk": (1280, 1000), "phone": (390, 844)}
RULES = "trains: loss > 0 for 1s\nfull: disk_free < 1MB"


def browser(build):
    """The program, and its library folders."""
    place = pathlib.Path(build).resolve().parent / "chromium"
    program = place / "usr/lib/chromium" / PACKAGE
    if not program.exists():
        place.mkdir(parents=True, exist_ok=True)
        tried = subprocess.run(["apt-get", "install", "-s", "--no-install-recommends", PACKAGE],
                               text=True, capture_output=True, check=False)
        wanted = re.findall(r"^Inst (\S+)", tried.stdout, re.M)
        got = wanted and subprocess.run(["apt-get", "-qq", "download", *{*wanted, FONTS}],
                                        cwd=place, capture_output=True, check=False).returncode == 0
        if not got:
            print(f"skipped: apt-get has no {PACKAGE} here")
            sys.exit(77)
        for package in place.glob("*.deb"):
            subprocess.run(["dpkg", "-x", package, place], check=True)
            package.unlink()
        (place / "fonts.conf").write_text(
            f"<fontconfig><dir>{place}/usr/share/fonts</dir><cachedir>{place}/fonts</cachedir>"
            "</fontconfig>", encoding="utf-8")
    return program, ":".join(sorted({str(file.parent) for file in place.rglob("*.so*")}))


class Tab:
    """A browser's page, driven by the DevTools protocol over two pipes."""

    def __init__(self, build, folder):
        program, libraries = browser(build)
        theirs, self.out = os.pipe()
        self.into, answers = os.pipe()

        # The browser reads its descriptor 3 and writes 4.
        self.process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{theirs} 4>&{answers}', "bash", program, "--no-sandbox",
             "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe",
             f"--user-data-dir={folder}"],
            pass_fds=(theirs, answers), stderr=subprocess.DEVNULL,
            env={**os.environ, "LD_LIBRARY_PATH": libraries,
                 "FONTCONFIG_FILE": str(program.parents[3] / "fonts.conf")})
        os.close(theirs)
        os.close(answers)
        self.number, self.rest, self.events, self.session = 0, b"", [], None
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.ask(domain + ".enable")

    def next(self):
        while b"\0" not in self.rest:
            more = os.read(self.into, 1 << 20)
            check(more, "the browser has ended")
            self.rest += more
        text, self.rest = self.rest.split(b"\0", 1)
        return json.loads(text)

    def ask(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.next()
            if answer.get("id") == self.number:
                check("result" in answer, f"{method}: {answer}")
                return answer["result"]
            self.events.append(answer)

    def value(self, expression):
        got = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        check("exceptionDetails" not in got, f"{expression}: {got}")
        return got["result"].get("value")

    def look(self, size, scheme):
        width, height = SIZES[size]
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height,
                 deviceScaleFactor=1, mobile=size == "phone")
        self.ask("Emulation.setEmulatedMedia",
                 features=[{"name": "prefers-color-scheme", "value": scheme}])
        return base64.b64decode(self.ask("Page.captureScreenshot", format="png")["data"])

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.out)
        os.close(self.into)


def pixels(png):
    """(width, height, number of distinct rows of pixels) of a picture without interlace."""
    check(png[:8] == b"\x89PNG\r\n\x1a\n", "no PNG")
    width, height, depth, kind = struct.unpack(">IIBB", png[16:26])
    at, data = 8, b""
    while at < len(png):
        size, = struct.unpack(">I", png[at:at + 4])
        data += png[at + 8:at + 8 + size] if png[at + 4:at + 8] == b"IDAT" else b""
        at += 12 + size
    line = 1 + width * depth // 8 * {2: 3, 6: 4}[kind]
    raw = zlib.decompress(data)
    return width, height, len({raw[i:i + line] for i in range(0, len(raw), line)})


def check_text(tab):
    alarm = tab.value("document.getElementById('alarms').innerText")
    check(re.search(r"alarm trains of \w+: .*loss", alarm) and "full" not in alarm, alarm)
    phase = tab.value("document.getElementById('phase').innerText")
    check(phase.startswith("paused by ") and WORDS in phase, phase)
    check(tab.value("document.title") == "Longhaul", "words of the run were run as a script")
    check(tab.value("document.images.length") == 0, "words of the run became HTML")
    drawn = tab.value("document.getElementById('map').textContent")
    check(all(region in drawn for region in REGIONS), drawn)


def check_pictures(tab, build):
    backs = {}
    for size, (width, height) in SIZES.items():
        for scheme in ("light", "dark"):
            png = tab.look(size, scheme)
            (pathlib.Path(build) / f"page-{size}-{scheme}.png").write_bytes(png)
            seen = pixels(png)
            check(seen[:2] == (width, height) and seen[2] > 100, f"{size}, {scheme}: {seen}")
            backs[scheme] = tab.value("getComputedStyle(document.body).backgroundColor")
        wide = tab.value("document.scrollingElement.scrollWidth")
        check(wide <= width, f"{size}: it is {wide} pixels wide")
    check(backs["light"] != backs["dark"], f"{backs}")


def check_requests(tab, address):
    asked = [e["params"]["request"] for e in tab.events
             if e.get("method") == "Network.requestWillBeSent"]
    check({r["method"] for r in asked} == {"GET"}, f"{asked}")
    check(all(r["url"].startswith(f"http://{address}/") for r in asked),
          f"it asks others: {[r['url'] for r in asked]}")
    wrong = [e for e in tab.events if e.get("method") == "Runtime.exceptionThrown" or
             e.get("method") == "Log.entryAdded" and "favicon" not in json.dumps(e)]
    check(not wrong, f"{wrong}")


def page(world):
    browser(world.build)  # downloads it before anything runs
    coordinator = world.coordinator(**{"http.listen": "127.0.0.1:0", "coordinator.rules": RULES})
    coordinator.start().listening()
    servers = [world.server(i, coordinator).start().listening() for i in (0, 1)]
    workers = [world.worker(region, coordinator, **{"trainer.tokens_per_s": 2000}).start()
               for region in REGIONS]
    until("an alarm", lambda: any(a["active"] for a in coordinator.status().get("alarms", ())))
    address = until("it tells where", lambda: coordinator.status().get("http"))
    tab = Tab(world.build, world.path("browser"))
    try:
        tab.ask("Page.navigate", url=f"http://{address}/")
        until("each curve has a line", lambda: tab.value(
            "document.readyState === 'complete' && "
            "[...document.querySelectorAll('.curve')].every(c => c.querySelector('path[d*=L]'))"))
        world.tool("pause", "--why", WORDS, *world.admin(coordinator))
        until("the page shows the pause", lambda: tab.value(
            "document.getElementById('phase').innerText.startsWith('paused')"))
        until("the log, too", lambda: WORDS in tab.value(
            "document.getElementById('log').textContent"))
        check_text(tab)
        check_pictures(tab, world.build)
        check_requests(tab, address)
    finally:
        tab.close()
    for node in [*workers, *servers, coordinator]:
        node.must_stop()


if __name__ == "__main__":
    sys.exit(play(__doc__, page, 900))
