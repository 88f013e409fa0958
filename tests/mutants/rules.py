"""The rules that make mutants: each takes a function and yields edits of its text.

An edit is (class, rule, first offset, end, new text). README.md describes the classes. Statements
that only print (logs, errors' texts, assertions) and planted bugs are not changed.
"""
import functools
import glob
import os
import re

import source

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

COMMIT_WORDS = {"sync", "fsync", "commit", "flip", "store", "replace"}
COMMIT_NAMES = {"sync_dir", "wk_outbox_write", "wk_snapshot_write", "ps_wal_add",
                "ps_co_put_row", "ps_epoch_write", "lk_checkpoint_write", "ps_wal_write_ahead"}
NO_COMMIT = {"open", "close", "get", "each", "free", "needed", "committed", "due", "path", "atomic",
             "kick"}
SYNCS = {"sync", "sync_dir", "ps_store_commit", "ps_wal_commit", "ps_wal_commit_small"}
ANSWER_WORDS = {"reply", "answer", "publish", "tell", "ack", "finish", "drop", "erase", "remove",
                "leave", "forget", "hear", "kick", "serve", "decided", "notify"}
CHECK_WORDS = {"check", "verify", "negotiate", "same", "match", "validate", "may", "allowed",
               "moved", "find", "first"}
NUMBERS = {"version", "step", "epoch", "incarnation", "decided", "confirmed", "answered", "round",
           "generation", "stable", "changes", "least", "oldest", "newest", "last"}
PAIRS = (("epoch", "version"), ("decided", "next"), ("head", "replica.ledger"), ("stable", "head"),
         ("confirmed", "answered"), ("admitted", "refused"), ("first_step", "last_step"),
         ("owner", "standby"), ("last_step", "last_version"), ("last", "incarnation"),
         ("gone_incarnation", "gone_step"), ("incarnation", "step"), ("have", "got"),
         ("row", "rows"), ("stable", "version"), ("next", "version"), ("rows", "credit_bytes"),
         ("admitted", "tokens"), ("target", "epoch"), ("least", "epoch"), ("version", "oldest"))
QUIET = {"lh_logf", "lh_log_peer", "lh_fail", "lh_fail_errno", "snprintf", "LH_ASSERT",
         "LH_FAILPOINT", "LH_BUG"}
STOPS = {"&&", "||", "?", ":", "=", "+=", "-=", "|=", "&=", ",", ";", "return", "{", "}", "!"}
COMPARES = {"<", "<=", ">", ">=", "==", "!="}


# ---------------------------------------------------------------- kinds and places

def plain_kind(f, node):
    """The kind of a plain statement: empty, return, jump, declaration, set (an assignment),
    call."""
    said = [t.text for t in f.tokens[node.first:node.end]]
    if said[0] == ";":
        return "empty"
    if said[0] == "return":
        return "return"
    if said[0] in ("goto", "break", "continue"):
        return "jump"
    kinds = [t.kind for t in f.tokens[node.first:node.first + 3]]
    typed = said[0] in ("const", "struct", "enum", "static", "union", "unsigned")
    if typed or kinds[:2] == ["name", "name"] or (
            kinds == ["name", "sign", "name"] and said[1] == "*"):
        return "declaration"
    return "set" if assignment(f, node) else "call"


def assignment(f, node):
    """The place of a plain statement's assignment sign, or of its ++ or --."""
    at = node.first
    while at < node.end:
        said = f.tokens[at].text
        if re.fullmatch(r"[-+*/%&|^]?=|<<=|>>=|\+\+|--", said) and f.tokens[at].kind == "sign":
            return at
        at = f.match[at] + 1 if said in source.OPENING else at + 1
    return None


def calls(f, first, end):
    """(start of the callee's expression, the name's place, end) of each call of [first, end)."""
    for at in range(first, end - 1):
        if f.tokens[at].kind != "name" or f.tokens[at + 1].text != "(":
            continue
        start = at
        while start > first and f.tokens[start - 1].text in ("->", "."):
            start -= 2
            if f.tokens[start].text in source.CLOSING:
                start = f.match[start] - 1
        yield start, at, f.match[at + 1] + 1


def is_commit(name):
    words = set(name.split("_"))
    return (name in COMMIT_NAMES or bool(words & COMMIT_WORDS)) and not words & NO_COMMIT


def has_call(f, node, wanted):
    return any(wanted(f.tokens[at].text) for _, at, _ in calls(f, node.first, node.end))


def is_answer(name):
    return bool(set(name.split("_")) & ANSWER_WORDS) and not is_commit(name)


def commits(f, node):
    return has_call(f, node, is_commit)


def only_says(f, node):
    """A log line, perhaps under a condition, or a failpoint: its order changes nothing."""
    if node.kind in ("if", "block") and node.kids:
        return all(only_says(f, kid) for kid in node.kids)
    return node.kind == "plain" and f.tokens[node.first].text in QUIET


def planted(f, node):
    """A planted bug, which is off unless a test turns it on."""
    return node.kind == "if" and bool(re.match(r"LH_BUG\(", f.said(*node.head)))


def lines(f, node):
    return f.said(node.first, node.end).count("\n") + 1


def gives_err(f):
    return bool(re.search(r"\blh_err\s+\w+\($", f.head[:f.head.index("(") + 1]))


def operand(f, at, step, stops):
    """The end of the operand that begins next to place `at`, in the direction of `step`."""
    at += step
    turn = source.CLOSING if step < 0 else source.OPENING
    halt = source.OPENING if step < 0 else source.CLOSING
    while f.tokens[at].text not in stops and f.tokens[at].text not in halt:
        at = f.match[at] + step if f.tokens[at].text in turn else at + step
    return at


def compares(f, stops=None):
    """(left, sign, right end) of every comparison; operands are [left, sign) and (sign, end)."""
    stops = stops or STOPS | COMPARES
    for at, token in enumerate(f.tokens):
        if token.text in COMPARES and token.kind == "sign":
            yield operand(f, at, -1, stops) + 1, at, operand(f, at, 1, stops)


def neighbours(f):
    """Each pair of consecutive statements."""
    for node in f.tree.all():
        if node.kind == "block":
            yield from zip(node.kids, node.kids[1:])


def gone(f, node):
    """The edit that removes a statement."""
    start, end = f.span(node.first, node.end)
    return start, end, "" if node.up and node.up.kind == "block" else ";"


# ---------------------------------------------------------------- durability

def drop_call(f, wanted, kind):
    """A call is removed: with its statement, or LH_OK replaces it."""
    for node in f.tree.all():
        if node.kind == "block" or node.kids and node.kind != "if":
            continue
        first, end = node.head if node.kids else (node.first, node.end)
        for start, at, stop in calls(f, first, end):
            if not wanted(f.tokens[at].text):
                continue
            before = " ".join(t.text for t in f.tokens[first:start])
            whole = re.fullmatch(r"|\( void \)|LH_TRY \(|LH_TRY_TO \( \w+ , \w+ ,", before)
            if whole and not node.kids:
                yield kind, "drop", *gone(f, node)
            else:
                yield kind, "drop", *f.span(start, stop), "LH_OK"


def drop_sync(f):
    yield from drop_call(f, lambda name: name in SYNCS, "sync")
    for node in f.tree.all():  # a flag that asks for durability
        if node.kind != "if":
            continue
        for at in range(*node.head):
            if f.tokens[at].text in ("durably", "sync") and f.tokens[at + 1].text != "(":
                yield "sync", "flag", *f.span(at, at + 1), "false"


def drop_commit(f):
    yield from drop_call(f, lambda name: is_commit(name) and name not in SYNCS, "commit")


@functools.lru_cache(maxsize=1)
def bodies():
    """The bodies of the tree's functions: static ones by (file, name), others by ("", name)."""
    said = {}
    for folder in ("common", "kernels", "server", "worker"):
        for path in glob.glob(os.path.join(ROOT, folder, "**", "*.c"), recursive=True):
            file = os.path.relpath(path, ROOT)
            with open(path, encoding="utf-8") as opened:
                text = source.blank(opened.read())
            for found in source.FUNCTION.finditer(text):
                head = found.group("head")
                name = re.search(r"(\w+)\(", head).group(1)
                where = file if head.lstrip().startswith("static") else ""
                said.setdefault((where, name), []).append((file, found.group("body")))
    return said


@functools.lru_cache(maxsize=None)
def reached(file, name):
    """The words of a function that `file` calls, and of all that it calls; None: unknown."""
    known, found, met = bodies(), set(), set()
    left = [(file, name) if (file, name) in known else ("", name)]
    if left[0] not in known:
        return None
    while left:
        key = left.pop()
        if key in met or key not in known:
            continue
        met.add(key)
        for at, body in known[key]:
            found |= set(re.findall(r"\w+", body))
            for call in re.findall(r"(?<![\w.>])(\w+)\(", body):
                left.append((at, call) if (at, call) in known else ("", call))
    return found


def unread(f, a, b):
    """Whether `a` is an assignment and `b`, with all that it calls, uses none of its members."""
    if a.kind != "plain" or b.kind != "plain" or plain_kind(f, a) != "set":
        return False
    sign, said = assignment(f, a), f.tokens
    members_of = {said[at].text for at in range(a.first + 1, a.end)
                  if said[at].kind == "name" and said[at - 1].text in ("->", ".")}
    names = [said[at].text for _, at, _ in calls(f, b.first, b.end)]
    called = [reached(f.file, n) for n in names if n not in ("LH_TRY", "LH_TRY_TO")]
    if said[sign - 1].text not in members_of or any(calls(f, a.first, a.end)):
        return False
    if not called or None in called:
        return False
    return not members_of & f.words(b.first, b.end).union(*called)


def swap(f):
    """A change and its commit, one before the other, change places."""
    for a, b in neighbours(f):
        if not (commits(f, a) or commits(f, b)) or lines(f, a) > 6 or lines(f, b) > 6:
            continue
        if only_says(f, a) or only_says(f, b) or planted(f, a) or planted(f, b):
            continue
        if unread(f, a, b):
            continue
        kinds = {plain_kind(f, n) if n.kind == "plain" else n.kind for n in (a, b)}
        one, two = f.said(a.first, a.end), f.said(b.first, b.end)
        start, end = f.span(a.first, b.end)
        if not kinds & {"return", "jump", "declaration", "label", "block", "empty"}:
            yield "swap", "neighbours", start, end, f"{two}\n    {one}"
        elif plain_kind(f, b) == "return" and b.kind == "plain" and commits(f, b) and gives_err(f):
            value = two[len("return"):-1].strip()
            simple = a.kind == "plain" and plain_kind(f, a) in ("set", "call")
            if simple and "?" not in value:
                yield ("swap", "returned", start, end,
                       f"LH_TRY({value});\n    {one}\n    return LH_OK;")


def early(f):
    """An answer, or the removal of old data, comes before the commit that it must wait for."""
    for node in f.tree.all():
        if node.kind != "block":
            continue
        for k, first in enumerate(node.kids):
            if not commits(f, first) or first.kind == "label":
                continue
            if first.kind == "plain" and plain_kind(f, first) == "declaration":
                continue
            for late in node.kids[k + 1:]:
                if late.kind == "label":
                    break
                if not has_call(f, late, is_answer) or lines(f, late) > 8:
                    continue
                start, end = f.span(first.first, late.end)
                cut = f.tokens[late.first].start
                said, between = f.said(late.first, late.end), f.source[start:cut]
                value = said[len("return"):-1].strip()
                if said.startswith("return") and gives_err(f) and "?" not in value:
                    yield ("early", "before_commit", start, end,
                           f"LH_TRY({value});\n    {between}return LH_OK;")
                elif not re.search(r"\breturn\b", said):
                    yield "early", "before_commit", start, end, f"{said}\n    {between}"
    for node in f.tree.all():
        if node.kind != "plain":
            continue
        for start, at, end in calls(f, node.first, node.end):
            if f.tokens[at].text != "work":
                continue
            parts = arguments(f, at + 1)
            if len(parts) == 5:
                done, arg = f.said(*parts[3]), f.said(*parts[4])
                yield "early", "done_at_once", *f.span(start, end), f"{done}({arg})"
    if gives_err(f):  # success is returned before the commit
        for node in f.tree.all():
            plain = node.kind == "plain" and node.up.kind == "block" and commits(f, node)
            if plain and plain_kind(f, node) in ("call", "set") and node is not node.up.kids[-1]:
                start = f.tokens[node.first].start
                yield "early", "returns", start, start, "return LH_OK; "


def arguments(f, opening):
    """The token ranges of a call's arguments."""
    end, parts, first, at = f.match[opening], [], opening + 1, opening + 1
    while at < end:
        if f.tokens[at].text == ",":
            parts.append((first, at))
            first = at + 1
        at = f.match[at] + 1 if f.tokens[at].text in source.OPENING else at + 1
    return parts + [(first, end)] if end > opening + 1 else parts


# ---------------------------------------------------------------- numbers

def off_by_one(f):
    """One too many or too few where versions, steps and epochs are compared, set and made."""
    for left, at, end in compares(f):
        one, two = f.words(left, at), f.words(at + 1, end)
        if not (one | two) & NUMBERS or {"NULL", "err", "len"} & (one | two):
            continue
        if "next" in one | two and not (one | two) & (NUMBERS - {"next"}):
            continue
        sign = f.tokens[at].text
        plus_left, plus_right = f.span(left, at)[1], f.span(at + 1, end)[1]
        if sign in ("<", ">=", "==", "!="):
            yield "off_by_one", "left", plus_left, plus_left, " + 1"
        if sign in (">", "<=", "==", "!="):
            yield "off_by_one", "right", plus_right, plus_right, " + 1"
    for node in f.tree.all():
        sign = assignment(f, node) if node.kind == "plain" else None
        if sign is None or f.tokens[sign].text not in ("=", "+=") or node.first >= sign:
            continue
        last = f.tokens[sign - 1].text
        if set(last.split("_")) & (NUMBERS | {"next"}) and plain_kind(f, node) in (
                "set", "declaration"):
            value = f.said(sign + 1, node.end - 1)
            if not re.search(r"\*|&|NULL|\bat$|\{|->first$|followers", value):
                yield ("off_by_one", "set", *f.span(sign + 1, node.end - 1),
                       f"({value}) + 1" if "?" in value else f"{value} + 1")
    for at in range(1, len(f.tokens) - 2):
        if f.tokens[at].text in "+-" and f.tokens[at + 1].text == "1":
            start, end = f.tokens[at - 1].end, f.tokens[at + 1].end
            if f.tokens[at + 2].text not in ("->", ".", "[") and (
                    f.words(max(0, at - 4), at) & (NUMBERS | {"next", "rows", "number"})):
                yield "off_by_one", "without", start, end, ""


def greater(f, node):
    """if (a > b) b = a; if both are equal, either is right."""
    body = node.kids[0] if node.kind == "if" and len(node.kids) == 1 else None
    sign = assignment(f, body) if body and body.kind == "plain" else None
    if sign is None or f.tokens[sign].text != "=":
        return False
    sides = [f.said(body.first, sign), f.said(sign + 1, body.end - 1)]
    return any(f.said(*node.head) == f"{one} {way} {two}"
               for one, two in (sides, sides[::-1]) for way in ("<", ">", "<=", ">="))


def boundary(f):
    other = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
    heads = [n.head for n in f.tree.all() if n.kind == "for" or greater(f, n)]
    for _, at, _ in compares(f):
        new = other.get(f.tokens[at].text)
        if new and not any(first <= at < end for first, end in heads):
            yield "boundary", "edge", *f.span(at, at + 1), new


# ---------------------------------------------------------------- checks

def conditions(f):
    """Each condition that controls more than output."""
    for node in f.tree.all():
        if node.kind in ("if", "while"):
            if not all(only_says(f, n) for n in node.all() if n.kind == "plain"):
                yield node, f.said(*node.head)


def dull(said):
    """A condition whose negation ends any run at once: a failed call, no memory."""
    return bool(re.fullmatch(r"err|!err|!\*?\w+|\w+|w->stopped|s->stopped|true", said))


def negate(f):
    for node, said in conditions(f):
        if not dull(said):
            yield "negate", "whole", *f.span(*node.head), f"!({said})"


def only_returns(f, node):
    body = node.kids[0]
    last = body.kids[-1] if body.kind == "block" and body.kids else body
    return last.kind == "plain" and f.tokens[last.first].text == "return"


def skip_check(f):
    for node, said in conditions(f):
        if node.kind != "if" or dull(said) and not only_returns(f, node):
            continue
        if said == "err" or re.fullmatch(r"!\*?\w+", said):
            continue
        if only_returns(f, node) and len(node.kids) == 1:
            yield "check", "without", *gone(f, node)
        elif not only_returns(f, node):
            yield "check", "never", *f.span(*node.head), "false"
            yield "check", "always", *f.span(*node.head), "true"
    for node in f.tree.all():
        if node.kind == "plain" and f.tokens[node.first].text == "LH_TRY":
            name = f.tokens[node.first + 2].text
            if set(name.split("_")) & CHECK_WORDS and f.tokens[node.first + 3].text == "(":
                yield "check", "call", *gone(f, node)
    yield from drop_operand(f)
    yield from same_thing(f)


def drop_operand(f):
    """One of several joined conditions is removed."""
    for at, token in enumerate(f.tokens):
        if token.text not in ("&&", "||"):
            continue
        stops = STOPS - {"!"} - ({"&&"} if token.text == "||" else set())
        left, right = operand(f, at, -1, stops), operand(f, at, 1, stops)
        if "LH_BUG" in f.said(left + 1, right):
            continue
        if f.tokens[left].text != token.text and f.tokens[left].text != "?":
            yield ("check", "operand", f.tokens[left + 1].start, f.tokens[at + 1].start, "")
        yield "check", "operand", f.tokens[at - 1].end, f.tokens[right - 1].end, ""


def same_thing(f):
    """A value is compared with itself."""
    equal = [(at, arguments(f, at + 1)) for _, at, _ in calls(f, 0, len(f.tokens))
             if f.tokens[at].text in ("lh_span_equal", "lh_hash_equal")]
    for node in f.tree.all():
        if node.kind != "plain" or plain_kind(f, node) != "set":
            continue
        sign = assignment(f, node)
        name = f.said(node.first, sign)
        for at, parts in equal:
            if sign > at or len(parts) != 2 or not re.fullmatch(r"\w+", name):
                continue
            said = [f.said(*p) for p in parts]
            mine = next((k for k in (0, 1) if re.search(rf"(?<![>.])\b{name}\b", said[k])),
                        None)
            if mine is None:
                continue
            other = said[1 - mine]
            span = re.fullmatch(r"lh_span\((.*), (.*)\)", other)
            new = (f"if ({span.group(2)} == LH_HASH_BYTES) "
                   f"memcpy({name}.b, {span.group(1)}, LH_HASH_BYTES);" if span
                   else f"{name} = *({other});")
            yield "check", "same_thing", *f.span(node.first, node.end), new


# ---------------------------------------------------------------- loops, state, names, errors

def first_only(f):
    for node in f.tree.all():
        if node.kind != "for":
            continue
        first, end = node.head
        parts = re.split(r";", f.said(first, end))
        if len(parts) != 3:
            continue
        listed = re.fullmatch(r"\s*(\w+) = \1->\w+", parts[2])
        if listed:
            stop = f.span(first, end)[1]
            yield "first", "list", stop - len(parts[2].strip()), stop, f"{listed.group(1)} = NULL"
        for left, at, right in compares(f):
            if not first <= at < end or f.tokens[at].text != "<" or at != left + 1:
                continue
            if f"{f.tokens[left].text}++" not in parts[2]:
                continue
            shards = f.words(at + 1, right) & {"shards", "shard"}
            yield "first", "shard" if shards else "counted", *f.span(at + 1, right), "1"
            if shards:
                start = f.span(left, at)[1]
                yield "first", "all_but_last", start, start, " + 1"


def drop_state(f):
    for node in f.tree.all():
        if node.kind != "plain" or plain_kind(f, node) != "set":
            continue
        left = f.said(node.first, assignment(f, node))
        if ("->" in left or left.startswith("*")) and not re.search(r"->(count|conf|ops)\b", left):
            yield "state", "without", *gone(f, node)


@functools.lru_cache(maxsize=1)
def members(text):
    """A file's uses of members: (object, member)."""
    return set(re.findall(r"(\w+)(?:->|\.)(\w+(?:\.ledger)?)\b", text))


def wrong_one(f):
    """One of a pair replaces the other, if the file uses both of the same object."""
    known = members(f.source)
    for at in range(2, len(f.tokens)):
        if f.tokens[at].kind != "name" or f.tokens[at - 1].text not in ("->", "."):
            continue
        if at + 1 < len(f.tokens) and f.tokens[at + 1].text == "(":
            continue
        for one, two in PAIRS:
            for old, new in ((one, two), (two, one)):
                parts = old.split(".")
                said = [t.text for t in f.tokens[at:at + 2 * len(parts) - 1:2]]
                if said == parts and (f.tokens[at - 2].text, new) in known:
                    yield "pair", "other", *f.span(at, at + 2 * len(parts) - 1), new


def error_is_ok(f):
    for node in f.tree.all():
        if node.kind != "plain":
            continue
        said, kind = f.said(node.first, node.end), plain_kind(f, node)
        failed = re.search(r"\bLH_ERR_\w+|\blh_fail\w*\(|\bimpossible\(", said)
        inner = said == "return err;" and node.up.kind == "if"
        if kind == "return" and gives_err(f) and (failed or inner):
            yield "error", "returned", *f.span(node.first, node.end), "return LH_OK;"
        elif kind == "set" and failed and re.match(r"(\*?\w+->)?(err|result)\w* = ", said):
            sign = assignment(f, node)
            yield "error", "set", *f.span(sign + 1, node.end - 1), "LH_OK"
        elif kind == "call" and re.match(r"\w*fatal\(", said):
            yield "error", "fatal", *gone(f, node)


RULES = (drop_sync, drop_commit, swap, early, off_by_one, boundary, negate, skip_check, first_only,
         drop_state, wrong_one, error_is_ok)
CLASSES = ("sync", "commit", "swap", "early", "off_by_one", "boundary", "negate", "check", "first",
           "state", "pair", "error", "python",  # its rules are in python_rules.py
           "kernels")  # its rules are in kernel_rules.py


def quiet(f):
    """Offsets in which nothing is changed: output, and planted bugs."""
    for start, at, end in calls(f, 0, len(f.tokens)):
        if f.tokens[at].text in QUIET:
            yield f.span(start, end)
    for node in f.tree.all():
        if node.kids and re.search(r"(?<!!)LH_BUG\(", f.said(*node.head) if node.head[1] else ""):
            if "||" not in f.said(*node.head):
                yield f.span(node.first, node.end)


def each_once(f, made):
    """The edits that change more than output, each once."""
    held, seen = list(quiet(f)), set()
    for kind, name, start, end, new in made:
        inside = any(a <= start and end <= b and (a, b) != (start, end) for a, b in held)
        same = source.squeeze(f.source[start:end]) == source.squeeze(new)
        if inside or same or (start, end, new) in seen:
            continue
        seen.add((start, end, new))
        yield kind, name, start, end, new


def edits(f):
    """Every edit of a function, each once."""
    return each_once(f, ((kind, f"{kind}.{name}", start, end, new) for rule in RULES
                         for kind, name, start, end, new in rule(f)))
