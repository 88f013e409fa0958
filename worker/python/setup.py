"""Puts liblonghaul.so.1 into the wheel: LONGHAUL_LIBRARY names the one that CMake built.

Everything else is in pyproject.toml. The library needs the C library alone, so the wheel is for
any Python 3 of this machine's kind.
"""
import os
import shutil

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.dist import Distribution

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # setuptools before 70.1
    from wheel.bdist_wheel import bdist_wheel


class Build(build_py):
    """Copies the library beside the package's files."""

    def run(self):
        super().run()
        library = os.environ.get("LONGHAUL_LIBRARY")
        if not library or not os.path.isfile(library):
            raise SystemExit(f"LONGHAUL_LIBRARY is {library!r}: it must name liblonghaul.so.1, "
                             "which CMake builds (target longhaul_client)")
        shutil.copy(library, os.path.join(self.build_lib, "longhaul", "liblonghaul.so.1"))


class Wheel(bdist_wheel):
    """py3-none-PLATFORM."""

    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


class Binary(Distribution):
    """A wheel of this platform alone."""

    def has_ext_modules(self):
        return True


setup(cmdclass={"build_py": Build, "bdist_wheel": Wheel}, distclass=Binary)
