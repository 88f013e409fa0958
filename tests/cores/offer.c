// Followers by hand: see offer.h.
#include "tests/cores/offer.h"

#include "tests/head.h"

void offer_lose_directory(struct rig *r, struct offer_held *h)
{
    struct lh_buf bytes = lh_buf(1 << 24);
    rig_serve(r, 0);
    for (uint32_t w = 0; w < RIG_WORKERS; w++) rig_join(r, w, 11, 0);
    const struct lk_replica *replica = &r->server->shard[r->shard]->replica;
    const struct lh_ledger *l = &replica->ledger;
    for (uint64_t i = 1; i <= 3; i++) rig_hello(r, 0, i << 32, 0, 1);
    rig_run(r, LH_SECOND);
    h->chain = l->chain;
    h->digest = r->held_digest = lk_replica_digest(replica);
    h->at = lh_head_point(r->shard, l->epoch, l->version, &h->chain);
    assert_int_equal(lk_replica_save(replica, &bytes), LH_OK);
    h->state = lh_blob_copy(lh_buf_span(&bytes));
    lh_buf_free(&bytes);
    rig_kill_server(r, false);
    lh_fake_disk_wipe(r->s.env);
    assert_int_equal(rig_start_server(r, false), LH_OK);
}

bool offer_say(struct rig *r, uint32_t w, Longhaul__V1__Point *have)
{
    return offer_say_other(r, w, have, &r->held_digest);
}

bool offer_say_other(struct rig *r, uint32_t w, Longhaul__V1__Point *have,
                     const struct lh_hash *digest)
{
    ProtobufCBinaryData bytes = {LH_HASH_BYTES, (uint8_t *)(uintptr_t)digest->b}; // not written to
    Longhaul__V1__OfferRequest m = LONGHAUL__V1__OFFER_REQUEST__INIT;
    ProtobufCMessage *answer;
    lh_head_run(r->server->conf.job, &r->manifest.hash, &m.job, &m.manifest);
    m.shard = have->shard;
    m.worker = lh_worker_id(&r->w[w].self);
    m.n_have = 1;
    m.have = &have;
    m.n_digests = 1;
    m.digests = &bytes;
    assert_int_equal(rig_ask(r, r->to_s[w], LH_RPC_OFFER, &m.base, &answer), LH_OK);
    bool wanted = ((Longhaul__V1__OfferReply *)answer)->want != NULL;
    rig_free_message(answer);
    return wanted;
}

void offer_begin(struct rig *r, uint32_t w, struct rig_call *h)
{
    rig_call_open(r, w, LH_RPC_RESTORE, &rig_call_ops, h);
    lh_call_read(h->call);
}

void offer_part(struct rig *r, uint32_t w, Longhaul__V1__Point *of, struct lh_blob *state,
                size_t at, size_t bytes, struct rig_call *h)
{
    Longhaul__V1__RestoreHead head = LONGHAUL__V1__RESTORE_HEAD__INIT;
    head.of = of;
    head.worker = lh_worker_id(&r->w[w].self);
    head.process = r->server->process;
    head.total = state->len;
    assert_int_equal(pb_send_bulk(h->call, &head.base, bytes ? state : NULL, at, bytes), LH_OK);
}

lh_err offer_bring(struct rig *r, uint32_t w, Longhaul__V1__Point *of, struct lh_blob *state)
{
    struct rig_call h;
    offer_begin(r, w, &h);
    for (size_t at = 0, n; at < state->len; at += n) {
        n = state->len - at < LH_PART_BYTES ? state->len - at : LH_PART_BYTES;
        offer_part(r, w, of, state, at, n, &h);
    }
    rig_call_wait(r, &h);
    return h.status;
}
