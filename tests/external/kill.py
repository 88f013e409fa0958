#!/usr/bin/env python3
"""Kills trainer, worker or both with -9 at random instants; the judge reads the files left.

    kill.py --build DIR [--kills N] [--cuts N] [--parts P] [--ranks G] [--seed S] [--broken NAME]

With --broken it succeeds as soon as the judge finds the planted mistake, and fails after --kills
without it. A mistake that is not made in the first lives may never be made, so a new run begins
every TURN kills, from the next seed. Pauses before a kill are random, never a wait.
"""
import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

import judge

LIMIT_S = 600
TURN = 100


class World:
    def __init__(self, flags: argparse.Namespace, folder: str) -> None:
        self.flags, self.folder = flags, folder
        self.socket = os.path.join(folder, "s")
        self.bin = os.path.join(flags.build, "tests", "external")
        self.worker = self.trainer = None

    def start_worker(self) -> None:
        f = self.flags
        broken = [f.broken] if f.broken else []
        self.worker = subprocess.Popen([os.path.join(self.bin, "external_worker"), self.folder,
                                        self.socket, str(f.parts), str(f.ranks), *broken])

    def start_trainer(self) -> None:
        cuda = {"LONGHAUL_CUDART": self.flags.cuda} if self.flags.cuda else {}
        self.trainer = subprocess.Popen([os.path.join(self.bin, "external_trainer"), self.folder,
                                         str(self.flags.ranks)],
                                        env={**os.environ, **cuda, "LONGHAUL_SOCKET": self.socket})

    def kill(self, *names: str) -> None:
        for name in names:
            getattr(self, name).kill()
        for name in names:
            process = getattr(self, name)
            if process.wait() not in (-signal.SIGKILL, 3):
                raise SystemExit(f"kill: the {name} ended by itself: {process.returncode}")

    def revive(self) -> None:
        """Ranks whose life is over exit with 3 and are restarted, as torchrun would do."""
        if self.trainer.poll() == 3:
            self.start_trainer()

    def finish(self) -> None:
        with open(os.path.join(self.folder, "finish"), "wb"):
            pass
        until = time.monotonic() + 60
        while self.trainer.poll() in (None, 3) and time.monotonic() < until:
            self.revive()
            try:
                self.trainer.wait(0.1)
            except subprocess.TimeoutExpired:
                continue
        ends = []
        for process in (self.trainer, self.worker):
            try:
                ends.append(process.wait(max(0.1, until - time.monotonic())))
            except subprocess.TimeoutExpired:
                process.kill()
                ends.append("did not end")
        if ends != [0, 0]:
            raise SystemExit(f"kill: trainer and worker ended with {ends}")


def wrong_yet(state: str) -> list[str]:
    return judge.judge(state) if os.path.exists(state) else []


def kills(world: World, chance: random.Random, began: float) -> list[str]:
    state = os.path.join(world.folder, "state")
    world.start_worker()
    world.start_trainer()
    done = 0
    while done < world.flags.kills and time.monotonic() - began < LIMIT_S:
        time.sleep(chance.choice((0.002, 0.02, 0.08)) * chance.random() * 2)
        world.revive()
        what = chance.choice((["trainer"], ["worker"], ["worker"], ["worker", "trainer"]))
        world.kill(*what)
        done += len(what)
        if world.flags.broken or chance.random() < 0.1: # it is replaced by rename, as a whole
            wrong = wrong_yet(state)
            if wrong:
                return wrong
        for name in what:
            getattr(world, f"start_{name}")()
    if world.flags.broken:
        return []
    while not os.path.exists(state) or judge.State(state).cuts < world.flags.cuts:
        if time.monotonic() - began > LIMIT_S:
            raise SystemExit(f"kill: fewer than {world.flags.cuts} cuts in {LIMIT_S} s")
        world.revive()
        time.sleep(0.1)
    world.finish()
    if done < world.flags.kills:
        raise SystemExit(f"kill: {done} kills in {LIMIT_S} s")
    return judge.judge(state, os.path.join(world.folder, "final"))


def one_run(flags: argparse.Namespace, seed: int,
            began: float) -> tuple[list[str], judge.State | None]:
    with tempfile.TemporaryDirectory(prefix="lh-ext-") as folder:
        world = World(flags, folder)
        try:
            wrong = kills(world, random.Random(seed), began)
        finally:
            for process in (world.worker, world.trainer):
                if process and process.poll() is None:
                    process.kill()
                    process.wait()
        path = os.path.join(folder, "state")
        return wrong, judge.State(path) if os.path.exists(path) else None


def find_planted(flags: argparse.Namespace) -> int:
    began, seed, turns = time.monotonic(), flags.seed, flags.kills // TURN
    flags.kills = TURN
    while seed < flags.seed + turns and time.monotonic() - began < LIMIT_S:
        wrong, _ = one_run(flags, seed, began)
        for line in wrong:
            print(f"judge: {line}")
        if wrong:
            print(f"the planted mistake was found in run {seed}")
            return 0
        seed += 1
    print(f"the planted mistake was NOT FOUND in {seed - flags.seed} runs of {TURN} kills")
    return 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", required=True)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--cuts", type=int, default=0, help="go on until there are so many")
    parser.add_argument("--parts", type=int, default=1)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cuda", help="a CUDA runtime, of the parameters' device")
    parser.add_argument("--broken")
    flags = parser.parse_args()
    if os.environ.get("LH_TEST_QUICK") and not flags.broken:
        flags.kills //= 4
        flags.cuts //= 4
    if flags.broken:
        return find_planted(flags)
    wrong, state = one_run(flags, flags.seed, time.monotonic())
    assert state, "a run that has finished has a state"
    print(f"{len(state.lives)} lives, {state.cuts} cuts, "
          f"{state.resumed} lives went on without their worker, {sum(state.records)} records")
    for line in wrong:
        print(f"judge: {line}")
    if not wrong and (state.cuts < flags.kills or not state.resumed):
        wrong = ["too little happened"]
        print(f"judge: {wrong[0]}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
