"""Shared by the scripts that run cases: their checks, and the runner."""
import traceback

from world import Failure, World, check, flags_of, until

MISSING, CONFIG, DENIED, UNVERIFIED, FAILED, USAGE, UNREACHABLE = 3, 6, 7, 5, 1, 2, 4


def refused(node, code, *words):
    """Checks that the program ends by itself with this code and logs a line with all these
    words."""
    status = node.end()
    check(status == code, f"{node.name} ended with {status}, {code} was expected:\n{node.tail()}")
    check(node.says(*words), f"{node.name} does not say {words}:\n{node.tail()}")


def run(world):
    """Starts a coordinator and both servers."""
    coordinator = world.coordinator(workers=1).start().listening()
    servers = [world.server(i, coordinator).start().listening() for i in (0, 1)]
    return coordinator, servers


def train(worker, steps=6):
    until(f"{worker.name} trains", lambda: worker.status().get("step", 0) >= steps)


def main(cases, text):
    """Runs the cases that the command line names, or all, each in its own world."""
    flags = flags_of(text)
    flags.add_argument("case", nargs="*", help="only these")
    given = flags.parse_args()
    unknown = set(given.case) - {case.__name__ for case in cases}
    if unknown:
        flags.error(f"no case {', '.join(unknown)}")
    failed = 0
    for case in cases:
        if given.case and case.__name__ not in given.case:
            continue
        try:
            with World(given.build, units=24, keep=given.keep) as world:
                case(world)
            print(f"ok     {case.__name__}", flush=True)
        except Failure as failure:
            failed += 1
            print(f"FAILED {case.__name__}: {failure}", flush=True)
        except Exception:  # pylint: disable=broad-except; the other cases still run
            failed += 1
            print(f"FAILED {case.__name__}", flush=True)
            traceback.print_exc()
    print(f"{failed} failed")
    return 1 if failed else 0

