#!/usr/bin/env python3
"""Debian packages of a build: contents.py BUILD CPACK

cpack makes them; lintian finds nothing. Together they have every file that `cmake --install`
installs, each once. After unpacking, the programs print their version, and a C or Python loop finds
its files.
"""
import gzip
import os
import pathlib
import subprocess
import sys
import tempfile

NAMES = {"longhaul", "longhaul-server", "longhaul-worker", "liblonghaul1", "liblonghaul-dev",
         "python3-longhaul"}


def said(*words, **more):
    ran = subprocess.run(words, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                         check=False, **more)
    if ran.returncode:
        raise SystemExit(f"{words[:3]}: {ran.returncode}\n{ran.stdout}")
    return ran.stdout


def check(holds, text):
    if not holds:
        raise SystemExit(text)


def files(root):
    return {str(path.relative_to(root)) for path in pathlib.Path(root).rglob("*")
            if not path.is_dir()}


def main():
    build, cpack = sys.argv[1:]
    config = pathlib.Path(build, "CPackConfig.cmake")
    with tempfile.TemporaryDirectory(prefix="longhaul-packages-") as folder:
        said(cpack, "-G", "DEB", "--config", config, "-B", folder)
        packages = {path.name.split("_")[0]: path for path in pathlib.Path(folder).glob("*.deb")}
        cuda = {"longhaul-cuda"} & set(packages)
        check(set(packages) - cuda == NAMES, f"packages are {sorted(packages)}")
        said("lintian", "--fail-on", "error,warning", "--allow-root", *packages.values())
        place, seen = os.path.join(folder, "root"), set()
        for name, package in packages.items():
            one = os.path.join(folder, name)
            said("dpkg-deb", "-x", package, one)
            check(not seen & files(one), f"{name} has files of others: {seen & files(one)}")
            seen |= files(one)
            said("dpkg-deb", "-x", package, place)
            log = f"{one}/usr/share/doc/{name}/changelog.gz"
            with gzip.open(log, "rt", encoding="utf-8") as file:
                check(file.readline().startswith(f"{name} ("), f"{name}: another's changelog")
        said("cmake", "--install", build, "--prefix", os.path.join(folder, "all"))
        extra = {path for path in (path[len("usr/"):] for path in seen)
                 if not path.startswith(("share/doc/", "lib/python3/"))}
        odd = extra ^ files(os.path.join(folder, "all"))
        check(not odd, f"packages and `cmake --install` differ: {odd}")
        bin_ = os.path.join(place, "usr", "bin")
        for program in ("longhaul", "longhaul-server", "longhaul-worker"):
            check("0.1.0" in said(os.path.join(bin_, program), "--version"), f"another {program}")
        look_for_loops(place)
    print("ok")


def look_for_loops(place):
    """A loop in C finds header and library by pkg-config, one in Python its package."""
    lib = os.path.dirname(next(pathlib.Path(place).rglob("liblonghaul.so.1")))
    flags = said("pkg-config", "--cflags", "--libs", "longhaul", env={
        **os.environ, "PKG_CONFIG_PATH": os.path.join(lib, "pkgconfig")}).split()
    program = os.path.join(place, "loop")
    said("cc", "-x", "c", "-", "-o", program, *flags, input="#include <longhaul.h>\n#include "
         "<stdio.h>\nint main(void) { return longhaul_abi() ? 0 : 1; }\n")
    said(program, env={**os.environ, "LD_LIBRARY_PATH": lib})
    said("python3", "-c", "import longhaul.library as l; print(l.SONAME)", env={
        **os.environ, "PYTHONPATH": os.path.join(place, "usr/lib/python3/dist-packages"),
        "LD_LIBRARY_PATH": lib})


if __name__ == "__main__":
    sys.exit(main())
