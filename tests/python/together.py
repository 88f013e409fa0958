#!/usr/bin/env python3
"""The package's tests that start no program: together.py LIBRARY PACKAGE NAME...

PyTorch and transformers are imported once; then each test runs in a child of its own, as
`NAME.py LIBRARY PACKAGE` would.
"""
import os
import runpy
import sys
import traceback

import torch  # noqa: F401  pylint: disable=unused-import
from transformers import AutoModelForCausalLM, Trainer  # noqa: F401  pylint: disable=unused-import

HERE = os.path.dirname(os.path.abspath(__file__))


def leave(test, *given, **more):
    """Ends the child with the test's status. The interpreter is not finalized: that takes longer
    than most of the tests."""
    status = 1
    try:
        test(*given, **more)
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(bool(end.code))
        if isinstance(end.code, str):
            print(end.code)
    except BaseException:  # pylint: disable=broad-exception-caught
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # pylint: disable=protected-access


def main():
    failed = []
    for name in sys.argv[3:]:
        print(f"---- {name}", flush=True)
        child = os.fork()
        if not child:
            path = os.path.join(HERE, name + ".py")
            sys.argv[:] = [path, *sys.argv[1:3]]
            leave(runpy.run_path, path, run_name="__main__")
        if os.waitpid(child, 0)[1]:
            failed.append(name)
    print("failed:", *failed or ["none"])
    return 1 if failed or not sys.argv[3:] else 0


if __name__ == "__main__":
    sys.exit(main())
