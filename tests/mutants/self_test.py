#!/usr/bin/env python3
"""mutants.py: rules make the expected edits, among them eight known mutants; names are stable."""
import ast
import contextlib
import io
import json
import os
import re
import sys
import tempfile
import time
import textwrap
import threading
import unittest
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import campaign  # noqa: E402
import mutants  # noqa: E402
import plan  # noqa: E402
import rules  # noqa: E402
import source  # noqa: E402

# Mutants that every test of an earlier tree missed: the file, a piece of it, its replacement.
KNOWN = (
    ("server/push/follow.c", "chain = r.chain;", """
        if (from->chain.len == LH_HASH_BYTES) memcpy(chain.b, from->chain.data, LH_HASH_BYTES);""",
     """
        struct lh_hash chain = l->chain;
        if (from->version < l->version) {
            chain = r.chain;
        }
        if (from->version &&
            !lh_span_equal(lh_span(from->chain.data, from->chain.len),
                           lh_span(chain.b, LH_HASH_BYTES)) &&
            !LH_BUG("no_chain"))
            return lh_fail(LH_ERR_NOT_FOUND, "another history");
        return LH_OK;"""),
    ("server/push/insync.c", "n->confirmed >= n->answered", "n->confirmed + 1 >= n->answered", """
        if (n->state == PS_CATCHING && n->confirmed >= n->answered) {
            n->settled = false;
            n->state = PS_JOINING;
        }
        return LH_OK;"""),
    ("server/coordinator/owners/insync.c", """
        LH_TRY(ps_co_store_insync(c, m->shard));
        LH_TRY(ps_store_commit(c->store));""", "LH_TRY(ps_co_store_insync(c, m->shard));", """
        s->changes++;
        LH_TRY(ps_co_store_insync(c, m->shard));
        LH_TRY(ps_store_commit(c->store)); // durable before it is answered
        lh_logf(c->conf.log, LH_INFO, "standby.in_sync", "shard %u", m->shard);
        return LH_OK;"""),
    ("worker/push/session.c", "if (last < s->decided || last >= s->next) return true;",
     "if (last < s->decided || last > s->next) return true;", """
        if (LH_BUG("no_hello")) return false;
        if (last < s->decided || last >= s->next) return true;
        return false;"""),
    ("server/state/checkpointer.c", """
        uint64_t needed = UINT64_MAX;
        for (uint32_t i = 0; i < s->conf.shard_count; i++) {""", """
        uint64_t needed = UINT64_MAX;
        for (uint32_t i = 0; i < 1; i++) {""", """
        uint64_t needed = UINT64_MAX;
        for (uint32_t i = 0; i < s->conf.shard_count; i++) {
            LH_TRY(prune(s, shard->id, false, &oldest));
        }
        return LH_OK;"""),
    ("server/push/group_commit.c", "for (uint32_t k = 0; k < s->conf.shard_count && !err; k++)",
     "for (uint32_t k = 0; k < 1 && !err; k++)", """
        for (uint32_t k = 0; k < s->conf.shard_count && !err; k++)
            err = lh_ledger_copy(&s->shard[k]->head, &s->shard[k]->replica.ledger);
        return err;"""),
    ("server/recovery/recover.c",
     "i < s->conf.shard_count && torn && !LH_BUG(\"tail_silent\"); i++)",
     "i < 1 && torn && !LH_BUG(\"tail_silent\"); i++)", """
        for (uint32_t i = 0; i < s->conf.shard_count && torn && !LH_BUG("tail_silent"); i++) {
            struct ps_shard *shard = s->shard[i];
            if (ended(shard)) continue;
        }
        return LH_OK;"""),
    ("worker/replica/snapshot.c",
     "(got->epoch < have->epoch || (got->epoch == have->epoch && got->version < have->version))",
     "(got->epoch == have->epoch && got->version < have->version)", """
        bool back =
            s->ready && s->arrival.incoming.theta &&
            (got->epoch < have->epoch ||
             (got->epoch == have->epoch && got->version < have->version));
        if (!back) return LH_OK;
        return lh_fail(LH_ERR_CONFLICT, "older");"""),
)
# For each rule a statement that it changes, and the result.
MADE = (
    ("sync.drop", "LH_TRY(files->sync(file));", ""),
    ("sync.flag", "if (durably) x();", "if (false) x();"),
    ("commit.drop", "err = wk_flip(s, false);", "err = LH_OK;"),
    ("swap.neighbours", "s->changes++;\nLH_TRY(ps_store_commit(c));",
     "LH_TRY(ps_store_commit(c));\ns->changes++;"),
    ("swap.returned", "s->changes++;\nreturn ps_store_commit(c);",
     "LH_TRY(ps_store_commit(c));\ns->changes++;\nreturn LH_OK;"),
    ("early.before_commit", "LH_TRY(ps_store_commit(c));\nx();\nlh_answer(rq, t, m);",
     "lh_answer(rq, t, m);\nLH_TRY(ps_store_commit(c));\nx();"),
    ("early.before_commit", "LH_TRY(wk_flip(s, false));\nreturn wk_entry_drop(s, e);",
     "LH_TRY(wk_entry_drop(s, e));\nLH_TRY(wk_flip(s, false));\nreturn LH_OK;"),
    ("early.done_at_once", "s->ops->work(s->env, LANE, job, done, s);", "done(s);"),
    ("early.returns", "LH_TRY(ps_store_commit(c));\nx();",
     "return LH_OK; LH_TRY(ps_store_commit(c));\nx();"),
    ("off_by_one.left", "if (m->epoch < s->epoch) x();", "if (m->epoch + 1 < s->epoch) x();"),
    ("off_by_one.right", "if (m->epoch > s->epoch) x();", "if (m->epoch > s->epoch + 1) x();"),
    ("off_by_one.set", "l->version = r->version;", "l->version = r->version + 1;"),
    ("off_by_one.without", "r->version = l->version + 1;", "r->version = l->version;"),
    ("boundary.edge", "if (a <= b) x();", "if (a < b) x();"),
    ("negate.whole", "if (a == b) x();", "if (!(a == b)) x();"),
    ("check.without", "if (a == b) return LH_ERR_BUSY;\nx();", "x();"),
    ("check.never", "if (a == b) x();", "if (false) x();"),
    ("check.always", "if (a == b) x();", "if (true) x();"),
    ("check.call", "LH_TRY(ps_check_run(s, m));", ""),
    ("check.operand", "y = a && b || c;", "y = a && b;"),
    ("check.same_thing", "mine = a;\nif (lh_hash_equal(&mine, &m->hash)) x();",
     "mine = *(&m->hash);\nif (lh_hash_equal(&mine, &m->hash)) x();"),
    ("first.shard", "for (i = 0; i < w->shards; i++) x(i);", "for (i = 0; i < 1; i++) x(i);"),
    ("first.all_but_last", "for (i = 0; i < w->shards; i++) x(i);",
     "for (i = 0; i + 1 < w->shards; i++) x(i);"),
    ("first.counted", "for (i = 0; i < f->claims; i++) x(i);", "for (i = 0; i < 1; i++) x(i);"),
    ("first.list", "for (e = o->first; e; e = e->next) x(e);",
     "for (e = o->first; e; e = NULL) x(e);"),
    ("state.without", "s->decided = e->step;", ""),
    ("pair.other", "x(s->epoch, s->version);", "x(s->version, s->version);"),
    ("error.returned", "return lh_fail(LH_ERR_BUSY, \"no\");", "return LH_OK;"),
    ("error.set", "err = lh_fail(LH_ERR_BUSY, \"no\");", "err = LH_OK;"),
    ("error.fatal", "ps_fatal(s, err);", ""),
)

EVERY = mutants.every()


def function(body, name="some"):
    body = textwrap.indent(textwrap.dedent(body).strip(), "    ")
    return f"static lh_err {name}(struct x *s)\n{{\n{body}\n}}\n"


def read(path):
    """The contents of a file; empty if it does not exist."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def same(text):
    """Code in the form that is compared: without comments and white space."""
    return source.squeeze(source.blank(text))


class Rules(unittest.TestCase):
    def test_the_known_mutants_come_out_of_the_rules(self):
        for file, before, after, body in KNOWN:
            text = function(body)
            wanted = same(text).replace(same(before), same(after))
            self.assertNotEqual(wanted, same(text), file)
            made = {same(m.apply(text)) for m in mutants.mutants_of(file, text)}
            self.assertIn(source.squeeze(wanted), made, file)

    def test_the_known_mutants_come_out_of_the_tree_where_their_code_still_stands(self):
        for file, before, after, _ in KNOWN:
            for f in source.functions(file, read(os.path.join(mutants.ROOT, file))):
                if same(before) not in same(f.text):
                    continue  # another function, or that code was rewritten
                wanted = source.squeeze(same(f.text).replace(same(before), same(after), 1))
                made = mutants.mutants_of(file, f.text + "\n")
                self.assertIn(wanted, {same(m.apply(f.text)) for m in made}, file)

    def test_each_rule_makes_what_it_says(self):
        for rule, before, after in MADE:
            text, wanted = function(before), same(function(after))
            made = [m for m in mutants.mutants_of("common/x.c", text) if m.rule == rule]
            self.assertIn(wanted, [same(m.apply(text)) for m in made], rule)

    def test_every_rule_has_an_example(self):
        made = {m.rule for m in EVERY if m.kind not in ("python", "kernels")}
        self.assertLessEqual(made, {rule for rule, _, _ in MADE})

    def test_logging_assertions_and_planted_bugs_stay_alone(self):
        text = function("""
            lh_logf(s->log, LH_INFO, "x", "%d", a->version == 1 ? 2 : 3);
            LH_ASSERT(a->version < b->version);
            if (a->step) lh_logf(s->log, LH_INFO, "x", "y");
            if (LH_BUG("early")) a->version = 1;""")
        self.assertEqual(list(mutants.mutants_of("common/x.c", text)), [])


    def test_a_change_and_its_commit_change_places_only_where_that_can_be_told(self):
        def swaps(text):
            return [m for m in mutants.mutants_of("common/x.c", function(text))
                    if m.rule == "swap.neighbours"]
        commit = "LH_TRY(ps_co_store_insync(c, shard));"  # writes owner, standby, changes
        self.assertTrue(swaps(f"s->changes++;\n{commit}"))
        self.assertTrue(swaps(f"s->standby = 0;\n{commit}"))
        self.assertFalse(swaps(f"s->heard_of = server;\n{commit}"))  # heard_of is in no row
        self.assertTrue(swaps(f"s->heard_of = s->owner;\n{commit}"))
        self.assertTrue(swaps(f"s->heard_of = write_row(s);\n{commit}"))
        self.assertTrue(swaps(f"{commit}\ns->heard_of = server;"))  # only once it was stored
        self.assertFalse(swaps(f"if (LH_BUG(\"twice\")) LH_TRY(wk_commit(c, false));\n{commit}"))
        self.assertTrue(swaps("s->heard_of = server;\nLH_TRY(nobody_knows_what_commit(c));"))
        self.assertFalse(swaps(f"{commit}\nif (!err) lh_logf(s->log, LH_INFO, \"x\", \"y\");"))

    def test_the_greater_of_two_has_no_boundary(self):
        def edges(text):
            return [m for m in mutants.mutants_of("common/x.c", function(text))
                    if m.rule == "boundary.edge"]
        self.assertFalse(edges("if (a->x > b) b = a->x;"))
        self.assertFalse(edges("if (b < a->x) b = a->x;"))
        self.assertTrue(edges("if (a->x > b) b = a->y;"))
        self.assertTrue(edges("if (a->x > b && c) b = a->x;"))
        self.assertTrue(edges("if (a->x > b) b += a->x;"))


PYTHON_MADE = (  # rule, a statement, the result
    ("python.boundary", "b = a < 1", "b = a <= 1"),
    ("python.negate", "b = a is not self", "b = a is self"),
    ("python.negate", "b = not a", "b = (a)"),
    ("python.condition", "b = a and self", "b = a or self"),
    ("python.check", "if a: raise E(a)", "if False: raise E(a)"),
    ("python.loop", "while a: a.next()", "while False: a.next()"),
    ("python.state", "self.x = a", "pass"),
    ("python.call", "self.go(a)", "pass"),
    ("python.off_by_one", "b = a + 1", "b = (a)"),
    ("python.result", "return True", "return False"),
)


class Python(unittest.TestCase):
    def made(self, text):
        return {(m.rule, m.apply(text)) for m in mutants.mutants_of("p.py", text)}

    def test_each_rule_makes_its_mutant(self):
        for rule, was, new in PYTHON_MADE:
            text = f'def f(self, a):\n    """Says {was}."""\n    {was}\n'
            self.assertIn((rule, text[:-len(was) - 1] + new + "\n"), self.made(text))
        rules_made = {m.rule for m in EVERY if m.kind == "python"}
        self.assertEqual(rules_made, {rule for rule, _, _ in PYTHON_MADE})

    def test_logging_stays_alone(self):
        self.assertFalse(self.made('def f(a):\n    _log.warning("%s", a < 1)\n'))

    def test_every_mutant_of_the_package_is_python(self):
        made = [m for m in EVERY if m.kind == "python"]
        self.assertGreaterEqual(len({m.file for m in made}), 20)
        texts = {m.file: read(os.path.join(mutants.ROOT, m.file)) for m in made}
        for m in made:  # only the function's lines: a whole file takes ten times as long
            node, text = m.function.node, m.apply(texts[m.file])
            more = text.count("\n") - texts[m.file].count("\n")
            lines = text.splitlines(True)[node.lineno - 1:node.end_lineno + more]
            ast.parse("if True:\n" * (node.col_offset > 0) + "".join(lines))


KERNELS_MADE = (  # rule, statements, the result
    ("kernels.barrier", "a = 1; __syncthreads(); b = a;", "a = 1; b = a;"),
    ("kernels.bound", "for (int i = 0; i < n; i++) a += x[i];",
     "for (int i = 0; i + 1 < n; i++) a += x[i];"),
    ("kernels.fused", "a = __fadd_rn(__fmul_rn(x, y), z);", "a = fmaf(x, y, z);"),
    ("kernels.fused", "a = __fsub_rn(z, __fmul_rn(x, y));", "a = fmaf(-(x), y, z);"),
    ("kernels.order", "LK_TRY(cudaStreamWaitEvent(s->stream, after, 0));", "LK_TRY(0);"),
    ("kernels.boundary_edge", "if (a < b) c = a;", "if (a <= b) c = a;"),
    ("kernels.negate_whole", "if (a == b) c = a;", "if (!(a == b)) c = a;"),
    ("kernels.check_always", "if (a == b) c = a;", "if (true) c = a;"),
    ("kernels.check_never", "if (a == b) c = a;", "if (false) c = a;"),
    ("kernels.check_operand", "if (a == b && c) c = a;", "if (a == b) c = a;"),
    ("kernels.check_without", "if (a == b) return;", ""),
    ("kernels.state_without", "s->found = a;", ""),
)


class Kernels(unittest.TestCase):
    def test_each_rule_makes_its_mutant(self):
        for rule, before, after in KERNELS_MADE:
            text, wanted = function(before), same(function(after))
            made = [m for m in mutants.mutants_of("kernels/cuda/x.cu", text) if m.rule == rule]
            self.assertIn(wanted, [same(m.apply(text)) for m in made], rule)
        rules_made = {m.rule for m in EVERY if m.kind == "kernels"}
        self.assertEqual(rules_made, {rule for rule, _, _ in KERNELS_MADE})

    def test_c_that_queues_work_has_its_orders_too(self):
        text = function("return err ? err : follow(d, d->left, stream);")
        for file in plan.QUEUES:
            self.assertIn("kernels.order", {m.rule for m in mutants.mutants_of(file, text)}, file)
        self.assertFalse([m for m in mutants.mutants_of("common/x.c", text)
                          if m.kind == "kernels"])


class Changed(unittest.TestCase):
    def test_only_functions_that_differ_are_tried(self):
        file = "server/push/follow.c"
        text = read(os.path.join(mutants.ROOT, file))
        all_of_it = list(source.functions(file, text))
        was = text.replace(all_of_it[0].text, all_of_it[0].text.replace("{", "{ y(s);", 1))

        def git(command, **_):
            said = was if command[3] == "show" else file + "\n"
            return mock.Mock(returncode=0, stdout=said)
        with mock.patch.object(mutants.subprocess, "run", git):
            self.assertEqual(mutants.changed("HEAD"), {all_of_it[0].key})


class Tree(unittest.TestCase):
    def test_there_are_300_and_20_of_each_class(self):
        made = EVERY
        self.assertGreaterEqual(len(made), 300)
        for kind in rules.CLASSES:
            self.assertGreaterEqual(sum(m.kind == kind for m in made), 20, kind)

    def test_each_has_a_name_of_its_own(self):
        made = EVERY
        self.assertEqual(len({m.id for m in made}), len(made))

    def test_every_function_is_read(self):
        for file in plan.files(mutants.ROOT):
            if file.endswith(".py"):
                continue  # Python's own parser reads them
            text = read(os.path.join(mutants.ROOT, file))
            found = len(list(source.functions(file, text)))
            self.assertEqual(found, source.blank(text).count("\n{\n"), file)

    def test_every_file_has_tests_that_are_there(self):
        for file in plan.files(mutants.ROOT):
            for test in plan.tests(mutants.ROOT, file, deep=True):
                kind, _, name = test.name.partition(".")
                if kind == "python":
                    self.assertTrue(os.path.exists(os.path.join(mutants.ROOT, test.command[1])))
                if kind in ("cores", "external", "fault"):
                    path = os.path.join(mutants.ROOT, "tests", kind, f"{name}.c")
                    self.assertRegex(read(path), r"(?m)^(int main|[A-Z_]+)\(", file)


class Names(unittest.TestCase):
    BODY = "if (a->epoch < b->epoch) return LH_ERR_BUSY;\na->epoch = b->epoch;"

    def ids(self, text):
        return {m.id for m in mutants.mutants_of("common/x.c", text)}

    def test_they_hold_where_lines_move_and_the_function_grows(self):
        text = function(self.BODY)
        moved = "// A comment.\n\n" + function("// And one here.\n" + self.BODY)
        self.assertEqual(self.ids(text), self.ids(moved))
        self.assertLessEqual(self.ids(text), self.ids(function(self.BODY + "\ny(s);")))

    def test_they_outlive_a_rename_of_file_and_function(self):
        former = {"files": {"common/base/x.c": "common/x.c"}, "moved": {},
                  "words": {"new_name": "b"}, "members": {}}
        was = self.ids(function(self.BODY))
        with mock.patch.object(source, "FORMER", former):
            text = function(self.BODY).replace("b->", "new_name->")
            now = {m.id for m in mutants.mutants_of("common/base/x.c", text)}
            self.assertEqual(now, was)
        self.assertNotEqual({m.id for m in mutants.mutants_of("common/base/x.c", text)}, was)

    def test_they_outlive_a_function_s_way_into_another_file(self):
        text = function(self.BODY)
        name = next(source.functions("common/x.c", text)).name
        former = {"files": {}, "moved": {f"common/y.c:{name}": "common/x.c"}, "words": {},
                  "members": {}}
        was = self.ids(text)
        self.assertNotEqual({m.id for m in mutants.mutants_of("common/y.c", text)}, was)
        with mock.patch.object(source, "FORMER", former):
            self.assertEqual({m.id for m in mutants.mutants_of("common/y.c", text)}, was)

    def test_moved_functions_are_there(self):
        for moved in source.FORMER["moved"]:
            file, name = moved.split(":")
            text = read(os.path.join(mutants.ROOT, file))
            self.assertIn(name, [f.name for f in source.functions(file, text)], moved)

    def test_they_outlive_a_member_that_is_a_part_s_now(self):
        was = self.ids(function("s->tries = 1;"))
        former = {"files": {}, "moved": {}, "words": {}, "members": {"session.timer": "tries"}}
        text = function("s->session.timer = 1;")
        with mock.patch.object(source, "FORMER", former):
            self.assertEqual(self.ids(text), was)
        self.assertNotEqual(self.ids(text), was)

    def test_renamed_files_are_there_and_their_former_names_are_not(self):
        files, words = source.FORMER["files"], set(source.FORMER["words"])
        self.assertLessEqual(set(files), set(plan.files(mutants.ROOT)))
        self.assertFalse(set(files.values()) & set(plan.files(mutants.ROOT)))
        folders = [os.path.join(mutants.ROOT, room) for room in ("common", "server", "worker")]
        said = {word for folder in folders for path, _, names in os.walk(folder) for name in names
                if name.endswith((".c", ".h"))
                for word in re.findall(r"\w+", read(os.path.join(path, name)))}
        self.assertLessEqual(words, said)

    def test_a_function_counts_as_changed_where_its_code_is(self):
        def key(body):
            return next(source.functions("x.c", function(body))).key
        self.assertEqual(key(self.BODY), key("// Why.\n" + self.BODY))
        self.assertNotEqual(key(self.BODY), key(self.BODY + "\ny(s);"))


class Tries(unittest.TestCase):
    """The recorded results, with a tree and tests of one line each."""

    def setUp(self):
        held = tempfile.TemporaryDirectory()
        self.addCleanup(held.cleanup)
        self.dir = held.name
        self.text = function("a->epoch = b->epoch;")
        os.makedirs(os.path.join(self.dir, "common"))
        with open(self.path(), "w", encoding="utf-8") as file:
            file.write(self.text)

    def path(self):
        return os.path.join(self.dir, "common", "x.c")

    def test_a_mutant_is_built_tested_and_taken_back(self):
        class Copy:
            tree, normal, said = self.dir, {}, []
            write = campaign.Copy.write
            build_status, test_status = 0, [0, 1]

            def make(self, _):
                self.said.append(read(os.path.join(self.tree, "common", "x.c")))
                return self.build_status, 0.0, ""

            def test(self, test, _):
                return self.test_status[int(test.name)], 0.0, ""

            def limit(self, _):
                return 1

        m = next(mutants.mutants_of("common/x.c", self.text))
        tests, copy = [plan.Test("0", "t", []), plan.Test("1", "t", [])], Copy()
        self.assertEqual(campaign.try_one(copy, m, tests), ("killed", "1", "exit 1"))
        self.assertEqual(copy.said, [campaign.PRAGMAS + m.apply(self.text)])
        copy.test_status = [0, None]
        self.assertEqual(campaign.try_one(copy, m, tests), ("killed", "1", "took too long"))
        copy.test_status = [0, -6]
        self.assertEqual(campaign.try_one(copy, m, tests), ("killed", "1", "SIGABRT"))
        copy.test_status = [0, 0]
        self.assertEqual(campaign.try_one(copy, m, tests)[0], "survived")
        copy.build_status = 1
        self.assertEqual(campaign.try_one(copy, m, tests)[0], "unbuilt")
        self.assertEqual(read(self.path()), self.text)

    def test_a_program_that_takes_too_long_is_gone_with_its_children(self):
        groups = campaign.Groups()
        mark = os.path.join(self.dir, "pid")
        status, _, _ = groups.run(["sh", "-c", f"sleep 60 & echo $! > {mark}; wait"], self.dir,
                                  os.environ, 0.5)
        self.assertIsNone(status)
        stat, end = f"/proc/{read(mark).strip()}/stat", time.monotonic() + 60
        while (state := read(stat)) and state.split()[2] != "Z":  # a signal takes time
            self.assertLess(time.monotonic(), end, f"it lives: {state}")
            time.sleep(0.05)
        self.assertEqual(groups.alive, set())

    def test_a_program_that_works_too_long_is_ended(self):
        status, _, _ = campaign.Groups().run(["sh", "-c", "while :; do :; done"], self.dir,
                                             os.environ, 1)
        self.assertIsNone(status)

    def test_a_program_that_is_ended_with_us_says_nothing(self):
        groups = campaign.Groups()
        mark = os.path.join(self.dir, "fifo")
        os.mkfifo(mark)

        def end_once_it_runs():
            with open(mark, encoding="utf-8"):  # blocks until the program opens it
                groups.end()

        thread = threading.Thread(target=end_once_it_runs)
        thread.start()
        with self.assertRaises(KeyboardInterrupt):
            groups.run(["sh", "-c", f"exec >{mark}; sleep 60"], self.dir, os.environ, 10)
        thread.join()

    def test_an_outcome_counts_while_the_function_is_the_same(self):
        path = os.path.join(self.dir, "state.jsonl")
        m = next(mutants.mutants_of("common/x.c", self.text))
        campaign.State(path).add({"id": m.id, "text": m.function.key, "outcome": "killed"})
        self.assertEqual(campaign.State(path).of(m)["outcome"], "killed")
        other = next(mutants.mutants_of("common/x.c", function("a->epoch = b->epoch;\ny(s);")))
        self.assertEqual(other.id, m.id)
        self.assertIsNone(campaign.State(path).of(other))

    def test_a_class_is_judged_by_its_lowest_names_that_build(self):
        made = list(mutants.mutants_of("common/x.c", function(
            "a->epoch = b->epoch;\na->round = b->round;\na->step = b->step;")))
        state = campaign.State(os.path.join(self.dir, "state.jsonl"))
        rows = sorted((m for m in made if m.kind == "state"), key=lambda m: m.id)
        chosen = [m for m in mutants.judged(made, state, 1) if m.kind == "state"]
        self.assertEqual(chosen, rows[:1])
        state.add({"id": rows[0].id, "text": rows[0].function.key, "outcome": "unbuilt"})
        chosen = [m for m in mutants.judged(made, state, 1) if m.kind == "state"]
        self.assertEqual(chosen, rows[:2])
        table = mutants.score(made, state, {rows[1].id: "why"}, 1)["state"]
        self.assertEqual((table["unbuilt"], table["equivalent"], table["untried"]), (1, 1, 0))

    def test_an_equivalent_that_is_no_mutant_fails_the_report(self):
        path, said = os.path.join(self.dir, "equivalent.json"), io.StringIO()
        argv = ["mutants.py", "report", "--json", "", "--state", os.devnull]
        for known, status in (({}, 0), ({"000000000000": "because"}, 1)):
            with open(path, "w", encoding="utf-8") as file:
                json.dump(known, file)
            with mock.patch.multiple(mutants, EQUIVALENT=path, every=lambda: EVERY), \
                    mock.patch.object(sys, "argv", argv), \
                    contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
                self.assertEqual(mutants.main(), status)
        self.assertIn("000000000000 is no mutant any more (because)", said.getvalue())

    def test_the_reasons_in_the_tree_are_words(self):
        for name, why in mutants.equivalents().items():
            self.assertGreater(len(why.split()), 5, name)


if __name__ == "__main__":
    unittest.main()
