// A worker says at a join what it runs on, and the coordinator logs what differs from the others
// (server/coordinator/watch/machine.c).
#include <string.h>

#include "common/env/machine.h"
#include "server/coordinator/watch/machine.h"
#include "tests/cores/rig.h"
#include "worker/worker.h"

static void join(struct rig *r, uint32_t w, Longhaul__V1__Machine *machine)
{
    Longhaul__V1__JoinRequest m;
    Longhaul__V1__Wire wire;
    rig_join_request(r, 11, &wire, &m);
    m.machine = machine;
    assert_int_equal(rig_say(r, r->to_c[w], LH_RPC_JOIN, &m.base), LH_OK);
}

static Longhaul__V1__Machine some_machine(char *version, char *codec)
{
    Longhaul__V1__Machine m = LONGHAUL__V1__MACHINE__INIT;
    m.version = version;
    m.codec = codec;
    static char system[] = "Linux 6.1 x86_64", processor[] = "Some CPU";
    m.system = system;
    m.processor = processor;
    m.processors = 16;
    m.memory_bytes = UINT64_C(64) << 30;
    return m;
}

static json_t *row_of(const struct rig *r, uint32_t w)
{
    json_t *row = json_object();
    ps_co_tell_machine(&r->coordinator->worker[w], row);
    return row;
}

static const char *text_of(const json_t *row, const char *key)
{
    return json_string_value(json_object_get(row, key));
}

static struct rig *logged(void)
{
    struct rig *r = rig_new(1);
    rig_start_coordinator(r);
    rig_boot_standby(r);
    r->coordinator->conf.log = rig_log_lines(r);
    return r;
}

static void over(struct rig *r)
{
    lh_log_close(r->coordinator->conf.log);
    r->coordinator->conf.log = NULL;
    rig_free(r);
}

TEST(differences_of_machines_are_logged)
{
    struct rig *r = logged();
    Longhaul__V1__Machine a = some_machine((char[]){"0.1.0"}, (char[]){"topk-sign"});
    Longhaul__V1__Machine b = some_machine((char[]){"0.2.0"}, (char[]){"dense-q4"});
    b.processors = 8;
    b.memory_bytes = UINT64_C(128) << 30;
    join(r, 0, &a);
    rig_settle(r);
    assert_int_equal(rig_said(r, "worker.differs"), 0); // there is no other worker
    join(r, 1, &b);
    rig_settle(r);
    assert_int_equal(rig_said(r, "version 0.2.0 (0.1.0), codec dense-q4 (topk-sign), processors 8 "
                                 "(16), memory 128 GiB (64)"),
                     1);
    json_t *row = row_of(r, 1);
    assert_string_equal(text_of(row, "version"), "0.2.0");
    assert_string_equal(text_of(row, "processor"), "Some CPU");
    assert_int_equal(json_integer_value(json_object_get(row, "processors")), 8);
    assert_true(json_real_value(json_object_get(row, "memory_gib")) == 128);
    assert_null(json_object_get(row, "gpu")); // unknown
    json_decref(row);
    over(r);
}

TEST(equal_machines_are_not_logged)
{
    struct rig *r = logged();
    Longhaul__V1__Machine a = some_machine((char[]){"0.1.0"}, (char[]){"topk-sign"}), b = a;
    b.memory_bytes -= 1 << 28;
    join(r, 0, &a);
    join(r, 1, &b);
    rig_settle(r);
    assert_int_equal(rig_said(r, "worker.joined"), 2);
    assert_int_equal(rig_said(r, "worker.differs"), 0);
    over(r);
}

static void start_again(struct rig *r)
{
    rig_settle(r);
    struct lh_log *log = r->coordinator->conf.log;
    rig_kill_coordinator(r);
    rig_start_coordinator(r);
    r->coordinator->conf.log = log;
}

// The coordinator alone restarts; its workers go on and do not join again.
TEST(it_is_known_after_a_restart)
{
    struct rig *r = logged();
    Longhaul__V1__Machine a = some_machine((char[]){"0.1.0"}, (char[]){"topk-sign"});
    join(r, 0, &a);
    start_again(r);
    json_t *row = row_of(r, 0);
    assert_string_equal(text_of(row, "version"), "0.1.0");
    assert_string_equal(text_of(row, "system"), "Linux 6.1 x86_64");
    assert_int_equal(json_integer_value(json_object_get(row, "processors")), 16);
    assert_true(json_real_value(json_object_get(row, "memory_gib")) == 64);
    json_decref(row);
    join(r, 0, NULL);
    start_again(r);
    row = row_of(r, 0);
    assert_int_equal(json_object_size(row), 0);
    json_decref(row);
    over(r);
}

TEST(an_older_worker_tells_nothing)
{
    struct rig *r = logged();
    Longhaul__V1__Machine b = some_machine((char[]){"0.1.0"}, (char[]){"topk-sign"});
    join(r, 0, NULL);
    join(r, 1, &b);
    rig_settle(r);
    assert_int_equal(rig_said(r, "worker.differs"), 0);
    json_t *row = row_of(r, 0);
    assert_int_equal(json_object_size(row), 0);
    json_decref(row);
    over(r);
}

TEST(texts_of_a_peer_are_cut_and_printable)
{
    struct rig *r = logged();
    char text[1000];
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = 0;
    text[1] = '\n';
    text[2] = '\033';
    Longhaul__V1__Machine a = some_machine(text, text), b = some_machine((char[]){"1"}, text + 5);
    a.system = a.processor = a.gpu = a.cipher = text;
    a.processors = UINT32_MAX;
    a.memory_bytes = UINT64_MAX;
    join(r, 0, &b);
    join(r, 1, &a);
    rig_settle(r);
    assert_int_equal(rig_said(r, "worker.differs"), 1);
    json_t *row = row_of(r, 1);
    assert_int_equal(strlen(text_of(row, "version")), 31);
    assert_memory_equal(text_of(row, "gpu"), "x??xx", 5);
    json_decref(row);
    over(r);
}

RIG_TEST(a_worker_tells_what_it_was_given, struct rig *r)
{
    struct rig_life l;
    struct lh_machine is = {.version = "0.1.0", .codec = "topk-sign", .processors = 3};
    rig_serve(r, 0);
    struct wk_conf conf = rig_life_conf(r, &l, 50);
    conf.machine = &is;
    rig_life_start(&l, &conf);
    rig_run(r, 2 * LH_SECOND);
    json_t *row = row_of(r, 0);
    assert_string_equal(text_of(row, "version"), "0.1.0");
    assert_string_equal(text_of(row, "codec"), "topk-sign");
    assert_int_equal(json_integer_value(json_object_get(row, "processors")), 3);
    assert_int_equal(json_object_size(row), 3);
    json_decref(row);
    rig_life_end(r, &l, false);
}
