// The units that a server gives, and those that it refuses (server/give.c); the test plays the
// workers.
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#include "common/format/shrink.h"
#include "common/format/tokens.h"
#include "common/net/wire_data.h"
#include "longhaul/v1/data.pb-c.h"
#include "tests/cores/rig.h"

enum { UNIT_TOKENS = 3000, BIG_TOKENS = 1500000, ASIA = 0, EUROPE = 1, UNITS = 6 };

// Units 0, 2 and 4 are of asia, the server's region; 2 may not leave it. 4 takes more than two
// messages.
struct given {
    uint8_t *tokens; // all tokens of the file, in order
    struct rig_call call;
    struct lh_buf got;
    uint64_t bytes, sent_bytes;
    bool lz4, reads;
};

static void on_message(void *self, struct lh_call *call, const struct lh_msg *msg)
{
    struct rig_call *c = self;
    struct given *g = (struct given *)((char *)c - offsetof(struct given, call));
    struct lh_got m;
    size_t at;
    assert_int_equal(lh_take_bulk(msg, &lh_wire_unit_head, &m, &at), LH_OK);
    const struct lh_unit_head *head = m.message;
    if (!g->got.len) {
        g->bytes = head->bytes;
        g->sent_bytes = head->sent_bytes;
        g->lz4 = head->lz4;
    } else {
        assert_int_equal(head->bytes, 0);
    }
    uint8_t *to = lh_buf_grow(&g->got, msg->len - at);
    assert_true(to && lh_msg_copy(msg, at, to, msg->len - at));
    lh_got_free(&m);
    if (g->reads) lh_call_read(call);
}

static void write_units(struct rig *r, struct given *g)
{
    struct lh_buf file = lh_buf(1 << 26);
    uint64_t count = 0;
    r->units.count = UNITS;
    for (uint32_t i = 0; i < UNITS; i++) {
        struct lh_unit *u = &r->units.unit[i];
        snprintf(u->file, sizeof u->file, "all.bin");
        u->tokens = i == 4 ? BIG_TOKENS : UNIT_TOKENS;
        u->from = count;
        u->may_leave = i != 2;
        count += u->tokens;
    }
    g->tokens = calloc(count, 2);
    assert_non_null(g->tokens);
    uint64_t x = 7;
    for (uint64_t i = 0; i < count; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        g->tokens[2 * i] = (uint8_t)(x >> 61); // three bits of sixteen: lz4 gains
        if (i >= r->units.unit[4].from)
            g->tokens[2 * i] = (uint8_t)(x >> 56), g->tokens[2 * i + 1] = (uint8_t)(x >> 48);
    }
    for (uint32_t i = 0; i < UNITS; i++) {
        struct lh_unit *u = &r->units.unit[i];
        assert_int_equal(
            EVP_Digest(g->tokens + 2 * u->from, 2 * u->tokens, u->sha256, NULL, EVP_sha256(), NULL),
            1);
    }
    lh_tokens_put_header(&file, 2, count);
    lh_put(&file, g->tokens, 2 * count);
    assert_int_equal(lh_buf_err(&file), LH_OK);
    assert_int_equal(r->s.env->ops->files->make_dir(r->s.env, "units"), LH_OK);
    assert_int_equal(lh_file_replace(r->s.env, "units/all.bin", lh_buf_span(&file)), LH_OK);
    lh_buf_free(&file);
}

static struct rig *begin(struct given *g)
{
    struct rig *r = rig_new(1);
    *g = (struct given){.got = lh_buf(1 << 26)};
    rig_serve(r, 0);
    rig_boot_standby(r); // its disk keeps the log's lines
    write_units(r, g);
    r->server->conf.units = &r->units;
    r->server->conf.units_dir = "units";
    r->server->conf.log = rig_log_lines(r);
    return r;
}

static void over(struct rig *r, struct given *g)
{
    lh_log_close(r->server->conf.log);
    r->server->conf.log = NULL;
    lh_buf_free(&g->got);
    rig_free(r);
    free(g->tokens);
}

static void open_call(struct rig *r, struct given *g, uint32_t w, uint64_t unit, bool lz4,
                      const struct lh_hash *units)
{
    static const struct lh_call_ops ops = {on_message, rig_on_nothing, rig_on_nothing,
                                           rig_on_close};
    Longhaul__V1__UnitRequest m = LONGHAUL__V1__UNIT_REQUEST__INIT;
    lh_buf_clear(&g->got);
    m.job = (ProtobufCBinaryData){LH_JOB_BYTES, r->server->conf.job};
    m.units = (ProtobufCBinaryData){LH_HASH_BYTES, (uint8_t *)(uintptr_t)units->b};
    m.unit = unit;
    m.lz4 = lz4;
    rig_call_open(r, w, LH_RPC_UNIT, &ops, &g->call);
    assert_int_equal(pb_send(g->call.call, &m.base), LH_OK);
    lh_call_finish(g->call.call, LH_OK, "");
    lh_call_read(g->call.call);
}

static lh_err ask(struct rig *r, struct given *g, uint32_t w, uint64_t unit, bool lz4)
{
    g->reads = true;
    open_call(r, g, w, unit, lz4, &r->units.hash);
    rig_call_wait(r, &g->call);
    return g->call.status;
}

static void check_tokens(struct rig *r, const struct given *g, uint64_t unit)
{
    const struct lh_unit *u = &r->units.unit[unit];
    uint64_t bytes = 2 * u->tokens;
    uint8_t *is = malloc(bytes);
    assert_non_null(is);
    assert_int_equal(g->bytes, bytes);
    assert_int_equal(g->sent_bytes, g->got.len);
    if (g->lz4)
        assert_int_equal(lh_unshrink(lh_buf_span(&g->got), is, bytes), LH_OK);
    else
        memcpy(is, g->got.data, bytes);
    assert_true(g->lz4 || g->got.len == bytes);
    assert_memory_equal(is, g->tokens + 2 * u->from, bytes);
    free(is);
}

TEST(a_unit_travels_as_it_lies_or_as_lz4)
{
    struct given g;
    struct rig *r = begin(&g);
    assert_int_equal(ask(r, &g, EUROPE, 0, false), LH_OK);
    assert_false(g.lz4);
    check_tokens(r, &g, 0);
    assert_int_equal(ask(r, &g, EUROPE, 0, true), LH_OK);
    assert_true(g.lz4 && g.got.len < 2 * UNIT_TOKENS);
    check_tokens(r, &g, 0);
    assert_int_equal(ask(r, &g, EUROPE, 4, true), LH_OK); // noise: lz4 gains nothing
    assert_false(g.lz4);
    check_tokens(r, &g, 4);
    assert_int_equal(r->server->give.count.units, 3);
    assert_int_equal(r->server->give.calls, 0);
    assert_int_equal(r->server->give.bytes, 0);
    over(r, &g);
}

TEST(units_that_may_not_leave_are_refused)
{
    struct given g;
    struct rig *r = begin(&g);
    assert_int_equal(ask(r, &g, EUROPE, 2, true), LH_ERR_DENIED);
    assert_non_null(strstr(g.call.text, "may not leave region asia"));
    assert_int_equal(g.got.len, 0);
    assert_int_equal(r->server->give.count.refused, 1);
    assert_int_equal(rig_said(r, "unit.refused"), 1);
    assert_int_equal(ask(r, &g, ASIA, 2, true), LH_OK); // a worker of its region
    check_tokens(r, &g, 2);
    assert_int_equal(ask(r, &g, ASIA, 1, true), LH_ERR_DENIED); // europe's unit, in this file too
    assert_int_equal(ask(r, &g, EUROPE, 1, true), LH_ERR_DENIED);
    over(r, &g);
}

TEST(a_changed_file_is_not_given)
{
    struct given g;
    struct rig *r = begin(&g);
    assert_int_equal(
        lh_fake_flip(r->s.env, "units/all.bin", LH_TOKENS_HEADER_BYTES + 2 * UNIT_TOKENS - 2, 1),
        LH_OK);
    assert_int_equal(ask(r, &g, EUROPE, 0, true), LH_ERR_CORRUPT);
    assert_non_null(strstr(g.call.text, "sha256 is not the manifest's"));
    assert_int_equal(g.got.len, 0);
    assert_int_equal(rig_said(r, "unit.unread"), 1);
    assert_int_equal(r->s.env->ops->files->remove(r->s.env, "units/all.bin"), LH_OK);
    assert_int_equal(ask(r, &g, EUROPE, 0, true), LH_ERR_NOT_FOUND);
    assert_int_equal(r->fatal_count, 0);
    assert_int_equal(r->server->give.bytes, 0);
    over(r, &g);
}

TEST(requests_outside_the_run_are_refused)
{
    struct given g;
    struct rig *r = begin(&g);
    struct lh_hash other = {{1}};
    open_call(r, &g, EUROPE, 0, false, &other);
    rig_call_wait(r, &g.call);
    assert_int_equal(g.call.status, LH_ERR_MANIFEST);
    assert_int_equal(ask(r, &g, EUROPE, UNITS, false), LH_ERR_NOT_FOUND);
    r->server->conf.job[0] ^= 1;
    g.reads = true;
    uint8_t *job = r->server->conf.job;
    open_call(r, &g, EUROPE, 0, false, &r->units.hash); // names the changed job
    job[0] ^= 1;
    rig_call_wait(r, &g.call);
    assert_int_equal(g.call.status, LH_ERR_DENIED);
    r->server->conf.units_dir = "";
    assert_int_equal(ask(r, &g, EUROPE, 0, false), LH_ERR_UNSUPPORTED);
    over(r, &g);
}

TEST(a_reader_that_does_not_read_is_ended)
{
    struct given g;
    struct rig *r = begin(&g);
    g.reads = false;
    r->units.unit[4].tokens = BIG_TOKENS;
    struct rig_call many[PS_GIVES_OF_A_PEER];
    for (int i = 0; i < PS_GIVES_OF_A_PEER; i++) {
        rig_call_open(r, EUROPE, LH_RPC_UNIT, &rig_call_ops, &many[i]); // never ask for anything
        lh_call_read(many[i].call);
    }
    rig_run(r, LH_SECOND);
    assert_int_equal(r->server->give.calls, PS_GIVES_OF_A_PEER);
    assert_int_equal(ask(r, &g, EUROPE, 0, false), LH_ERR_BUSY);
    assert_int_equal(ask(r, &g, ASIA, 0, false), LH_OK); // another peer has calls of its own
    rig_run(r, (LH_JOIN_SILENT_MS + 1000) * LH_MS);
    for (int i = 0; i < PS_GIVES_OF_A_PEER; i++) assert_true(many[i].over);
    assert_int_equal(r->server->give.calls, 0);
    assert_true(rig_said(r, "unit.silent") > 0);
    assert_int_equal(ask(r, &g, EUROPE, 0, false), LH_OK);
    over(r, &g);
}

// A worker that reads nothing of many units keeps neither memory nor calls from others.
TEST(a_worker_with_many_units_under_way_makes_place)
{
    enum { HIS = 3 };
    struct given g, his[HIS];
    struct rig *r = begin(&g);
    struct ps_give *give = &r->server->give;
    for (int i = 0; i < HIS; i++) {
        his[i] = (struct given){.got = lh_buf(1 << 20)};
        open_call(r, &his[i], EUROPE, 4, false, &r->units.hash);
        rig_run(r, LH_SECOND);
    }
    uint64_t others = PS_GIVE_BYTES_MAX - give->bytes;
    give->bytes += others;
    assert_int_equal(ask(r, &g, ASIA, 0, false), LH_OK);
    assert_true(his[2].call.over && !his[1].call.over); // the newest call ends
    give->bytes -= others;
    give->calls += PS_GIVES_MAX - 2;
    assert_int_equal(ask(r, &g, ASIA, 0, false), LH_OK);
    assert_true(his[1].call.over && !his[0].call.over);
    give->calls += 1;
    assert_int_equal(ask(r, &g, ASIA, 0, false), LH_ERR_BUSY); // it has no more calls than others
    assert_false(his[0].call.over);
    give->calls -= PS_GIVES_MAX - 1;
    lh_call_cancel(his[0].call.call);
    rig_call_wait(r, &his[0].call);
    rig_run(r, LH_SECOND);
    assert_true(give->calls == 0 && give->bytes == 0);
    for (int i = 0; i < HIS; i++) lh_buf_free(&his[i].got);
    over(r, &g);
}

// The last messages are read later than the bound on silence permits after their hand-over.
TEST(a_reader_that_is_slow_gets_all)
{
    struct given g;
    struct rig *r = begin(&g);
    g.reads = false;
    open_call(r, &g, EUROPE, 4, false, &r->units.hash);
    for (int i = 0; i < 100 && !g.call.over; i++) {
        rig_run(r, LH_JOIN_SILENT_MS / 2 * LH_MS);
        if (!g.call.over) lh_call_read(g.call.call);
        rig_run(r, LH_SECOND);
    }
    assert_true(g.call.over);
    assert_int_equal(g.call.status, LH_OK);
    check_tokens(r, &g, 4);
    assert_int_equal(rig_said(r, "unit.silent"), 0);
    over(r, &g);
}
