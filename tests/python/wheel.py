#!/usr/bin/env python3
"""The package's wheel: wheel.py LIBRARY PACKAGE. It is built, installed alone into an empty
environment, and must use its own library; nothing is downloaded. auditwheel must agree with the
wheel's name on the oldest glibc."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

GLIBC = (2, 28)  # the highest version that the library's symbols may need


def newest_symbol(library):
    said = subprocess.run(["objdump", "-T", library], capture_output=True, text=True, check=True)
    found = [tuple(map(int, v.split("."))) for v in re.findall(r"GLIBC_([0-9.]+)", said.stdout)]
    return max(found)


def audited(wheel):
    """The platform tag according to auditwheel."""
    said = subprocess.run([sys.executable, "-m", "auditwheel", "show", wheel], text=True,
                          capture_output=True, check=True).stdout
    print(said)
    return re.search(r'platform tag:\s*"(\w+)"', " ".join(said.split())).group(1)


def main():
    library, package = sys.argv[1:3]
    newest = newest_symbol(library)
    print("newest symbol of the C library:", newest)
    if newest > GLIBC:
        return 1
    with tempfile.TemporaryDirectory(prefix="lh-wheel-") as folder:
        source = os.path.join(folder, "source")
        shutil.copytree(package, source, ignore=shutil.ignore_patterns("__pycache__"))
        subprocess.run([sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps",
                        "--no-index", "-q", "-w", folder, source], check=True,
                       env={**os.environ, "LONGHAUL_LIBRARY": library})
        wheels = [n for n in os.listdir(folder) if n.endswith(".whl")]
        print(wheels)
        named = re.match(r"longhaul-[\d.]+-py3-none-(manylinux_2_(\d+)_\w+)\.whl", wheels[0])
        if len(wheels) != 1 or not named or int(named[2]) > GLIBC[1]:
            return 1
        if audited(os.path.join(folder, wheels[0])) != named[1]:
            return 1
        names = zipfile.ZipFile(os.path.join(folder, wheels[0])).namelist()
        if not {"longhaul/liblonghaul.so.1", "longhaul/py.typed"} <= set(names):
            print(names)
            return 1
        place = os.path.join(folder, "place")
        subprocess.run([sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "-q",
                        "--target", place, os.path.join(folder, wheels[0])], check=True)
        clean = {k: v for k, v in os.environ.items() if k != "LONGHAUL_LIBRARY"}
        done = subprocess.run(
            [sys.executable, "-c", "import longhaul; longhaul.Client().close(); "
             "print(longhaul.__file__)"], env={**clean, "PYTHONPATH": place}, cwd=folder,
            capture_output=True, text=True, check=False)
        print(done.stdout, done.stderr)
        return 0 if done.returncode == 0 and done.stdout.startswith(place) else 1


if __name__ == "__main__":
    sys.exit(main())
