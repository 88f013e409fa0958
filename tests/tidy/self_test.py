#!/usr/bin/env python3
"""Tests of the tidy rules: a planted violation of each is found, its harmless neighbour is not."""
import os
import shutil
import subprocess
import tempfile
import unittest

import rules
import scan
import tidy

# rule -> (tree with one violation, the file with it, a similar tree without one)
PLANTED = {
    "direction": (
        {"common/a.c": '// a\n#include "server/b.h"\n', "server/b.h": "// b\n"}, "common/a.c",
        {"server/a.c": '// a\n#include "common/b.h"\n', "common/b.h": "// b\n",
         "worker/client/a.c": '// a\n#include "worker/external/b.h"\n',
         "worker/external/b.h": "// b\n"}),
    "circle": (
        {"common/a.h": '// a\n#include "common/b.h"\n',
         "common/b.h": '// b\n#include "common/a.h"\n'},
        "common/a.h",
        {"common/a.h": '// a\n#include "common/b.h"\n', "common/b.h": "// b\n"}),
    "calls": (
        {"deploy/a.c": "// a\nint dp_a(void)\n{\n    return dp_b();\n}\n",
         "deploy/b.c": "// b\nint dp_b(void)\n{\n    return dp_a();\n}\n"}, "deploy/a.c",
        {"deploy/a.c": "// a\nint dp_a(void)\n{\n    return dp_b();\n}\n",
         "deploy/b.c": "// dp_a()\nint dp_b(void)\n{\n    return dp_c();\n}\n",
         "deploy/c.c": "// c\nint dp_c(void)\n{\n    return 1;\n}\n"}),
    "fragment": (
        {"server/a.c": "// a\nint x; // of a\n"}, "server/a.c",
        {"server/a.c": "// a\n// of a\nint x; // a's offer\n"}),
    "unused-header": (
        {"common/a.h": "// a\n"}, "common/a.h",
        {"common/a.h": "// a\n", "common/a.c": '// a\n#include "common/a.h"\n'}),
    "uncalled": (
        {"server/a.h": "// a\nint ps_a(int x);\n",
         "server/a.c": "// ps_a()\nint ps_a(int x)\n{\n}\n",
         "tests/unit/server/a.c": "// a\nint main(void)\n{\n    return ps_a(1);\n}\n"},
        "server/a.h",
        {"server/a.h": "// a\nint ps_a(int x);\nint ps_b(void);\n",
         "server/a.c": "// a\nint ps_a(int x)\n{\n    return f(ps_b);\n}\n",
         "server/b.c": "// b\nint ps_b(void)\n{\n    return ps_a(2);\n}\n"}),
    "length": (
        {"server/a.c": "// a\n" * 601}, "server/a.c", {"server/a.c": "// a\n" * 600}),
    "banned": (
        {"worker/a.c": "// a\nint f(void)\n{\n    return rand();\n}\n"}, "worker/a.c",
        {"worker/a.c": '// rand()\nstatic const char *s = "rand()"; int wk_x = o->rand(1);\n'}),
    "commit": (
        {"worker/a.c": "// a\nvoid f(struct wk_worker *w)\n{\n    w->incarnation.number++;\n}\n"},
        "worker/a.c",
        {"worker/a.c": "// a\nstatic bool f(void)\n{\n    f.incarnation = w->incarnation;\n"
                       "    s->residual_square = 0;\n    return s->residual == s->spare;\n}\n",
         "worker/push/commit.c": "// a\nstatic void g(void)\n{\n    s->residual = 0;\n}\n",
         "server/a.c": "// a\nstatic void g(void)\n{\n    i->incarnation = j;\n}\n"}),
    "must-check": (
        {"common/a.h": "// a\nlh_err lh_a(int x,\n            int y);\n"}, "common/a.h",
        {"common/a.h": "// a\nLH_MUST lh_err lh_a(int x);\n"
                       "static inline lh_err LH_MUST lh_b(void)\n{\n    return 0;\n}\n"
                       "struct t {\n    lh_err (*f)(int x);\n};\n"}),
    "readme": (
        {"server/a.c": "// a\n"}, "server", {"server/a.c": "// a\n", "server/README.md": "a\n",
                                          "tests/unit/server/a.c": "// a\n"}),
    "words": (
        {"server/README.md": "a\nIt comes again.\n"}, "server/README.md",
        {"server/README.md": "It comes, again and again.\n"}),
    "folder": (
        {f"server/push/{name}.c": "// a\n" for name in "ab"}, "server/push",
        {**{f"server/push/{name}.c": "// a\n" for name in "abc"}, "kernels/a.c": "// a\n",
         "tests/unit/server/a.c": "// a\n"}),
    "opening": (
        {"server/a.c": "#include <stdio.h>\n"}, "server/a.c", {"server/a.c": "// What it is.\n"}),
    "prefix": (
        {"server/a.c": "// a\nint lk_a(void)\n{\n    return 1;\n}\n"}, "server/a.c",
        {"server/a.c": "// a\nstatic int a(void)\n{\n    return 1;\n}\nint ps_a(void)\n{\n}\n",
         "worker/client/a.c": "// a\nint longhaul_a(void)\n{\n}\nint wk_a(void)\n{\n}\n"}),
    "mutable-global": (
        {"server/a.c": "// a\nstatic int count[4] = {1};\n"}, "server/a.c",
        {"server/a.c": "// a\nstatic const int n[] = {1};\nstruct s {\n    int a;\n};\n"
                       "static const struct s t = {1};\n"
                       "static const struct {\n    int a;\n} u[] = {{1}};\n"
                       "enum { A = 1 };\nextern int e;\n"
                       "struct s;\nint ps_f(void)\n{\n    int x;\n}\n"
                       "typedef int (*fn)(void);\n"}),
    "white-space": (
        {"server/README.md": "words \n"}, "server/README.md", {"server/README.md": "words\n"}),
    "machine-path": (
        {"tests/run.sh": "cd /ro" + "ot/x\n"}, "tests/run.sh", {"tests/run.sh": "cd a/work/x\n"}),
    "conflict": (
        {"server/README.md": "a\n" + "<" * 7 + " HEAD\n"}, "server/README.md",
        {"server/README.md": "a\n====\n<<<\n"}),
    "columns": (
        {"server/a.c": "//" + "x" * 99 + "\n"}, "server/a.c",
        {"server/a.c": "//" + "x" * 98 + "\n"}),
    "reference": (
        {"server/a.c": "// a (PROTOCOL 3)\n"}, "server/a.c",
        {"server/c.c": "// c, as in docs/p.md#rule-3\n", "tests/c.md": "[rule 3](../DESIGN.md)\n",
         "server/a.c": "// a (docs/p.md#rule-3, #rule-4); DESIGN.md says why. LH_ERR_PROTOCOL\n",
         "DESIGN.md": "# Design\n",
         "docs/p.md": '3. <a id="rule-3"></a>x\n4. <a id="rule-4"></a>\n'}),
}


class Rules(unittest.TestCase):
    def test_every_rule_finds_its_planted_violation_and_nothing_beside_it(self):
        for rule in rules.RULES:
            name = rule.__name__.replace("_", "-")
            with self.subTest(rule=name):
                bad, place, good = PLANTED[name]
                found = list(rule(bad))
                self.assertEqual([(f.path, f.rule) for f in found], [(place, name)])
                self.assertEqual([str(f) for f in rule(good)], [])

    def test_every_direction_of_the_house(self):
        allowed = {(a, b) for a, below in rules.ROOMS.items() for b in (*below, a)}
        for a in rules.ROOMS:
            for b in rules.ROOMS:
                tree = {f"{a}/x.c": f'// x\n#include "{b}/y.h"\n', f"{b}/y.h": "// y\n"}
                self.assertEqual(not list(rules.direction(tree)), (a, b) in allowed, (a, b))
        for a, b in (("server", "worker"), ("worker", "server"), ("common", "kernels"),
                     ("server", "deploy"), ("deploy", "tests"), ("kernels", "server")):
            self.assertNotIn((a, b), allowed)

    def test_every_direction_between_folders_of_a_room(self):
        for a, below in rules.FOLDERS.items():
            for b in rules.FOLDERS:
                tree = {f"{a}/x.c": f'// x\n#include "{b}/y.h"\n', f"{b}/y.h": "// y\n"}
                room, other = a.split("/")[0], b.split("/")[0]
                allowed = b in (a, *below) and other in (room, *rules.ROOMS[room])
                self.assertEqual(not list(rules.direction(tree)), allowed, (a, b))
        for a, b in (("base", "env"), ("env", "security"), ("security", "env"), ("format", "net"),
                     ("net", "net/grpc"), ("net/grpc", "app"), ("net", "app")):
            self.assertNotIn(f"common/{b}", rules.FOLDERS[f"common/{a}"])

    def test_an_include_must_exist_and_generated_words_are_proto(self):
        missing = {"common/a.c": '// a\n#include "a.h"\n'}
        self.assertIn("no file", str(next(rules.direction(missing))))
        words = {"common/a.c": '// a\n#include "longhaul/v1/push.pb-c.h"\n'}
        self.assertEqual(list(rules.direction(words)), [])

    def test_files_of_every_language_have_a_bound_and_data_have_none(self):
        for name, long in (("a.c", 1), ("a.py", 1), ("a.sh", 1), ("a.proto", 1), ("a.json", 0)):
            found = [f.path for f in rules.length({"tests/" + name: "x\n" * 601})]
            self.assertEqual(found, ["tests/" + name] * long)

    def test_pages_that_have_a_bound_keep_it(self):
        for page, good, bad in (("bench/README.md", "x\n" * 80, "x\n" * 81),
                                ("CHANGELOG.md", "# C\n\n## 1\n" + "x\n" * 29 + "\n## 0\nx\n",
                                 "# C\n\n## 1\n" + "x\n" * 30 + "\n## 0\nx\n")):
            self.assertEqual(list(rules.length({page: good})), [], page)
            self.assertEqual([f.path for f in rules.length({page: bad})], [page])

    def test_world_calls_are_banned_in_cores_only(self):
        for call in ("time(0)", "fopen(p, q)", "open(p, 0)", "gettimeofday(&t, 0)"):
            text = f"// a\nint x = {call};\n"
            self.assertTrue(list(rules.banned({"server/a.c": text})), call)
            for path in ("server/main.c", "common/env/env_real.c", "deploy/a.c", "tests/unit/a.c"):
                self.assertFalse(list(rules.banned({path: text})), (path, call))

    def test_unsafe_text_calls_are_banned_everywhere(self):
        for call in ("strcpy", "strcat", "sprintf", "gets", "strtok", "atoi"):
            for path in ("deploy/a.c", "common/env/env_real.c", "tests/unit/a.c"):
                self.assertTrue(list(rules.banned({path: f"// a\nint x = {call}(y);\n"})), call)

    def test_a_comment_opens_with_its_subject(self):
        for text, found in (("// a\n\n// What is left of it.\n", 1), ("// a\n// Of it.\n", 0),
                            ("// a\n\n// Its rest.\n", 0), ("// What it is.\n", 1),
                            ("// Whoever reads it.\n", 1), ("// Whatever it is.\n", 1),
                            ("// a\nint x; // whose rest\n", 1),
                            ("// a\nint x; // whoever asks\n", 1),
                            ("// a\nint x; // what it is\n", 1),
                            ("// a\nint x; // whatever it is\n", 1),
                            ("// a\nint x; // the rest, whatever it is\n", 0)):
            for path in ("server/a.c", "tests/a.c", "kernels/cuda/a.cu"):
                said = list(rules.fragment({path: text}))
                self.assertEqual(len(said), found, text)

    def test_state_of_every_room_changes_with_its_commit(self):
        root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
        for row in rules.COMMITTED:
            folder = row.where[0].removesuffix("*")
            owned = ""
            for owner in row.owners:
                with open(os.path.join(root, owner), encoding="utf-8") as file:
                    owned += file.read()
            for name in row.names:
                field = name if "->" in name else f"s->{name}"
                member = name.rsplit(".", 1)[-1].rsplit("->", 1)[-1]
                with self.subTest(name=name, folder=folder):
                    self.assertRegex(owned, rf"\b{member}\b")  # the table names real members
                    for change in (f"{field} = x;", f"{field}++;", f"{field} |= 1;"):
                        text = f"// a\nstatic void f(void)\n{{\n    {change}\n}}\n"
                        said = list(rules.commit({folder + "a.c": text}))
                        self.assertEqual([f.line for f in said], [4], change)
                        self.assertEqual(list(rules.commit({row.owners[0]: text})), [])
                        self.assertEqual(list(rules.commit({"tests/a.c": text})), [])
                    text = f"// a\nbool f(void)\n{{\n    return {field} == x; // {field} = x\n}}\n"
                    self.assertEqual(list(rules.commit({folder + "a.c": text})), [])

    def test_the_pointer_tells_two_fields_of_one_name_apart(self):
        for line, path, found in (
                ("i->head = f;", "server/a.c", 0), ("s->head = f;", "server/a.c", 1),
                ("m.stable = p;", "server/coordinator/a.c", 0),
                ("c->shard[k].stable = p;", "server/coordinator/a.c", 1),
                ("c->shard[k].stable = p;", "server/a.c", 0),
                ("s->plan = r->plan;", "server/coordinator/a.c", 0),
                ("c->plan.phase = 1;", "server/coordinator/a.c", 1),
                ("c->lease[unit] = 1;", "server/coordinator/a.c", 1),
                ("s->server->standby.unwritten = true;", "server/a.c", 1),
                ("s->server->standby.lost = true;", "server/a.c", 0),
                ('if (LH_BUG("a")) s->stable = s->head;', "server/coordinator/a.c", 0)):
            text = f"// a\nstatic void f(void)\n{{\n    {line}\n}}\n"
            self.assertEqual(len(list(rules.commit({path: text}))), found, line)

    def test_the_coordinator_answers_and_stores_in_one_file(self):
        for call in ("lh_answer(rq, t, m)", "lh_reply_error(rq, e, 0)", "ps_store_put(s, k, v)",
                     "lh_now(env)"):
            text = f"// a\nint x = {call};\n"
            self.assertTrue(list(rules.banned({"server/coordinator/a.c": text})), call)
            for path in ("server/coordinator/commit.c", "server/a.c", "tests/unit/a.c"):
                self.assertFalse(list(rules.banned({path: text})), (path, call))

    def test_a_header_of_another_room_shows_no_foreign_prefix(self):
        text = "// a\nint wk_a(void);\n"
        self.assertTrue(list(rules.prefix({"server/a.h": text})))
        self.assertFalse(list(rules.prefix({"worker/a.h": text})))
        static = "// a\nstatic void lh_a(void)\n{\n}\n"
        self.assertTrue(list(rules.prefix({"common/a.c": static})))

    def test_references_of_pages_and_comments_are_there(self):
        page = ("# A page\n\n## What it is, and `why`\n\n## Twice\n\n## Twice\n\n"
                '<a id="rule-1"></a>\n\n```\n# no heading\n```\n\n    # no heading either\n')
        tree = {"docs/page.md": page, "server/a.c": "// a\n", "server/README.md": "# Server\n"}
        good = ("[a](docs/page.md#what-it-is-and-why) [b](docs/page.md#twice-1) [c](server)\n"
                "[d](server#server) [e](docs/page.md#rule-1) `server/a.c` server/*.c\n"
                "- item\n    - [f](docs/page.md)\n\nText:\n\n    [g](in/code.md)\n\n# A heading\n"
                "[h](#a-heading) [i](https://example.org/x)\n")
        self.assertEqual(list(rules.reference(tree | {"README.md": good})), [])
        for bad in ("[a](docs/pages.md)", "[a](docs/page.md#no-heading)", "[a](#nowhere)",
                    "[a](docs/page.md#no-heading-either)", "[a](docs/page.md#twice-2)",
                    "`server/b.c`", "docs/page.md#what", "docs/gone.md#x", "PROTOCOL 4",
                    "- item\n    - [a](gone.md)", "(DESIGN 6)", "(README, A part)"):
            found = list(rules.reference(tree | {"README.md": f"# A heading\n{bad}\n"}))
            self.assertEqual([f.path for f in found], ["README.md"], bad)
        for bad in ("docs/page.md#rule-2", "docs/page.md#rule-1, #rule-2", "#rule-1",
                    "(PROTOCOL\n// 4)", "(DESIGN 6, one clock)", "server/c.h says so",
                    "(README,\n// A part)"):
            found = list(rules.reference(tree | {"server/b.c": f"// b: {bad}\n"}))
            self.assertEqual([f.path for f in found], ["server/b.c"], bad)
        for bad in ("rule 1", "Rules 1 to 3"):
            found = list(rules.reference(tree | {"tests/b.c": f"// b: {bad}\n"}))
            self.assertEqual([f.path for f in found], ["tests/b.c"], bad)

    def test_every_shape_of_a_mutable_global(self):
        for text in ("int a;", "static char *b;", "static _Thread_local int c = 3;",
                     "static struct {\n    int x;\n} d;", "static struct s e = {1};",
                     "static struct s f[3];", "atomic_int g;"):
            self.assertTrue(list(rules.mutable_global({"server/a.c": f"// a\n{text}\n"})), text)


class Scanner(unittest.TestCase):
    def test_scrub_keeps_places(self):
        source = 'int a; // "x\nchar *b = "/* no */"; /* y\nz */ char c = \'"\'; int d = 1;\n'
        out = scan.scrub(source)
        self.assertEqual([len(line) for line in out.split("\n")],
                         [len(line) for line in source.split("\n")])
        self.assertEqual(out.split("\n")[2].split(), "char c = ; int d = 1;".split())

    def test_declarations(self):
        source = """// x
#define M(a) \\
    { a }
struct s {
    int (*call)(int x);
};
static const int table[] = {1, 2};
__attribute__((format(printf, 1, 2))) int lh_a(const char *f,
                                               ...);
LH_MUST lh_err lh_b(struct s *s)
{
    if (s) { return lh_c(); }
    return 0;
}
static inline struct s *lh_d(void)
{
    return 0;
}
typedef int (*lh_fn)(void *arg);
int lh_e = 3;
"""
        heads = [(h.name, h.line, h.defined, h.must) for h in scan.declarations(source) if h.name]
        self.assertEqual(heads, [("lh_a", 8, False, False), ("lh_b", 10, True, True),
                                 ("lh_d", 15, True, False)])


class Format(unittest.TestCase):
    def test_a_misformatted_file_is_found(self):
        command = tidy.formatter()
        if not command:
            self.skipTest("no clang-format of the judging version")
        here = os.path.dirname(os.path.abspath(__file__))
        with tempfile.TemporaryDirectory() as root:
            shutil.copy(os.path.join(here, "../../.clang-format"), root)
            for name, text in (("a.c", "int a;\n"), ("b.c", "int   b;\n")):
                with open(os.path.join(root, name), "w", encoding="utf-8") as file:
                    file.write(text)
            found = tidy.format_findings(root, {"a.c": "", "b.c": ""}, command)
        self.assertEqual([f.path for f in found], ["b.c"])


class Command(unittest.TestCase):
    def test_exit_status_tells(self):
        here = os.path.dirname(os.path.abspath(__file__))
        with tempfile.TemporaryDirectory() as root:
            os.mkdir(os.path.join(root, "server"))
            for text, status in (("// a\n", 0), ("// a \n", 1)):
                with open(os.path.join(root, "server/a.c"), "w", encoding="utf-8") as file:
                    file.write(text)
                said = subprocess.run(["python3", os.path.join(here, "tidy.py"), "--root", root,
                                       "--rule", "white-space"], capture_output=True, text=True,
                                      check=False)
                self.assertEqual(said.returncode, status, said.stdout)
                self.assertIn("1 rules", said.stdout)


if __name__ == "__main__":
    unittest.main()
