"""The house rules, one function each. A rule takes the tree and yields its findings.

`tree` maps a path from the root to the file's text. Each rule has a planted violation in
self_test.py; a rule without one does not pass its own test.
"""
import collections
import fnmatch
import posixpath
import re
from typing import Callable, Iterator, NamedTuple

import references
import scan


class Finding(NamedTuple):
    path: str
    line: int  # 0: the file as a whole
    rule: str
    text: str

    def __str__(self) -> str:
        place = f"{self.path}:{self.line}" if self.line else self.path
        return f"{place}: {self.text} [{self.rule}]"


Tree = dict[str, str]

# Allowed includes between rooms; within a room all are allowed, except for FOLDERS.
ROOMS = {
    "proto": (),
    "common": ("proto",),
    "kernels": ("proto", "common"),
    "server": ("proto", "common", "kernels"),
    "worker": ("proto", "common", "kernels"),
    "deploy": ("proto", "common", "kernels", "server", "worker"),
    "tests": ("proto", "common", "kernels", "server", "worker", "deploy"),
    "bench": ("proto", "common", "kernels", "server", "worker", "deploy", "tests"),
}
# Within a room: the other folders that each of these may include.
_BYTES = ("common/base", "common/env", "common/security", "common/format")
FOLDERS = {
    "common/base": (),
    "common/env": ("common/base",),
    "common/security": ("common/base",),
    "common/objects": _BYTES[:3],
    "common/privacy": ("common/base",),
    "common/format": _BYTES[:3],
    "common/net": _BYTES,
    "common/net/grpc": (*_BYTES, "common/net"),
    "common/app": (*_BYTES, "common/objects", "common/net", "common/net/grpc"),
    # no files, threads or keys; the folders that have them are above
    # liblonghaul.so is linked by users' programs: the channel's layout, and libc
    "worker/client": ("worker/external",),
    "worker/client/examples": ("worker/client",),
    "kernels": ("kernels/cpu", "common/base", "common/format"),
    "kernels/cpu": ("kernels", "common/base", "common/format"),
    "kernels/cuda": ("kernels", "kernels/cpu", "common/base", "common/format"),
    # a plugin of its own: only the table that it fills, and libc
    "kernels/cublaslt": ("kernels/cuda",),
    "kernels/layers": ("kernels", "common/base"),
    "kernels/state": ("kernels", "kernels/cpu", *_BYTES),
    "kernels/storage": ("kernels", "kernels/state", "common/objects", *_BYTES),
    "kernels/privacy": ("kernels", "common/base", "common/env"),
}
PREFIX = {"common": "lh_", "kernels": "lk_", "server": "ps_", "worker": "wk_", "deploy": "dp_"}
# Functions that a library shows to users' programs carry the product's name.
PUBLIC = {"worker/client/": "longhaul_"}
CORES = ("common/*", "kernels/*", "server/*", "worker/*")
LINES_MAX, COLUMNS_MAX = 600, 100

# Calls that a core makes through its env, or not at all; and the only files that may make them.
# A row: the calls, where they are banned, excepted files, the replacement.
BANNED = (
    (("time", "gettimeofday", "clock_gettime", "nanosleep", "usleep", "sleep"), CORES,
     ("common/env/env_real*.c", "*/main.c"), "lh_now() and lh_after() of the env"),
    (("rand", "srand", "random", "srandom", "drand48", "rand_r"), ("*",), (),
     "lh_random() of the env, or a seeded generator of the test"),
    (("open", "openat", "creat", "fopen", "fdopen", "freopen", "opendir"), CORES,
     ("common/env/env_real*.c", "*/main.c"), "the env's files (lh_file_load, lh_file_replace)"),
    (("strcpy", "strcat", "stpcpy", "sprintf", "vsprintf", "gets", "strtok", "alloca"), ("*",), (),
     "snprintf, lh_put, lh_cursor"),
    (("ps_wal_add", "ps_wal_drop_group"), ("server/*",),
     ("server/push/head.c", "server/wal/wal.[ch]"),
     "ps_head_append() and ps_head_take_back(): the log's group and the heads change together"),
    (("wk_slot_flip", "wk_snapshot_write"), ("worker/*",),
     ("worker/push/slot.[ch]", "worker/push/commit.c"), "wk_commit() of worker/push/commit.h"),
    (("atoi", "atol", "atoll", "atof"), ("*",), (), "strtoll or strtod with all its checks"),
    (("lh_answer", "lh_reply_packed", "lh_reply_error", "ps_store_put", "ps_store_remove",
      "ps_store_begin", "ps_store_write", "ps_store_end"),
     ("server/coordinator/*",), ("server/coordinator/commit.c", "server/coordinator/store.h",
      "server/coordinator/store/*"),
     "ps_co_answer(), ps_co_refuse() and ps_co_put(): nothing is said before it is durable"),
    (("lh_now",), ("server/coordinator/*",),
     ("server/coordinator/commit.c", "server/coordinator/coordinator.c",
      "server/coordinator/core.c", "server/coordinator/store/*"),
     "ps_co_now(): silence is measured by a listener that ran"),
)
# Exceptions to BANNED with their reasons: path pattern -> (calls, why).
ALLOWED = {
    "common/env/log.c": (("clock_gettime",), "callers wait for the thread that writes the log"),
    "worker/external/message.c": (("open",), "a folder through which a long path is bound: O_PATH, "
                                  "no state of a core; liblonghaul.so has no env"),
    "common/base/exit.c": (("open",), "a program's first lines, before there is an env"),
    "common/base/regular.c": (("open",), "the one place that opens what must be a plain file"),
    "common/security/keyfile.c": (("open",),
                                  "keys and certificates need modes; tools and starts only"),
    "common/app/units_file.c": (("open",), "programs map a file at their start"),
    "common/net/grpc/transport_grpc_wire.c": (("opendir",),
                                              "which sockets there are says /proc/self/fd"),
    "worker/client/link.c": (("clock_gettime",), "a library in somebody else's process"),
    "worker/ranks/comm/comm_nccl.c": (("clock_gettime",), "a thread of its own waits for NCCL"),
    "worker/data/loader.c": (("clock_gettime",), "outside the core: it times waits and fetches"),
    "worker/data/source_file.c": (("open",),
                                  "the loader's threads read token files, outside the core"),
    "worker/data/cache.c": (("open", "opendir"),
                            "the loader's threads keep units, outside the core"),
}
# Mutable objects of a file, each with its reason.
GLOBALS = {
    "common/base/err.c": ("last", "errno's neighbour: belongs to the thread"),
    "common/base/buf.c": ("crc_table", "filled once, before main"),
    "common/net/grpc/transport_grpc_door.c": ("away",
                                              "accept4() has no context; it changes what is told"),
    "common/net/grpc/transport_grpc_waiting.c": ("door", "accept4() has no context"),
    "common/net/grpc/transport_grpc_shun.c": ("shunned", "accept4() has no context"),
    "common/net/grpc/transport_grpc_guard.c": ("hooks", "OpenSSL's functions, found once"),
    "common/net/grpc/transport_grpc_key.c": ("keys", "gRPC names a key where it has no context"),
    "common/base/check.c": ("planted", "planted bugs, in builds for tests only"),
}


def room_of(path: str) -> str:
    return path.split("/", 1)[0] if "/" in path else ""


def is_c(path: str) -> bool:
    return path.endswith((".c", ".h", ".cu", ".cuh", ".def"))


def c_files(tree: Tree) -> Iterator[tuple[str, str]]:
    return ((path, text) for path, text in tree.items() if is_c(path))


def direction(tree: Tree) -> Iterator[Finding]:
    """Includes point down, never up or sideways, and are written from the root."""
    for path, text in c_files(tree):
        room = room_of(path)
        for line, target in scan.includes(text):
            generated = target.endswith(".pb-c.h")
            if target not in tree and not generated:
                yield Finding(path, line, "direction", f'"{target}" is no file seen from the root')
                continue
            other = "proto" if generated else room_of(target)
            if other != room and other not in ROOMS.get(room, ()):
                yield Finding(path, line, "direction", f"{room} must not include {other}: {target}")
                continue
            here, there = posixpath.dirname(path), posixpath.dirname(target)
            if here.startswith("worker/client") and there.startswith("worker") and \
                    there not in (here, *FOLDERS[here]):
                yield Finding(path, line, "direction", f"{here} must not include {there}: {target}")
            elif there in FOLDERS and there not in (here, *FOLDERS.get(here, FOLDERS)):
                yield Finding(path, line, "direction", f"{here} must not include {there}: {target}")


def circle(tree: Tree) -> Iterator[Finding]:
    """No file includes itself, directly or indirectly."""
    graph = {path: [t for _, t in scan.includes(text) if t in tree] for path, text in c_files(tree)}
    done: set[str] = set()

    def walk(path: str, trail: list[str]) -> Iterator[Finding]:
        if path in trail:
            loop = trail[trail.index(path):] + [path]
            yield Finding(path, 0, "circle", "includes itself: " + " -> ".join(loop))
        elif path not in done:
            for target in graph[path]:
                yield from walk(target, trail + [path])
            done.add(path)

    for path in graph:
        yield from walk(path, [])


# Maximum number of files of a room that call each other in a circle: a ratchet that only goes down.
# None of them can be read without the others. Rooms that are not named have no such circle.
CIRCLE_FILES = {"server": 3, "worker": 2, "kernels": 4,
                "common/net": 4, "common/base": 2, "common/env": 2}


def _calling_room(path: str) -> str:
    folders = path.split("/")[:-1]
    if folders[0] == "common" or folders[:2] == ["server", "coordinator"]:
        return "/".join(folders[:2])
    return folders[0]


def calls(tree: Tree) -> Iterator[Finding]:
    """Within a room calls run one way; CIRCLE_FILES gives the remaining exceptions."""
    sources = {path: scan.scrub(text) for path, text in tree.items()
               if path.endswith(".c") and room_of(path) in PREFIX}
    defined = {head.name: path for path in sources for head in scan.declarations(tree[path])
               if head.defined and head.name and not head.text.startswith("static")}
    graph: dict[str, dict[str, str]] = {path: {} for path in sources}
    for path, text in sources.items():
        for name in re.findall(r"\b[a-z]\w+", text):
            other = defined.get(name, path)
            if other != path and _calling_room(other) == _calling_room(path):
                graph[path].setdefault(other, name)
    largest: dict[str, list[str]] = {}
    for files in scan.circles(graph):
        room = _calling_room(files[0])
        largest[room] = max(largest.get(room, []), files, key=len)
    for room, files in largest.items():
        most = CIRCLE_FILES.get(room, 1)
        if len(files) > most:
            names = ", ".join(sorted(posixpath.basename(path) for path in files))
            yield Finding(files[0], 0, "calls",
                          f"{len(files)} files of {room} call each other (at most {most}): {names}")
        elif len(files) < most:
            yield Finding("tests/tidy/rules.py", 0, "calls",
                          f"CIRCLE_FILES: {room} has {len(files)} now; write it down")


_FRAGMENT = re.compile(r"(?:of|and|that|which|who|in|up to|at|by|for|to|with|else|or|also|where|so"
                       r"|but|whose|whoever|what|whatever)\b")
_OPENER = re.compile(r"(?:Who|Whoever|What|Whatever|Whom|Whose|Which|Where|Of|And)\b")
_TRAILING = re.compile(r"\s*\S.*?\s//\s*(.*)")


def fragment(tree: Tree) -> Iterator[Finding]:
    """A comment names its subject; it does not continue another sentence."""
    for path, text in c_files(tree):
        lines = text.split("\n")
        for number, line in enumerate(lines, 1):
            words = line.strip()
            comment = _TRAILING.match(line)
            if words.startswith("//"):
                begins = number == 1 or not lines[number - 2].strip().startswith("//")
                if begins and _OPENER.match(words[2:].lstrip()):
                    yield Finding(path, number, "fragment",
                                  f"a comment that opens without its subject: {words}")
            elif comment and _FRAGMENT.match(comment.group(1)):
                yield Finding(path, number, "fragment",
                              f"a trailing comment that begins as a fragment: {comment.group(1)}")


def unused_header(tree: Tree) -> Iterator[Finding]:
    """A header that no file includes is dead code."""
    used = {target for _, text in c_files(tree) for _, target in scan.includes(text)}
    used |= {target for path, text in tree.items() if path.endswith(".sh")
             for target in re.findall(r"-include(\S+\.h)", text)}
    for path, _ in c_files(tree):
        if path.endswith((".h", ".cuh")) and path not in used:
            yield Finding(path, 0, "unused-header", "nobody includes it")


# Functions that no product file calls, each with its reason; a header's name stands for all its
# functions.
UNCALLED = {
    "kernels/privacy/choice.h": "drawing records: the level `record`, which nothing enforces yet",
    "lh_bug_plant": "plants a bug",
    "lh_bug_planted": "plants it in another thread too",
    "lh_account_epsilon": "the inverse that checks lh_account_claim()",
    "lk_gpu_query": "is called by its name",
    "lk_gemm_query": "is called by its name",
    "lk_gpu_value_digest": "the specification of adamw.cu's digest",
    "lk_codec_force": "encodes by one kind of instructions, beside the others",
    "ps_balance_kind_of": "reads the words of bench/sim",
    # read by tests, not by programs
    "lh_pool_bytes": "memory that is taken",
    "lh_env_real_copied": "files that were copied",
    "ps_co_decided_count": "rows that are kept",
    "ps_wal_generation": "a log that began anew",
    "wk_device_bytes": "memory that is taken",
    "wk_device_state_read": "an array of the device's",
    "wk_external_there": "a life that runs",
    "wk_transformer_bytes": "memory that is taken",
    "wk_wire_connected": "a rank that has come",
    "wk_wire_port": "a port that was free",
}
_SHOWN = re.compile(r"(?:lh|lk|ps|wk|dp)_\w+\Z")
_NAME = re.compile(r"\b(?:lh|lk|ps|wk|dp)_\w+\b")


def uncalled(tree: Tree) -> Iterator[Finding]:
    """A function in a header of the product has a caller there: one that only tests call is tested
    for nothing."""
    shown: dict[str, tuple[str, int]] = {}
    uses: collections.Counter[str] = collections.Counter()
    for path, text in c_files(tree):
        if room_of(path) in ("tests", "bench"):
            continue
        uses.update(_NAME.findall(scan.scrub(text)))
        for head in scan.declarations(text):
            if head.name and _SHOWN.match(head.name):
                uses[head.name] -= 1
                if path.endswith((".h", ".cuh")):
                    shown.setdefault(head.name, (path, head.line))
    for name, (path, line) in sorted(shown.items(), key=lambda item: item[1]):
        if uses[name] <= 0 and name not in UNCALLED and path not in UNCALLED:
            yield Finding(path, line, "uncalled", f"no product file calls {name}(): take it out, "
                                                  "or say in UNCALLED what it is for")
    for name in UNCALLED:
        if uses[name] > 0 and "/" not in name:
            yield Finding(shown.get(name, (name, 0))[0], 0, "uncalled",
                          f"{name}() is called: take it out of UNCALLED")


# Pages that grow into diaries unless limited: lines of the page, or of each of its sections.
PAGE_LINES = {"bench/README.md": 80}
SECTION_LINES = {"CHANGELOG.md": 30}


def length(tree: Tree) -> Iterator[Finding]:
    for path, text in tree.items():
        lines = text.count("\n")
        if lines > LINES_MAX and (is_c(path) or path.endswith((".py", ".sh", ".proto"))):
            yield Finding(path, 0, "length", f"{lines} lines (at most {LINES_MAX}): two subjects?")
    for page, most in PAGE_LINES.items():
        if tree.get(page, "").count("\n") > most:
            yield Finding(page, 0, "length", f"more than {most} lines: what was tried is a note's")
    for page, most in SECTION_LINES.items():
        for section in tree.get(page, "").split("\n## ")[1:]:
            if section.count("\n") > most:
                yield Finding(page, 0, "length", f"more than {most} lines: {section.split()[0]}")


def _matches(path: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatch(path, pattern) for pattern in patterns)


def banned(tree: Tree) -> Iterator[Finding]:
    for path, text in c_files(tree):
        allowed = {call for pattern, (calls, _) in ALLOWED.items()
                   if fnmatch.fnmatch(path, pattern) for call in calls}
        names = {name: instead for calls, where, but, instead in BANNED
                 if _matches(path, where) and not _matches(path, but)
                 for name in calls if name not in allowed}
        if not names:
            continue
        call = re.compile(r"(?<![\w.>])(%s)\s*\(" % "|".join(names))
        for number, line in enumerate(scan.scrub(text).split("\n"), 1):
            for match in call.finditer(line):
                name = match.group(1)
                yield Finding(path, number, "banned", f"{name}(): use {names[name]}")


class Committed(NamedTuple):
    """State that follows a disk: its place, the files that may assign it, its names."""
    where: tuple[str, ...]
    owners: tuple[str, ...]
    names: tuple[str, ...]  # a member at any depth, or "p->member" of that pointer


# Owners write each change to disk together with it, or read it from there. slot.c reads a file into
# a slot of its own, recover.c checkpoints into a start's initial state; epochs.c passes a stable
# point upwards. A planted bug may violate this.
_SERVER = ("server/*", "!server/coordinator/*")
_COORDINATOR = "server/coordinator/"
COMMITTED = (
    Committed(("worker/*",), ("worker/push/commit.c", "worker/push/slot.c"),
              ("committed", "residual", "incarnation")),
    Committed(_SERVER, ("server/push/head.c",), ("s->head", "shard->head", "speculative")),
    Committed(_SERVER, ("server/state/checkpointer.c", "server/recovery/recover.c"),
              ("checkpointed", "weighed")),
    Committed(_SERVER, ("server/state/checkpointer.c",), ("s->unwritten", "shard->unwritten")),
    Committed(_SERVER, ("server/recovery/owner_stream.c",), ("standby.unwritten",)),
    Committed(_SERVER, ("server/recovery/identity.c",), ("standby.identity",)),
    Committed(_SERVER, ("server/recovery/epoch.c",), ("s->begun", "shard->begun")),
    Committed((_COORDINATOR + "*",), (_COORDINATOR + "owners/owner.c",),
              ("s->owner", "s->standby", "s->changes", "s->least", "s->server", "s->gone")),
    Committed((_COORDINATOR + "*",), (_COORDINATOR + "owners/epochs.c",),
              ("s->token", "s->epochs", "s->begun")),
    Committed((_COORDINATOR + "*",),
              (_COORDINATOR + "stable.c", _COORDINATOR + "owners/epochs.c"), ("stable",)),
    Committed((_COORDINATOR + "*",), (_COORDINATOR + "owners/move.c",), ("move",)),
    Committed((_COORDINATOR + "*",), (_COORDINATOR + "plan.c",), ("c->plan",)),
    Committed((_COORDINATOR + "*",), (_COORDINATOR + "member.c",), ("granted",)),
    Committed((_COORDINATOR + "*",), (_COORDINATOR + "drain.c",),
              ("draining", "ending", "drained_regions", "w->asked")),
    Committed((_COORDINATOR + "*",), (_COORDINATOR + "balance/override.c",), ("c->frozen",)),
    Committed((_COORDINATOR + "*",), (_COORDINATOR + "silence.c",), ("stored_trip",)),
    # coordinator.c creates the table
    Committed((_COORDINATOR + "*",),
              (_COORDINATOR + "balance/lease.c", _COORDINATOR + "coordinator.c"), ("c->lease",)),
)


def _assigned(names: tuple[str, ...]) -> re.Pattern[str]:
    member = r"\w+(?:\[[^]]*\])?\."
    places = "|".join(rf"\b{name}" if "->" in name else rf"->(?:{member})*{re.escape(name)}"
                      for name in names)
    return re.compile(rf"({places})\b(?:\[[^]]*\])?[\w.]*\s*(?:[-+|&^]?=(?!=)|\+\+|--)")


def commit(tree: Tree) -> Iterator[Finding]:
    """Commit, then memory (server/docs/0000-protocol.md#rule-26): only one file changes the state
    that follows the disk."""
    for row in COMMITTED:
        not_there = tuple(place[1:] for place in row.where if place.startswith("!"))
        assigned = _assigned(row.names)
        for path, text in c_files(tree):
            if not _matches(path, row.where) or _matches(path, not_there) or path in row.owners:
                continue
            for number, line in enumerate(scan.scrub(text).split("\n"), 1):
                for match in assigned.finditer(line if "LH_BUG(" not in line else ""):
                    name = re.split(r"->|\.", match.group(1))[-1]
                    yield Finding(path, number, "commit",
                                  f"{name}: only {row.owners[0]} changes it")


def must_check(tree: Tree) -> Iterator[Finding]:
    """A header's function that returns lh_err has LH_MUST; lh_fail's result is its argument."""
    for path, text in c_files(tree):
        if not path.endswith(".h"):
            continue
        for head in scan.declarations(text):
            returns = re.search(r"\blh_err\s+(?:LH_MUST\s+)?%s\b" % re.escape(head.name), head.text)
            if head.name and returns and not head.must and not head.name.startswith("lh_fail"):
                yield Finding(path, head.line, "must-check", f"{head.name} lacks LH_MUST")


def readme(tree: Tree) -> Iterator[Finding]:
    """A folder with sources has a README; corpora and fixtures belong to the folder above, folders
    of tests/unit to those that they mirror."""
    folders = {posixpath.dirname(path) for path in tree
               if is_c(path) or path.endswith((".proto", ".py", ".sh"))}
    for folder in sorted(folders - {""}):
        if f"{folder}/README.md" not in tree and not folder.startswith("tests/unit/"):
            yield Finding(folder, 0, "readme", "has sources and no README.md")


def opening(tree: Tree) -> Iterator[Finding]:
    for path, text in c_files(tree):
        if not text.lstrip("\ufeff\n").startswith(("// ", "/*")):
            yield Finding(path, 1, "opening", "opens without a comment that says its purpose")


def prefix(tree: Tree) -> Iterator[Finding]:
    """Non-static functions of a room carry its prefix; statics carry no room's prefix."""
    for path, text in c_files(tree):
        want = PREFIX.get(room_of(path))
        if not want:
            continue
        public = next((name for folder, name in PUBLIC.items() if path.startswith(folder)), want)
        for head in scan.declarations(text):
            if not head.name or head.name == "main":
                continue
            hidden = re.search(r"\bstatic\b", head.text) and path.endswith(".c")
            if hidden and head.name.startswith(tuple(PREFIX.values())):
                yield Finding(path, head.line, "prefix", f"static {head.name} carries a prefix")
            if not hidden and not head.name.startswith((want, public)):
                yield Finding(path, head.line, "prefix", f"{head.name} lacks the prefix {want}")


_OBJECT = re.compile(r"^[\w\s*]*?(\w+)\s*(?:\[[^]]*\]\s*)*(?:=.*)?$")
_AGGREGATE = re.compile(r"^(?:(?:static|_Thread_local|const|typedef|extern)\s+)*"
                        r"(?:struct|enum|union)(?:\s+\w+)?$")


def mutable_global(tree: Tree) -> Iterator[Finding]:
    """State has an owner that passes it on; a file has no mutable state."""
    for path, text in c_files(tree):
        if not path.startswith(tuple(PREFIX)):
            continue
        before = scan.Head(0, "", "", False, False)
        for head in scan.declarations(text):
            body = before.defined and _AGGREGATE.match(before.text)  # struct {...} name;
            words = f"{before.text} {head.text}" if body else head.text
            before = head
            object_ = _OBJECT.match(head.text)
            if (head.name or not object_ or (_AGGREGATE.match(head.text) and not body) or
                    re.search(r"\b(const|typedef|extern)\b", words)):
                continue
            if object_.group(1) != GLOBALS.get(path, ("",))[0]:
                yield Finding(path, head.line, "mutable-global", f"{object_.group(1)} can change")


def white_space(tree: Tree) -> Iterator[Finding]:
    for path, text in tree.items():
        for number, line in enumerate(text.split("\n"), 1):
            if line != line.rstrip():
                yield Finding(path, number, "white-space", "white space at the end of the line")
            if is_c(path) and "\t" in line:
                yield Finding(path, number, "white-space", "tab")
        if text and not text.endswith("\n"):
            yield Finding(path, 0, "white-space", "no line break at the end")


_MACHINE = re.compile(r"(?<![\w.~*-])/(?:work|root|home)/")


def machine_path(tree: Tree) -> Iterator[Finding]:
    """No path of a developer's machine."""
    for path, text in tree.items():
        for number, line in enumerate(text.split("\n"), 1):
            if _MACHINE.search(line):
                yield Finding(path, number, "machine-path", f"one machine's path: {line.strip()}")


_CONFLICT = re.compile(r"(?:<{7}|>{7}|\|{7})(?: |$)")


def conflict(tree: Tree) -> Iterator[Finding]:
    """No merge conflict markers."""
    for path, text in tree.items():
        for number, line in enumerate(text.split("\n"), 1):
            if _CONFLICT.match(line):
                yield Finding(path, number, "conflict", "a merge's mark")


def columns(tree: Tree) -> Iterator[Finding]:
    for path, text in tree.items():
        if is_c(path) or path.endswith((".py", ".sh", ".proto")):
            for number, line in enumerate(text.split("\n"), 1):
                if len(line) > COLUMNS_MAX:
                    yield Finding(path, number, "columns", f"{len(line)} columns")


def reference(tree: Tree) -> Iterator[Finding]:
    """Links, anchors and paths resolve; nothing is named by a bare number."""
    for path, line, said in references.findings(tree):
        yield Finding(path, line, "reference", said)


# Phrases that nobody outside of this project would understand.
_PRIVATE = re.compile(r"who joins takes|\b(?:come|comes|coming|came) again\b"
                      r"|\b(?:give|gives|gave|giving) way\b")


def words(tree: Tree) -> Iterator[Finding]:
    """Texts are in plain English."""
    for path, text in tree.items():
        if path.startswith("tests/tidy/") or path.endswith(".json"):
            continue
        for match in _PRIVATE.finditer(text):
            yield Finding(path, text.count("\n", 0, match.start()) + 1, "words",
                          f'"{match.group()}": say it in plain words')


FOLDER_MIN, FOLDER_MAX = 3, 16  # .c files of a folder
# Folders with fewer or more, each with its reason. tests/unit mirrors the tested folders.
FOLDER_SIZES = {
    "kernels": "the ways into codecs, fragments and outer optimizers; all else is in folders",
    "kernels/cublaslt": "one plugin",
    "worker/client/examples": "includes longhaul.h alone, as a user's program does",
    "server": "the process and what all of it calls; all else is in folders",
    "tests": "what every test program shares",
    "tests/bugs": "a file for each room that has such bugs",
    "tests/replay": "what a run left, and one program",
    "tests/threads": "one program",
    "tests/wan": "most of its tests are scripts",
    "bench/balancer": "one program",
    "bench/durable": "one library",
    "bench/gpu": "two programs",
    "deploy/ask": "a file for each question to a running coordinator, and what they share",
    "deploy/up": "one command, and the file that it reads: a topology, and its tables",
    "tests/sim": "one program: cluster, faults and judge look at the same state",
    "tests/fuzz": "a flat list of targets, found by their names",
    "tests/cores": "a program for each subject over one rig",
}


def folder(tree: Tree) -> Iterator[Finding]:
    """A list of files is a table of contents: neither one line nor two pages."""
    count: dict[str, int] = {}
    for path in tree:
        if path.endswith(".c") and not path.startswith("tests/unit/"):
            count[posixpath.dirname(path)] = count.get(posixpath.dirname(path), 0) + 1
    for path, files in sorted(count.items()):
        if not FOLDER_MIN <= files <= FOLDER_MAX and path not in FOLDER_SIZES:
            yield Finding(path, 0, "folder", f"{files} .c files ({FOLDER_MIN} to {FOLDER_MAX}, or "
                                             "its reason in FOLDER_SIZES)")


RULES: tuple[Callable[[Tree], Iterator[Finding]], ...] = (
    direction, circle, calls, fragment, unused_header, uncalled, length, banned, commit, must_check,
    readme, opening, prefix, mutable_global, white_space, machine_path, conflict, columns,
    reference, words, folder,
)
