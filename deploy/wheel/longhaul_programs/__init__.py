"""Longhaul's programs as pip installs them: each command becomes the program of its name.

They lie in bin, the libraries that they need and the CUDA plugin in lib/longhaul, the licences of
those libraries in licenses. The programs find each other and their libraries from where they are.
"""
import os
import sys
import typing

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin")


def _become(name: str) -> typing.NoReturn:
    os.execv(os.path.join(FOLDER, name), [name, *sys.argv[1:]])


def longhaul() -> typing.NoReturn:
    """The operator's tool."""
    _become("longhaul")


def server() -> typing.NoReturn:
    """A parameter server, a standby or the coordinator."""
    _become("longhaul-server")


def worker() -> typing.NoReturn:
    """A region's worker."""
    _become("longhaul-worker")


def wanem() -> typing.NoReturn:
    """The emulator of long links, which `longhaul up` starts."""
    _become("longhaul-wanem")
