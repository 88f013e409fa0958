// Cores that run out of memory where they store what a peer sent: the peer is answered with an
// error, or the process ends and reports it. Nobody waits for an answer that never comes, and no
// part of a state is left out. A start without enough memory fails.
#include <string.h>

#include "kernels/state/replica.h"
#include "tests/cores/offer.h"
#include "tests/fault/fault.h"

enum { VALUES = 50000, FRAME = 4 * VALUES, PART = 3 * VALUES, CLAIMS = 611 };

// ---------------------------------------------------------------- a push

static void begin_push(struct rig *r, struct rig_call *h)
{
    uint8_t digest[LH_DIGEST_BYTES] = {1};
    Longhaul__V1__PushHead head = LONGHAUL__V1__PUSH_HEAD__INIT;
    struct lh_blob *b = lh_blob_new(FRAME);
    assert_non_null(b);
    memset(b->data, 0, FRAME);
    *h = (struct rig_call){0};
    rig_call_open(r, 0, LH_RPC_PUSH, &rig_call_ops, h);
    head.worker = lh_worker_id(&r->w[0].self);
    head.process = r->server->process;
    head.frame_bytes = FRAME;
    head.digest = (ProtobufCBinaryData){LH_DIGEST_BYTES, digest};
    assert_int_equal(pb_send_bulk(h->call, &head.base, b, 0, PART), LH_OK);
    lh_blob_release(b);
}

// A push that finds no space waits, but here its bytes find no memory to wait in either.
RIG_TEST(a_push_that_cant_even_wait_is_told_so, struct rig *r)
{
    struct rig_call h;
    rig_enlarge(r, VALUES);
    assert_int_equal(rig_start_server(r, true), LH_OK);
    struct ps_push_memory *memory = &r->server->push_memory;
    memory->frames += memory->bytes_max; // taken by other frames
    begin_push(r, &h);
    fault_alloc_of(PART, FRAME);
    rig_run(r, LH_SECOND);
    assert_true(fault_over());
    assert_true(h.over);
    assert_int_equal(h.status, LH_ERR_BUSY);
    assert_null(memory->first);
    memory->frames -= memory->bytes_max;
    assert_int_equal(r->fatal_count, 0);
}

// ---------------------------------------------------------------- a state

struct joining {
    struct rig *r;
    lh_err ended;
};

static void on_fatal(void *arg, lh_err err, const char *text)
{
    struct joining *j = arg;
    (void)text;
    j->ended = err;
}

// Fails the allocation into which the state's only piece is unsealed; only the worker allocates
// exactly that many bytes.
static bool asks(void *arg, const char *from, const char *to, enum lh_rpc rpc, struct lh_fate *fate)
{
    struct joining *j = arg;
    (void)from;
    (void)to;
    (void)fate;
    if (rpc != LH_RPC_SNAPSHOT) return true;
    struct lh_buf bytes = lh_buf(1 << 20);
    assert_int_equal(lk_replica_save(&j->r->server->shard[0]->replica, &bytes), LH_OK);
    fault_alloc_of(bytes.len + 1, bytes.len + 1);
    lh_buf_free(&bytes);
    return true;
}

RIG_TEST(a_state_of_which_a_piece_finds_no_memory_ends_the_worker, struct rig *r)
{
    struct joining j = {.r = r};
    struct rig_life l = {0};
    rig_enlarge(r, VALUES);
    rig_start_coordinator(r);
    assert_int_equal(rig_start_server(r, false), LH_OK);
    rig_run(r, LH_SECOND);
    struct wk_conf conf = rig_life_conf(r, &l, 50);
    conf.fatal = on_fatal;
    conf.fatal_arg = &j;
    lh_fabric_fates(r->fabric, asks, &j);
    rig_life_start(&l, &conf);
    for (int i = 0; i < 100 && !j.ended; i++) rig_run(r, 100 * LH_MS);
    assert_true(fault_over());
    assert_int_equal(j.ended, LH_ERR_NO_MEMORY);
    lh_fabric_fates(r->fabric, NULL, NULL);
    rig_life_end(r, &l, false);
    rig_boot_worker(r, 1); // the worker's next life has memory
    l = (struct rig_life){0};
    conf = rig_life_conf(r, &l, 50);
    rig_life_start(&l, &conf);
    for (int i = 0; i < 100 && !l.worker->count.snapshots; i++) rig_run(r, 100 * LH_MS);
    assert_int_equal(l.worker->count.snapshots, 1);
    rig_life_end(r, &l, false);
}

// Without memory for the ledger's bytes there is no digest that tells whether this is the confirmed
// state, and it is not.
RIG_TEST(a_state_whose_digest_finds_no_memory_is_not_taken, struct rig *r)
{
    struct offer_held h;
    const uint64_t values = VALUES;
    size_t ledger = 0, bytes = 256;
    r->unsealed = true;
    rig_enlarge(r, VALUES);
    offer_lose_directory(r, &h);
    while (memcmp(h.state->data + ledger, &values, sizeof values) != 0) ledger++;
    while (bytes < ledger) bytes *= 2;
    h.state->data[ledger + sizeof values] ^= 1;
    bool wanted = false;
    for (int i = 0; i < 100 && !wanted; i++) {
        rig_run(r, 100 * LH_MS);
        wanted = offer_say(r, 1, &h.at);
    }
    assert_true(wanted);
    fault_alloc_of(bytes, bytes);
    assert_int_equal(offer_bring(r, 1, &h.at, h.state), LH_ERR_NO_MEMORY);
    assert_true(fault_over());
    assert_false(r->server->phase == PS_SERVING);
    lh_blob_release(h.state);
}

// ---------------------------------------------------------------- a coordinator's start

// Without memory for its pools of units, two for each home, a coordinator could not place any unit.
RIG_TEST(a_coordinator_without_memory_for_its_pools_does_not_start, struct rig *r)
{
    size_t bytes = (2 * RIG_WORKERS + 1) * sizeof(struct ps_co_pool);
    fault_alloc_of(bytes, bytes);
    assert_int_equal(rig_try_coordinator(r), LH_ERR_NO_MEMORY);
    assert_true(fault_over());
    assert_null(r->coordinator);
    rig_kill_coordinator(r);
    rig_start_coordinator(r);
    assert_int_equal(r->coordinator->stock.pools, 2 * RIG_WORKERS);
}

// ---------------------------------------------------------------- a lease

// Without memory for the list of the worker's claims, the coordinator would lease those units
// again.
RIG_TEST(a_lease_without_memory_for_its_claims_is_asked_for_again, struct rig *r)
{
    Longhaul__V1__LeaseRequest m = LONGHAUL__V1__LEASE_REQUEST__INIT;
    uint64_t claimed[CLAIMS] = {0};
    ProtobufCMessage *answer = NULL;
    rig_start_coordinator(r);
    assert_int_equal(rig_start_server(r, false), LH_OK);
    assert_int_equal(rig_join(r, 0, 11, 0).granted, 1);
    rig_run(r, 2 * LH_SECOND);
    m.incarnation = UINT64_C(1) << 32;
    m.want = 2;
    m.claimed = claimed;
    m.n_claimed = CLAIMS;
    for (int fails = 1; fails >= 0; fails--) {
        if (fails) fault_alloc_of((CLAIMS + 1) * sizeof *claimed, (CLAIMS + 1) * sizeof *claimed);
        lh_err err = rig_ask(r, r->to_c[0], LH_RPC_LEASE, &m.base, &answer);
        assert_int_equal(err, fails ? LH_ERR_BUSY : LH_OK);
        assert_true(!fails || fault_over());
    }
    rig_free_message(answer);
}
