// A lying worker, and a flooding one. See liars.c.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/head.h"
#include "kernels/codec.h"
#include "longhaul/v1/shard.pb-c.h"
#include "server/core.h"
#include "tests/sim/liars.h"

enum { CLAIMS = 3, WANT_MAX = 12 };

// ---------------------------------------------------------------- the coordinator

static void join(struct sim_liar *l)
{
    Longhaul__V1__JoinRequest m = LONGHAUL__V1__JOIN_REQUEST__INIT;
    Longhaul__V1__Wire wire = lh_head_wire();
    m.wire = &wire;
    lh_head_run((const uint8_t *)SIM_JOB, &l->sim->manifest.hash, &m.job, &m.manifest);
    m.units = (ProtobufCBinaryData){LH_HASH_BYTES, l->sim->units.hash.b};
    m.fresh = true;
    m.attempt = 1 + sim_liar_draw(l, UINT64_MAX - 1);
    m.over = (uint32_t)(l->incarnation >> 32);
    m.any_epochs = true;
    sim_liar_ask(l, sim_liar_link(l, &l->sim->node[0]), LH_RPC_JOIN, 0, &m.base,
                 &longhaul__v1__join_reply__descriptor);
}

struct lists { // the units in a request
    uint64_t holding[SIM_UNITS], claimed[SIM_UNITS], begun[SIM_UNITS], returned[SIM_UNITS];
};

// Lists units: none, all, random ones, or those leased to it.
static size_t some_units(struct sim_liar *l, uint64_t out[SIM_UNITS])
{
    size_t n = 0;
    switch (sim_liar_draw(l, 4)) {
    case 0: return 0;
    case 1:
        for (; n < SIM_UNITS; n++) out[n] = n;
        return n;
    case 2:
        for (n = sim_liar_draw(l, 5); n < SIM_UNITS && sim_liar_one_in(l, 2); n++)
            out[n] = sim_liar_draw(l, SIM_UNITS);
        return n < 5 ? 0 : n;
    default: memcpy(out, l->held, l->holds * sizeof *out); return l->holds;
    }
}

static double speed(struct sim_liar *l)
{
    static const double said[] = {0, 1, 100, 1e6, 1e12, 1e300, NAN, INFINITY, -1};
    return said[sim_liar_draw(l, LH_COUNT(said))];
}

// The newest point of a shard's log, which every partner can know. False: nobody serves the shard.
static bool head_of(struct sim_liar *l, uint32_t shard, Longhaul__V1__Point *out)
{
    const struct ps_shard *at = sim_shard_at(sim_owner(l->sim, shard), shard);
    if (!at) return false;
    const struct lh_ledger *ledger = &at->replica.ledger;
    *out = lh_head_point(shard, ledger->epoch, ledger->version, &ledger->chain);
    return true;
}

struct copies { // its claims about copies
    Longhaul__V1__Point point[SIM_SHARDS_MAX], *points[SIM_SHARDS_MAX];
    Longhaul__V1__Possession proof[SIM_SHARDS_MAX], *proofs[SIM_SHARDS_MAX];
    uint8_t bytes[LH_HASH_BYTES];
    size_t count;
};

// Claims copies that it does not have, and answers challenges with invented bytes.
static void say_copies(struct sim_liar *l, struct copies *c, Longhaul__V1__LeaseRequest *m)
{
    c->count = 0;
    for (size_t i = 0; i < sizeof c->bytes; i++) c->bytes[i] = (uint8_t)sim_liar_draw(l, 256);
    for (uint32_t k = 0; k < l->sim->shards; k++) {
        size_t n = c->count;
        if (!head_of(l, k, &c->point[n])) continue;
        c->points[n] = &c->point[n];
        longhaul__v1__possession__init(&c->proof[n]);
        c->proofs[n] = &c->proof[n];
        c->proof[n].shard = k;
        c->proof[n].epoch = c->point[n].epoch;
        c->proof[n].version = c->point[n].version;
        c->proof[n].challenge = (ProtobufCBinaryData){sizeof l->challenge[k], l->challenge[k]};
        c->proof[n].answer = (ProtobufCBinaryData){sizeof c->bytes, c->bytes};
        c->proof[n].digest = c->proof[n].answer;
        c->count++;
    }
    m->n_durable = m->n_possessions = c->count;
    m->durable = c->points;
    m->possessions = c->proofs;
}

static void lease(struct sim_liar *l)
{
    Longhaul__V1__LeaseRequest m = LONGHAUL__V1__LEASE_REQUEST__INIT;
    Longhaul__V1__Progress progress = LONGHAUL__V1__PROGRESS__INIT;
    Longhaul__V1__Estimate fast = LONGHAUL__V1__ESTIMATE__INIT;
    Longhaul__V1__Point final[SIM_SHARDS_MAX], *finals[SIM_SHARDS_MAX];
    struct lh_hash nobodys = {{(uint8_t)sim_liar_draw(l, 256)}};
    struct lists lists = {0}; // some_units() leaves gaps
    struct copies copies;
    m.worker = sim_liar_one_in(l, 20) ? l->sim->judging->id[sim_liar_draw(l, SIM_WORKERS)] : l->id;
    m.incarnation = sim_liar_one_in(l, 20) ? sim_liar_number(l, l->incarnation) : l->incarnation;
    m.want = (uint32_t)sim_liar_draw(l, WANT_MAX);
    m.ahead = sim_liar_one_in(l, 4) ? UINT32_MAX : m.want;
    m.n_holding = some_units(l, m.holding = lists.holding);
    m.n_claimed = some_units(l, m.claimed = lists.claimed);
    m.n_begun = some_units(l, m.begun = lists.begun);
    m.n_returned = some_units(l, m.returned = lists.returned);
    m.tokens_per_s = fast.mean = speed(l);
    m.speed = &fast;
    m.tokens = sim_liar_number(l, 1000);
    m.step_tokens = sim_liar_one_in(l, 2) ? 16 : sim_liar_number(l, 16);
    m.begun_tokens = sim_liar_number(l, 64);
    progress.step_ms = sim_liar_one_in(l, 2) ? 40 : sim_liar_number(l, 40);
    m.progress = &progress;
    m.own_data = sim_liar_one_in(l, 30);
    if (sim_liar_one_in(l, 3)) say_copies(l, &copies, &m);
    if (l->drains && l->phase >= LH_PHASE_DRAIN) {
        m.drained = m.done = true;
        for (uint32_t k = 0; k < l->sim->shards; k++) {
            final[k] = lh_head_point(k, l->shard[k].epoch, l->shard[k].version, &nobodys);
            finals[k] = &final[k];
        }
        m.n_final = l->sim->shards;
        m.final = finals;
    }
    sim_liar_ask(l, sim_liar_link(l, &l->sim->node[0]), LH_RPC_LEASE, 0, &m.base,
                 &longhaul__v1__lease_reply__descriptor);
}

// Offers a state that a server without its disk would take: the log's newest point or a higher one,
// with another digest. It never sends the state.
static void offer(struct sim_liar *l, uint32_t shard)
{
    Longhaul__V1__OfferRequest m = LONGHAUL__V1__OFFER_REQUEST__INIT;
    const struct sim_log *log = sim_log_of(l->sim, shard);
    struct lh_hash invented;
    for (size_t i = 0; i < sizeof invented.b; i++) invented.b[i] = (uint8_t)sim_liar_draw(l, 256);
    Longhaul__V1__Point have, *all[] = {&have};
    if (!head_of(l, shard, &have) || sim_liar_one_in(l, 2))
        have = lh_head_point(shard, sim_liar_number(l, log->epoch),
                             sim_liar_number(l, log->acknowledged), &invented);
    ProtobufCBinaryData digest = {sizeof invented.b, invented.b};
    lh_head_run((const uint8_t *)SIM_JOB, &l->sim->manifest.hash, &m.job, &m.manifest);
    m.shard = shard;
    m.worker = l->id;
    m.n_have = m.n_digests = 1;
    m.have = all;
    m.digests = &digest;
    sim_liar_ask(l, sim_liar_to_shard(l, shard), LH_RPC_OFFER, shard, &m.base,
                 &longhaul__v1__offer_reply__descriptor);
}

static void ask_status(struct sim_liar *l)
{
    Longhaul__V1__StatusRequest m = LONGHAUL__V1__STATUS_REQUEST__INIT;
    m.part = (char *)(uintptr_t)(sim_liar_one_in(l, 2) ? "" : "leases");
    sim_liar_ask(l, sim_liar_link(l, &l->sim->node[0]), LH_RPC_STATUS, 0, &m.base,
                 &longhaul__v1__status_reply__descriptor);
}

// ---------------------------------------------------------------- pushes

static void hello(struct sim_liar *l, uint32_t shard)
{
    Longhaul__V1__HelloRequest m = LONGHAUL__V1__HELLO_REQUEST__INIT;
    Longhaul__V1__Wire wire = lh_head_wire();
    if (sim_liar_one_in(l, 12)) l->incarnation++; // the lower half is the worker's to raise
    m.wire = &wire;
    lh_head_run((const uint8_t *)SIM_JOB, &l->sim->manifest.hash, &m.job, &m.manifest);
    m.shard = shard;
    m.worker = sim_liar_one_in(l, 30) ? l->sim->judging->id[sim_liar_draw(l, SIM_WORKERS)] : l->id;
    m.incarnation = sim_liar_one_in(l, 30) ? sim_liar_number(l, l->incarnation) : l->incarnation;
    m.incarnation_random = l->random;
    m.decided = sim_liar_one_in(l, 10) ? sim_liar_number(l, l->shard[shard].step) : 0;
    m.next = sim_liar_one_in(l, 10) ? sim_liar_number(l, l->shard[shard].step) : UINT64_C(1) << 40;
    sim_liar_ask(l, sim_liar_to_shard(l, shard), LH_RPC_HELLO, shard, &m.base,
                 &longhaul__v1__hello_reply__descriptor);
}

// A push lies about one thing, or about several.
enum lie {
    LIES_BASE,
    LIES_TOKENS,
    LIES_STEPS,
    LIES_SIZE,
    LIES_NUMBERS, // values are not numbers, or the count is wrong
    LIES_CLAIMS,
    LIES_NAMES, // step, worker, incarnation, job
    LIES_ALLOWANCE,
    LIES
};

static bool lies(struct sim_liar *l, enum lie about)
{
    return l->lie == (int)about || (l->lie == LIES && sim_liar_one_in(l, 3));
}

// Returns the absolute value of a push's numbers: 0 where there is no gate, or where mass is
// compared bit for bit, because the push would stay in the model.
static float size_of(struct sim_liar *l)
{
    static const float sizes[] = {0, 0, 1e-9f, 1, 10, 1e3f, 1e6f, 1e20f, 3e38f};
    bool quiet = l->fault == SIM_FAULT_flood || l->sim->conf.exact || l->sim->norm_gate <= 0;
    return quiet ? 0 : lies(l, LIES_SIZE) ? sizes[sim_liar_draw(l, LH_COUNT(sizes))] : 1;
}

static void encode(struct sim_liar *l, struct lh_frame *f, struct lh_buf *plain)
{
    static const uint32_t no_number[] = {0x7fc00000, 0x7f800000, 0xff800000};
    const struct lh_shard_layout *layout = &l->sim->manifest.shard[f->shard];
    const struct lk_codec codec = {LK_INDEX_DENSE, LK_VALUE_FP32, 1};
    struct lk_payload_info info;
    float *e = calloc(layout->values, sizeof *e), size = size_of(l);
    LH_ASSERT(e);
    for (uint64_t i = 0; i < layout->values; i++) e[i] = sim_liar_draw(l, 2) ? size : -size;
    lh_err err = lk_encode(&codec, layout, e, plain, &info);
    LH_ASSERT(!err);
    free(e);
    f->index_code = codec.index;
    f->value_code = codec.value;
    f->density = codec.density;
    bool wrong = lies(l, LIES_NUMBERS);
    f->values = wrong && sim_liar_one_in(l, 4) ? sim_liar_number(l, info.values) : info.values;
    f->plain_bytes = (uint32_t)plain->len;
    if (!wrong) return;
    struct lh_buf last = lh_buf_over(plain->data + plain->len - 4, 4);
    lh_put_u32(&last, no_number[sim_liar_draw(l, LH_COUNT(no_number))]);
}

// Claims units, granted to it or not.
static void claim(struct sim_liar *l, struct lh_frame *f)
{
    bool unlawful = lies(l, LIES_CLAIMS);
    uint32_t shards = l->sim->shards;
    for (uint32_t i = 0; i < CLAIMS; i++) {
        uint64_t unit = sim_liar_draw(l, SIM_UNITS);
        if (!unlawful || !sim_liar_one_in(l, 5)) unit = unit / shards * shards + f->shard;
        if (unit >= SIM_UNITS || (!unlawful && (!l->granted[unit] || f->claims))) continue;
        f->claim[f->claims] = unit;
        f->grant[f->claims] = l->grant[l->granted[unit] ? unit : sim_liar_draw(l, SIM_UNITS)];
        if (unlawful && sim_liar_one_in(l, 2)) f->grant[f->claims].tag[0] ^= 1;
        f->claims++;
    }
}

static void make_names(struct sim_liar *l, struct lh_frame *f)
{
    switch (sim_liar_draw(l, 4)) {
    case 0: f->step = sim_liar_number(l, f->step); break;
    case 1: f->worker = l->sim->judging->id[sim_liar_draw(l, SIM_WORKERS)]; break;
    case 2: f->incarnation.number = sim_liar_number(l, l->incarnation); break;
    default: f->job[0] ^= 1; break;
    }
}

static void make_head(struct sim_liar *l, struct lh_frame *f, uint32_t shard)
{
    const struct sim_liar_shard *at = &l->shard[shard];
    *f = (struct lh_frame){.cipher = LH_CIPHER_XCHACHA20,
                           .key_id = 1,
                           .shard = shard,
                           .worker = l->id,
                           .incarnation = {l->incarnation, l->random},
                           .step = at->step + 1,
                           .base_version = at->version,
                           .base_epoch = at->epoch,
                           .base_others = UINT32_MAX,
                           .tokens = 1,
                           .steps = 1,
                           .manifest = l->sim->manifest.hash};
    memcpy(f->job, SIM_JOB, LH_JOB_BYTES);
    if (l->fault == SIM_FAULT_flood) return;
    l->lie = (int)sim_liar_draw(l, LIES + 1);
    if (lies(l, LIES_BASE)) {
        f->base_version = sim_liar_number(l, at->version);
        f->base_epoch = sim_liar_one_in(l, 3) ? sim_liar_number(l, at->epoch) : at->epoch;
        f->base_others = sim_liar_number(l, 100);
    }
    if (lies(l, LIES_TOKENS)) f->tokens = sim_liar_number(l, 64);
    if (lies(l, LIES_STEPS)) f->steps = (uint32_t)sim_liar_number(l, 8);
    if (lies(l, LIES_NAMES)) make_names(l, f);
    claim(l, f);
    f->allowance = l->allowance;
    f->allowance_tag = l->tag[shard];
    if (lies(l, LIES_ALLOWANCE)) f->allowance = 1e30f;
}

// Makes the next push. Its frame is kept, to be repeated.
static void make_push(struct sim_liar *l, uint32_t shard)
{
    struct sim_liar_shard *at = &l->shard[shard];
    struct lh_frame f;
    struct lh_buf head = lh_buf(LH_FRAME_HEADER_BYTES + CLAIMS * LH_CLAIM_BYTES),
                  plain = lh_buf(LH_MESSAGE_BYTES);
    make_head(l, &f, shard);
    encode(l, &f, &plain);
    for (size_t i = 0; i < LH_SEAL_NONCE_BYTES; i++) f.nonce[i] = (uint8_t)sim_liar_draw(l, 256);
    lh_frame_write_head(&f, &head);
    struct lh_seal_context context = {f.worker, f.incarnation.number, f.incarnation.random, shard,
                                      LH_SEAL_FRAME};
    lh_blob_release(at->frame);
    at->frame = lh_blob_new(lh_frame_bytes(&f));
    LH_ASSERT(at->frame && !head.err);
    memcpy(at->frame->data, head.data, head.len);
    lh_err err = lh_seal(l->sim->keys, f.cipher, f.key_id, &context, lh_buf_span(&head), f.nonce,
                         lh_buf_span(&plain), at->frame->data + head.len);
    LH_ASSERT(!err);
    at->digest = lh_frame_digest(lh_blob_span(at->frame), &f);
    lh_buf_free(&plain);
    lh_buf_free(&head);
}

// Sends a push. If not `whole`, the second half never comes.
static void send_push(struct sim_liar *l, uint32_t shard, bool whole)
{
    Longhaul__V1__PushHead head = LONGHAUL__V1__PUSH_HEAD__INIT;
    struct sim_liar_shard *at = &l->shard[shard];
    struct lh_call *call =
        at->frame ? sim_liar_open(l, sim_liar_to_shard(l, shard), LH_RPC_PUSH, shard) : NULL;
    if (!call) return;
    head.shard = shard;
    head.worker = l->id;
    head.process = at->process;
    head.frame_bytes = whole ? at->frame->len : sim_liar_number(l, at->frame->len);
    head.digest = (ProtobufCBinaryData){LH_DIGEST_BYTES, at->digest.b};
    lh_err err =
        pb_send_bulk(call, &head.base, at->frame, 0, whole ? at->frame->len : at->frame->len / 2);
    if (err) lh_call_cancel(call);
}

static void follow(struct sim_liar *l, uint32_t shard)
{
    Longhaul__V1__FollowRequest m = LONGHAUL__V1__FOLLOW_REQUEST__INIT;
    const struct sim_liar_shard *at = &l->shard[shard];
    struct lh_hash chain = {{(uint8_t)sim_liar_draw(l, 256)}};
    Longhaul__V1__Point from = lh_head_point(
        shard, at->epoch, sim_liar_one_in(l, 2) ? 0 : sim_liar_number(l, at->version), &chain);
    struct lh_call *call = sim_liar_open(l, sim_liar_to_shard(l, shard), LH_RPC_FOLLOW, shard);
    lh_head_run((const uint8_t *)SIM_JOB, &l->sim->manifest.hash, &m.job, &m.manifest);
    m.from = &from;
    if (call && pb_send(call, &m.base)) lh_call_cancel(call);
}

static void snapshot(struct sim_liar *l, uint32_t shard)
{
    Longhaul__V1__SnapshotRequest m = LONGHAUL__V1__SNAPSHOT_REQUEST__INIT;
    struct lh_call *call = sim_liar_open(l, sim_liar_to_shard(l, shard), LH_RPC_SNAPSHOT, shard);
    uint8_t challenge[16] = {1};
    lh_head_run((const uint8_t *)SIM_JOB, &l->sim->manifest.hash, &m.job, &m.manifest);
    m.shard = shard;
    if (sim_liar_one_in(l, 2)) m.challenge = (ProtobufCBinaryData){sizeof challenge, challenge};
    m.ranges = (uint32_t)sim_liar_number(l, 4);
    m.range = (uint32_t)sim_liar_number(l, 2);
    if (call && pb_send(call, &m.base)) lh_call_cancel(call);
}

// ---------------------------------------------------------------- turns

void sim_lie_as_worker(struct sim_liar *l)
{
    uint32_t shard = (uint32_t)sim_liar_draw(l, l->sim->shards);
    if (!l->joined || sim_liar_one_in(l, 60)) {
        join(l);
        return;
    }
    if (!l->shard[shard].greeted && sim_liar_one_in(l, 2)) {
        hello(l, shard);
        return;
    }
    switch (sim_liar_draw(l, 13)) {
    case 12: offer(l, shard); break;
    case 0:
    case 1:
    case 2: lease(l); break;
    case 3: send_push(l, shard, true); break; // the same push again
    case 4: send_push(l, shard, false); break;
    case 5: hello(l, shard); break;
    case 6: follow(l, shard); break;
    case 7: snapshot(l, shard); break;
    case 8: ask_status(l); break;
    default:
        make_push(l, shard);
        send_push(l, shard, true);
        break;
    }
}

void sim_flood(struct sim_liar *l)
{
    uint32_t shard = (uint32_t)sim_liar_draw(l, l->sim->shards);
    if (!l->joined) {
        join(l);
        return;
    }
    if (!l->shard[shard].greeted) {
        hello(l, shard);
        return;
    }
    uint64_t what = sim_liar_draw(l, 40);
    if (what == 0) lease(l);
    if (what == 1) ask_status(l);
    if (what == 2) follow(l, shard);
    if (what == 3) snapshot(l, shard);
    if (what == 4) hello(l, shard);
    if (what > 6) make_push(l, shard);
    if (what > 4) send_push(l, shard, what != 5);
}
