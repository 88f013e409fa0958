"""Loads liblonghaul.so with ctypes, and declares its structures and functions (longhaul.h)."""
from __future__ import annotations

import ctypes
import os
from ctypes import POINTER, c_char_p, c_double, c_int, c_int32, c_uint, c_uint32, c_uint64, c_void_p

ABI = 1
SONAME = "liblonghaul.so.1"


class Addition(ctypes.Structure):
    """struct longhaul_addition."""

    _fields_ = [("first", c_uint64), ("count", c_uint64), ("entries", c_uint64),
                ("value", c_void_p), ("index", c_void_p)]


Add = ctypes.CFUNCTYPE(c_int, c_void_p, POINTER(Addition))


class Taking(ctypes.Structure):
    """struct longhaul_taking."""

    _fields_ = [("first", c_uint64), ("count", c_uint64), ("to", c_void_p), ("stream", c_void_p)]


Take = ctypes.CFUNCTYPE(c_int, c_void_p, POINTER(Taking))


class Tensor(ctypes.Structure):
    """struct longhaul_tensor."""

    _fields_ = [("size", c_uint32), ("dtype", c_int32), ("memory", c_int32), ("ndim", c_int32),
                ("shape", POINTER(c_uint64)), ("name", c_char_p), ("data", c_void_p),
                ("first", c_uint64), ("count", c_uint64), ("stream", c_void_p), ("add", Add),
                ("add_arg", c_void_p), ("take", Take)]


class Unit(ctypes.Structure):
    """struct longhaul_unit."""

    _fields_ = [("unit", c_uint64), ("from_", c_uint64), ("tokens", c_uint64)]


class State(ctypes.Structure):
    """struct longhaul_state."""

    _fields_ = [("size", c_uint32), ("worker_lives", c_uint32), ("away_steps", c_uint64),
                ("cuts", c_uint64), ("renewals", c_uint64), ("returns", c_uint64),
                ("memory_bytes", c_uint64), ("shadow_bytes", c_uint64),
                ("pinned_bytes", c_uint64), ("committed", c_uint64)]


class Noise(ctypes.Structure):
    """struct longhaul_noise."""

    _fields_ = [("size", c_uint32), ("steps", c_uint32), ("sigma", c_double),
                ("rate", c_double), ("clip", c_double)]


# Name: (result, arguments after the handle). A first argument None: the function has no handle.
_FUNCTIONS = {
    "longhaul_abi": (c_uint32, None),
    "longhaul_error_name": (c_char_p, None, c_int),
    "longhaul_open": (c_int, None, POINTER(c_void_p)),
    "longhaul_ranks": (c_int, c_uint32, c_uint32),
    "longhaul_parameter": (c_int, POINTER(Tensor)),
    "longhaul_connect": (c_int, c_int),
    "longhaul_start": (c_int,),
    "longhaul_close": (None,),
    "longhaul_boundary": (c_int, c_uint64, c_uint64, POINTER(c_uint)),
    "longhaul_renew": (c_int,),
    "longhaul_cut": (c_int,),
    "longhaul_before_step": (c_int,),
    "longhaul_renew_piece": (c_int, c_uint32, c_uint32),
    "longhaul_renew_done": (c_int,),
    "longhaul_cut_piece": (c_int, c_uint32, c_uint32),
    "longhaul_cut_done": (c_int,),
    "longhaul_wait": (c_int, c_int),
    "longhaul_budget": (c_int, POINTER(c_uint64 * 3)),
    "longhaul_damaged": (c_int, c_uint64),
    "longhaul_credited": (c_int, POINTER(c_uint64)),
    "longhaul_noise": (c_int, POINTER(Noise)),
    "longhaul_report": (c_int, c_char_p, c_double),
    "longhaul_schedule": (c_int, c_int),
    "longhaul_state": (c_int, POINTER(State)),
    "longhaul_text": (c_char_p,),
    "longhaul_lease": (c_int, POINTER(Unit)),
    "longhaul_trained": (c_int, c_uint64, c_uint64),
    "longhaul_finish": (c_int, c_int),
}


def _places() -> list[str]:
    named = os.environ.get("LONGHAUL_LIBRARY")
    if named:
        return [named]
    return [os.path.join(os.path.dirname(os.path.abspath(__file__)), SONAME), SONAME]


def load() -> ctypes.CDLL:
    """Loads the file that LONGHAUL_LIBRARY names, else the package's own, else the system's."""
    tried = []
    for place in _places():
        try:
            library = ctypes.CDLL(place)
        except OSError as error:
            tried.append(f"{place}: {error}")
            continue
        for name, (result, *arguments) in _FUNCTIONS.items():
            function = getattr(library, name)
            function.restype = result
            free = bool(arguments) and arguments[0] is None
            function.argtypes = arguments[1:] if free else [c_void_p, *arguments]
        if library.longhaul_abi() != ABI:
            raise ImportError(f"{place} has ABI {library.longhaul_abi()}, this package wants {ABI}")
        return library
    raise ImportError("liblonghaul was not found; set LONGHAUL_LIBRARY to its path. Tried: " +
                      "; ".join(tried))
