"""Puts liblonghaul.so.1 into the wheel: LONGHAUL_LIBRARY names the one that CMake built.

Everything else is in pyproject.toml. The library needs the C library alone, so the wheel is for
any Python 3 of this machine's kind, with the glibc that the library's symbols ask for or a newer
one.
"""
import os
import re
import shutil

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.dist import Distribution

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # setuptools before 70.1
    from wheel.bdist_wheel import bdist_wheel


OLDEST = (2, 17)  # the first glibc that pip has a name for (PEP 600)


def library():
    """The path that LONGHAUL_LIBRARY names."""
    named = os.environ.get("LONGHAUL_LIBRARY")
    if not named or not os.path.isfile(named):
        raise SystemExit(f"LONGHAUL_LIBRARY is {named!r}: it must name liblonghaul.so.1, "
                         "which CMake builds (target longhaul_client)")
    return named


class Build(build_py):
    """Copies the library beside the package's files."""

    def run(self):
        super().run()
        shutil.copy(library(), os.path.join(self.build_lib, "longhaul", "liblonghaul.so.1"))


class Wheel(bdist_wheel):
    """py3-none-manylinux_GLIBC_MACHINE; without glibc's symbols, this platform's name."""

    def get_tag(self):
        platform = super().get_tag()[2]
        with open(library(), "rb") as file:
            versions = re.findall(rb"GLIBC_(\d+)\.(\d+)", file.read())
        if versions and platform.startswith("linux_"):
            major, minor = max(OLDEST, *(tuple(map(int, v)) for v in versions))
            platform = platform.replace("linux", f"manylinux_{major}_{minor}", 1)
        return "py3", "none", platform


class Binary(Distribution):
    """A wheel of this platform alone."""

    def has_ext_modules(self):
        return True


setup(cmdclass={"build_py": Build, "bdist_wheel": Wheel}, distclass=Binary)
