// Messages that are lies: every field of every request takes numbers, names and lists that no
// honest peer sends. No process stops, and an honest worker is served as before.
//
// Each lie is a request with a few of its fields changed, or all of them. The fields come from the
// message's descriptor, so that new fields are covered as well.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/net/wire_table.h"
#include "tests/head.h"
#include "tests/cores/rig.h"

enum { LIES = 60, PARTS_MAX = 40, TEXT_BYTES = 3000 };

// ---------------------------------------------------------------- lies

struct liar {
    struct rig *r;
    uint64_t random;
    void *owned[4096]; // memory of the current message
    size_t count;
    bool wild; // all fields are lies, not a few
};

static uint64_t draw(struct liar *l, uint64_t below)
{
    l->random = l->random * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (l->random >> 33) % below;
}

static void *own(struct liar *l, size_t bytes)
{
    assert_true(l->count < sizeof l->owned / sizeof *l->owned);
    void *p = test_calloc(1, bytes + 1);
    l->owned[l->count++] = p;
    return p;
}

static void forget(struct liar *l)
{
    while (l->count) test_free(l->owned[--l->count]);
}

static uint64_t number(struct liar *l)
{
    static const uint64_t of[] = {0,
                                  1,
                                  2,
                                  63,
                                  64,
                                  65,
                                  255,
                                  1023,
                                  1024,
                                  1025,
                                  UINT16_MAX,
                                  UINT64_C(1) << 20,
                                  UINT64_C(1) << 22,
                                  INT32_MAX,
                                  UINT64_C(1) << 31,
                                  UINT32_MAX,
                                  UINT64_C(1) << 32,
                                  UINT64_C(1) << 53,
                                  (UINT64_C(1) << 62) - 1,
                                  UINT64_C(1) << 62,
                                  INT64_MAX,
                                  UINT64_C(1) << 63,
                                  UINT64_MAX - 1,
                                  UINT64_MAX};
    return of[draw(l, sizeof of / sizeof *of)];
}

static double real(struct liar *l)
{
    static const double of[] = {0,        -0.0,      1,      -1,     0.5,    1e-9,
                                5e-324,   1e15,      1e16,   1e38,   3.5e38, 1e300,
                                1.7e308,  -1.7e308,  0x1p53, 0x1p63, 0x1p64, -0x1p63,
                                INFINITY, -INFINITY, NAN,    -NAN};
    return of[draw(l, sizeof of / sizeof *of)];
}

static char *text(struct liar *l)
{
    static const char *const of[] = {"",       "x",       "asia",        "../..",        "/",
                                     "%s%n%d", "\x1b[2J", "a\nb",        "\xe2\x80\xae", "\xff\xfe",
                                     "*",      "region0", "127.0.0.1:9", "freeze",       "thaw",
                                     "move",   "leases"};
    uint64_t at = draw(l, sizeof of / sizeof *of + 1);
    if (at < sizeof of / sizeof *of) return (char *)(uintptr_t)of[at]; // never written to
    char *out = own(l, TEXT_BYTES);
    memset(out, 'y', TEXT_BYTES);
    return out;
}

static ProtobufCBinaryData some_bytes(struct liar *l)
{
    static const size_t of[] = {0, 1, 7, 15, 16, 17, 31, 32, 33, 64, 1000, TEXT_BYTES};
    ProtobufCBinaryData out = {of[draw(l, sizeof of / sizeof *of)], NULL};
    out.data = own(l, out.len);
    memset(out.data, (int)draw(l, 256), out.len);
    return out;
}

static void *message(struct liar *l, const ProtobufCMessageDescriptor *type, unsigned depth);

static void put(struct liar *l, const ProtobufCFieldDescriptor *f, void *at, unsigned depth)
{
    switch (f->type) {
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_SFIXED32:
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
    case PROTOBUF_C_TYPE_ENUM: *(uint32_t *)at = (uint32_t)number(l); break;
    case PROTOBUF_C_TYPE_BOOL: *(protobuf_c_boolean *)at = draw(l, 2) == 1; break;
    case PROTOBUF_C_TYPE_FLOAT: *(float *)at = (float)real(l); break;
    case PROTOBUF_C_TYPE_DOUBLE: *(double *)at = real(l); break;
    case PROTOBUF_C_TYPE_STRING: *(char **)at = text(l); break;
    case PROTOBUF_C_TYPE_BYTES: *(ProtobufCBinaryData *)at = some_bytes(l); break;
    case PROTOBUF_C_TYPE_MESSAGE: *(void **)at = message(l, f->descriptor, depth + 1); break;
    default: *(uint64_t *)at = number(l); break;
    }
}

static size_t size_of(const ProtobufCFieldDescriptor *f)
{
    switch (f->type) {
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_SFIXED32:
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
    case PROTOBUF_C_TYPE_FLOAT:
    case PROTOBUF_C_TYPE_ENUM: return 4;
    case PROTOBUF_C_TYPE_BOOL: return sizeof(protobuf_c_boolean);
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_MESSAGE: return sizeof(void *);
    case PROTOBUF_C_TYPE_BYTES: return sizeof(ProtobufCBinaryData);
    default: return 8;
    }
}

static void lie(struct liar *l, const ProtobufCFieldDescriptor *f, uint8_t *m, unsigned depth)
{
    static const size_t parts[] = {0, 1, 1, 2, 3, PARTS_MAX};
    if (f->label != PROTOBUF_C_LABEL_REPEATED) {
        put(l, f, m + f->offset, depth);
        return;
    }
    size_t n = parts[draw(l, depth ? 4 : sizeof parts / sizeof *parts)];
    uint8_t *list = own(l, n * size_of(f));
    for (size_t i = 0; i < n; i++) put(l, f, list + i * size_of(f), depth);
    *(size_t *)(void *)(m + f->quantifier_offset) = n;
    *(void **)(void *)(m + f->offset) = list;
}

// Sets a version that the shard has. Returns false if the field is no part of a point.
static bool tell_point(const struct liar *l, const ProtobufCFieldDescriptor *f, void *at)
{
    const struct lh_ledger *ledger = &l->r->server->shard[0]->replica.ledger;
    if (f->label == PROTOBUF_C_LABEL_REPEATED || f->type == PROTOBUF_C_TYPE_STRING) return false;
    if (!strcmp(f->name, "shard"))
        *(uint32_t *)at = 0;
    else if (!strcmp(f->name, "epoch"))
        *(uint64_t *)at = ledger->epoch;
    else if (!strcmp(f->name, "version"))
        *(uint64_t *)at = ledger->version;
    else if (!strcmp(f->name, "chain"))
        *(ProtobufCBinaryData *)at =
            (ProtobufCBinaryData){LH_HASH_BYTES, (uint8_t *)(uintptr_t)ledger->chain.b};
    else
        return !strcmp(f->name, "own_data");
    return true;
}

// Sets the value that an honest peer would send. Returns false if the field has no fixed value.
static bool tell_truth(struct liar *l, const ProtobufCFieldDescriptor *f, uint8_t *m,
                       const struct lh_peer *self)
{
    struct rig *r = l->r;
    void *at = m + f->offset;
    ProtobufCBinaryData job, manifest;
    lh_head_run(r->coordinator->conf.job, &r->manifest.hash, &job, &manifest);
    if (!strcmp(f->name, "wire")) {
        Longhaul__V1__Wire *wire = own(l, sizeof *wire);
        *wire = lh_head_wire();
        *(void **)at = wire;
    } else if (!strcmp(f->name, "job")) {
        *(ProtobufCBinaryData *)at = job;
    } else if (!strcmp(f->name, "manifest")) {
        *(ProtobufCBinaryData *)at = manifest;
    } else if (!strcmp(f->name, "units")) {
        *(ProtobufCBinaryData *)at = (ProtobufCBinaryData){LH_HASH_BYTES, r->units.hash.b};
    } else if (!strcmp(f->name, "worker") && size_of(f) == 8 && f->type != PROTOBUF_C_TYPE_STRING) {
        *(uint64_t *)at = lh_worker_id(self);
    } else if (!strcmp(f->name, "incarnation")) {
        *(uint64_t *)at = UINT64_C(1) << 32;
    } else if (!strcmp(f->name, "process")) {
        *(uint64_t *)at = r->server->process;
    } else if (!strcmp(f->name, "epochs")) {
        *(uint32_t *)at = 1;
    } else {
        return tell_point(l, f, at);
    }
    return true;
}

static void *message(struct liar *l, const ProtobufCMessageDescriptor *type, unsigned depth)
{
    uint8_t *m = own(l, type->sizeof_message);
    protobuf_c_message_init(type, m);
    for (unsigned i = 0; i < type->n_fields && depth < 4; i++) {
        const ProtobufCFieldDescriptor *f = &type->fields[i];
        if (tell_point(l, f, m + f->offset) ? !draw(l, 6) : draw(l, 8) > 0) lie(l, f, m, depth);
    }
    return m;
}

static ProtobufCMessage *request(struct liar *l, const ProtobufCMessageDescriptor *type,
                                 const struct lh_peer *self)
{
    uint8_t *m = own(l, type->sizeof_message);
    protobuf_c_message_init(type, (ProtobufCMessage *)m);
    l->wild = !draw(l, 3);
    for (unsigned i = 0; i < type->n_fields; i++) {
        bool fixed = tell_truth(l, &type->fields[i], m, self);
        bool lies = fixed ? !draw(l, 20) : l->wild || !draw(l, 3);
        if (lies) lie(l, &type->fields[i], m, 0);
    }
    return (ProtobufCMessage *)m;
}

// ---------------------------------------------------------------- calls

static bool is_stream(enum lh_rpc rpc)
{
    return rpc == LH_RPC_PUSH || rpc == LH_RPC_FOLLOW || rpc == LH_RPC_SNAPSHOT ||
           rpc == LH_RPC_RESTORE || rpc == LH_RPC_UNIT;
}

static void unheard(void *self, lh_err err, const ProtobufCMessage *m)
{
    (void)m;
    (void)err;
    ++*(int *)self;
}

static void say(struct liar *l, struct lh_link *link, const struct lh_peer *self, enum lh_rpc rpc)
{
    ProtobufCMessage *m = request(l, lh_rpc_request(rpc)->of, self);
    struct rig_call h = {0};
    int over = 0;
    if (!is_stream(rpc)) {
        lh_err err = pb_ask(link, rpc, 200 * LH_MS, m, lh_rpc_answer(rpc)->of, unheard, &over);
        for (int i = 0; i < 100 && !err && !over; i++) rig_run(l->r, 10 * LH_MS);
        assert_true(err || over);
    } else if (!lh_call_open(link, rpc, 0, &rig_call_ops, &h, &h.call)) {
        lh_call_read(h.call);
        struct lh_blob *b = lh_blob_new(400);
        bool bulk = rpc == LH_RPC_PUSH || rpc == LH_RPC_RESTORE;
        lh_err err = bulk ? pb_send_bulk(h.call, m, b, 0, draw(l, 401)) : pb_send(h.call, m);
        lh_blob_release(b);
        rig_run(l->r, 50 * LH_MS);
        if (!h.over) lh_call_cancel(h.call);
        (void)err;
        for (int i = 0; i < 100 && !h.over; i++) rig_run(l->r, 10 * LH_MS);
        assert_true(h.over);
    }
    forget(l);
}

// Checks that worker 0 is leased units, and that the log takes its new incarnation.
static void honest_words_count(struct rig *r, uint64_t *raised)
{
    Longhaul__V1__LeaseRequest m = rig_lease_request(r, 0);
    ProtobufCMessage *answer;
    m.want = 1;
    m.tokens_per_s = 64;
    rig_run(r, 2 * LH_SECOND); // time for reports, and for another fence
    if (r->fatal_count) fail_msg("it stopped: %s", r->fatal_text);
    assert_int_equal(rig_ask(r, r->to_c[0], LH_RPC_LEASE, &m.base, &answer), LH_OK);
    assert_false(((Longhaul__V1__LeaseReply *)answer)->unknown);
    rig_free_message(answer);
    uint64_t version = r->server->shard[0]->replica.ledger.version;
    rig_hello(r, 0, (UINT64_C(1) << 32) + ++*raised, 0, 1);
    assert_true(r->server->shard[0]->replica.ledger.version > version);
}

static void is_answered(struct rig *r)
{
    Longhaul__V1__StatusRequest m = LONGHAUL__V1__STATUS_REQUEST__INIT;
    rig_run(r, 2 * LH_SECOND);
    assert_false(r->coordinator->stopped);
    assert_int_equal(rig_say(r, r->to_c[0], LH_RPC_STATUS, &m.base), LH_OK);
}

static struct rig *begun(void)
{
    struct rig *r = rig_new(3);
    rig_name_servers(r);
    rig_serve(r, 0);
    rig_boot_standby(r);
    for (uint32_t w = 0; w < RIG_WORKERS; w++) {
        assert_int_equal(rig_join(r, w, 11, 0).granted, 1);
        rig_hello(r, w, UINT64_C(1) << 32, 0, 1);
    }
    rig_run(r, 2 * LH_SECOND);
    return r;
}

// A peer that lies, and the program that hears it.
struct side {
    struct lh_link *link;
    const struct lh_peer *self;
    enum { COORDINATOR, SERVER } hears;
};

static bool may_say(const struct side *s, enum lh_rpc rpc)
{
    bool member = !strncmp(lh_rpc_path(rpc), "longhaul.v1.Member/", 19);
    return lh_rpc_allowed(rpc, s->self->role) &&
           (rpc == LH_RPC_HEALTH_CHECK || member == (s->hears == COORDINATOR));
}

// Tells one lie in each call that the peer may make; two in those with the most fields.
static void tell_one_round(struct liar *l, const struct side *s)
{
    for (int i = 0; i < LH_RPC_COUNT; i++) {
        enum lh_rpc rpc = (enum lh_rpc)i;
        bool twice = rpc == LH_RPC_LEASE || rpc == LH_RPC_REPORT || rpc == LH_RPC_REFOLD;
        if (!may_say(s, rpc)) continue;
        for (int k = 0; k <= twice; k++) say(l, s->link, s->self, rpc);
    }
}

static void tell_all(struct rig *r, const struct side *side, size_t sides, uint64_t seed,
                     bool counts)
{
    struct liar *l = test_calloc(1, sizeof *l);
    const char *seeds = getenv("LIES_SEED"); // set by hand to try other lies
    uint64_t raised = 0;
    l->r = r;
    l->random = seed + (seeds ? strtoull(seeds, NULL, 10) : 0);
    for (int i = 0; i < LIES; i++) {
        for (size_t s = 0; s < sides; s++) tell_one_round(l, &side[s]);
        if (i % 10 == 9 && counts) honest_words_count(r, &raised);
        if (i % 10 == 9 && !counts) is_answered(r);
    }
    test_free(l);
    rig_settle(r);
    rig_kill_coordinator(r);
    if (rig_try_coordinator(r)) fail_msg("what it stored: %s", lh_err_text(LH_ERR_CONFIG));
}

TEST(a_lying_worker_and_a_lying_standby_stop_nobody)
{
    struct rig *r = begun();
    const struct side side[] = {
        {r->to_c[1], &r->w[1].self, COORDINATOR},
        {r->to_s[1], &r->w[1].self, SERVER},
        {r->t_to_c, &r->t.self, COORDINATOR},
        {r->t_to_s, &r->t.self, SERVER},
    };
    tell_all(r, side, 4, 1, true);
    rig_free(r);
}

// An owner's lies and an operator's mistakes may harm the run, but the coordinator hears them all
// and still answers a worker.
TEST(the_owner_and_an_operator_stop_no_coordinator)
{
    struct rig *r = begun();
    struct lh_link *from_owner;
    assert_int_equal(
        r->s.transport->ops->dial(r->s.transport, r->c.address, LH_C, LH_LINE_FIRST, &from_owner),
        LH_OK);
    rig_kill_worker(r, 1, false);
    r->w[1].self.role = LH_A; // worker 1's node is an operator's from here on
    rig_boot_worker(r, 1);
    const struct side side[] = {
        {from_owner, &r->s.self, COORDINATOR},
        {r->to_c[1], &r->w[1].self, COORDINATOR},
        {r->to_c[0], &r->w[0].self, COORDINATOR},
    };
    tell_all(r, side, 3, 2, false);
    from_owner->transport_ops->hangup(from_owner);
    rig_free(r);
}
