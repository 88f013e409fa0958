"""Packs the programs that CMake built, and all that they need but glibc: LONGHAUL_BUILD names the
build's folder.

The wheel is for any Python 3 of this machine's kind, with the glibc that the newest symbol in it
asks for, or a newer one. Libraries come from the system that it is built on, with their licences.
"""
import glob
import os
import re
import shutil
import subprocess
import sys

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.dist import Distribution

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # setuptools before 70.1
    from wheel.bdist_wheel import bdist_wheel

PROGRAMS = ("longhaul", "longhaul-server", "longhaul-wanem", "longhaul-worker")
GLIBC = re.compile(r"(ld-linux.*|lib(c|m|dl|pthread|rt|resolv|util|anl|mvec))\.so\.\d+$")


def said_by(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def build_folder():
    named = os.environ.get("LONGHAUL_BUILD")
    if not named or not os.path.isfile(os.path.join(named, "CMakeCache.txt")):
        raise SystemExit(f"LONGHAUL_BUILD is {named!r}: it must name a folder in which CMake built "
                         "the tree (build/release)")
    return os.path.abspath(named)


def libraries_of(program):
    """Name to path of the shared libraries that it loads, glibc's left out."""
    found = {}
    for line in said_by("ldd", program).splitlines():
        name, arrow, path = (line.split() + ["", ""])[:3]
        if arrow == "=>" and path == "not":
            raise SystemExit(f"{program} needs {name}, which is not on this machine")
        if arrow == "=>" and not GLIBC.match(name):
            found[name] = os.path.realpath(path)
    return found


def licence_of(library):
    """The package that the library came with, and its copyright file; None, where dpkg has none.
    A package from before /lib became a link to /usr/lib names the file by its old place."""
    for name in (library, library.removeprefix("/usr")):
        try:
            package = said_by("dpkg-query", "-S", name).split(":")[0]
        except (OSError, subprocess.CalledProcessError):
            continue
        path = f"/usr/share/doc/{package}/copyright"
        if os.path.isfile(path):
            return package, path
    return None


def licences_of(libraries, folder):
    os.makedirs(folder, exist_ok=True)
    for path in sorted(libraries):
        licence = licence_of(path)
        if licence:
            shutil.copyfile(licence[1], os.path.join(folder, licence[0]))
        else:
            print(f"no licence of {path} was found: who hands this wheel on adds it",
                  file=sys.stderr)


def newest_glibc(folder):
    """(major, minor) of the newest symbol of glibc that a file in it names."""
    found = []
    for path in glob.glob(os.path.join(folder, "**", "*"), recursive=True):
        if os.path.isfile(path):
            with open(path, "rb") as file:
                content = file.read()
            if content.startswith(b"\x7fELF"):
                found += [tuple(map(int, v)) for v in
                          re.findall(rb"GLIBC_(\d+)\.(\d+)", content)]
    return max(found, default=None)


class Build(build_py):
    """Installs the build beside the package's file, and brings the libraries."""

    def run(self):
        stage = os.path.join(os.path.abspath(self.build_lib), "..", "stage")
        to = os.path.join(self.build_lib, "longhaul_programs")
        for earlier in (stage, to):  # libraries of another build may have other names
            shutil.rmtree(earlier, ignore_errors=True)
        super().run()
        said_by("cmake", "--install", build_folder(), "--prefix", stage)
        libraries = {}
        os.makedirs(os.path.join(to, "bin"), exist_ok=True)
        os.makedirs(os.path.join(to, "lib", "longhaul"), exist_ok=True)
        for name in PROGRAMS:
            program = shutil.copy(os.path.join(stage, "bin", name), os.path.join(to, "bin"))
            libraries.update(libraries_of(program))
        for name, path in libraries.items():
            shutil.copyfile(path, os.path.join(to, "lib", "longhaul", name))
        for plugin in glob.glob(os.path.join(stage, "lib*", "**", "longhaul", "*.so"),
                                recursive=True):
            shutil.copy(plugin, os.path.join(to, "lib", "longhaul"))
        licences_of(libraries.values(), os.path.join(to, "licenses"))


class Wheel(bdist_wheel):
    """py3-none-manylinux_GLIBC_MACHINE."""

    def get_tag(self):
        platform = super().get_tag()[2]
        newest = newest_glibc(self.bdist_dir) if self.bdist_dir else None
        if newest and platform.startswith("linux_"):
            platform = platform.replace("linux", f"manylinux_{newest[0]}_{newest[1]}", 1)
        return "py3", "none", platform


class Binary(Distribution):
    """A wheel of this platform alone."""

    def has_ext_modules(self):
        return True


setup(cmdclass={"build_py": Build, "bdist_wheel": Wheel}, distclass=Binary)
