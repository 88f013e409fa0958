// The registry of epochs: a compare-and-swap, durable before it is answered
// (server/docs/0000-protocol.md#rule-13, #rule-17).
#include <string.h>

#include "common/base/check.h"
#include "tests/head.h"
#include "server/coordinator/owners/epochs.h"
#include "server/coordinator/owners/move.h"
#include "server/coordinator/owners/owner.h"
#include "server/coordinator/stable.h"
#include "tests/cores/rig.h"

static struct lh_point point(uint64_t epoch, uint64_t version, uint8_t history)
{
    return (struct lh_point){epoch, version, {{history}}};
}

static bool open(struct rig *r, uint64_t expect, struct lh_point p, uint64_t token, bool below)
{
    bool opened;
    assert_int_equal(
        ps_co_open_epoch(r->coordinator, 0, expect, &p, token, 0, below, false, &opened), LH_OK);
    return opened;
}

static struct ps_co_shard *shard(struct rig *r)
{
    return &r->coordinator->shard[0];
}

static lh_err adopt(struct rig *r, uint64_t epoch)
{
    struct lh_point begins = {.epoch = epoch};
    return ps_co_adopt_epoch(r->coordinator, 0, &begins);
}

static void again(struct rig *r)
{
    rig_settle(r);
    rig_kill_coordinator(r);
    rig_start_coordinator(r);
}

RIG_TEST(an_epoch_is_opened_once_over_the_one_that_is_expected, struct rig *r)
{
    rig_start_coordinator(r);
    assert_int_equal(ps_co_epoch(shard(r)), 0);
    assert_false(open(r, 1, point(2, 0, 0), 7, false)); // none is registered
    assert_true(open(r, 0, point(1, 0, 0), 7, false));
    assert_false(open(r, 0, point(2, 5, 1), 8, false)); // the caller did not hear of epoch 1
    assert_false(open(r, 1, point(1, 5, 1), 8, false)); // not above it
    assert_true(open(r, 1, point(2, 5, 1), 8, false));
    assert_int_equal(ps_co_epoch(shard(r)), 2);
}

RIG_TEST(asked_again_it_is_opened_again_for_the_same_asker_only, struct rig *r)
{
    rig_start_coordinator(r);
    assert_true(open(r, 0, point(1, 3, 1), 7, false));
    again(r);
    assert_int_equal(ps_co_epoch(shard(r)), 1);
    assert_true(open(r, 0, point(1, 3, 1), 7, false));  // the answer was lost
    assert_false(open(r, 0, point(1, 3, 1), 8, false)); // another directory
    assert_false(open(r, 0, point(1, 3, 2), 7, false)); // another history
    assert_false(open(r, 0, point(1, 4, 1), 7, false));
    assert_int_equal(shard(r)->epochs, 1);
}

// No epoch up to one that a move reserved is opened, even after the move is over.
RIG_TEST(none_is_opened_up_to_one_that_a_move_reserved, struct rig *r)
{
    struct lh_point p = point(2, 5, 1);
    bool opened;
    rig_start_coordinator(r);
    assert_true(open(r, 0, point(1, 0, 0), 7, false));
    shard(r)->move = (struct lh_move){2, 0};
    for (p.epoch = 2; p.epoch < 4; p.epoch++) {
        bool may = p.epoch > 2;
        assert_int_equal(ps_co_open_epoch(r->coordinator, 0, 1, &p, 8, 0, false, false, &opened),
                         may ? LH_OK : LH_ERR_VERSION);
        assert_int_equal(opened, may);
    }
}

RIG_TEST(none_begins_below_the_stable_point_unless_that_is_given_up, struct rig *r)
{
    rig_start_coordinator(r);
    assert_true(open(r, 0, point(1, 0, 0), 7, false));
    shard(r)->stable = point(1, 10, 1);
    assert_int_equal(ps_co_store_point(r->coordinator, 0), LH_OK);
    assert_false(open(r, 1, point(2, 9, 1), 8, false));
    assert_false(open(r, 1, point(2, 10, 2), 8, false)); // the stable version, in another history
    assert_true(open(r, 1, point(2, 10, 1), 8, false));
    assert_true(open(r, 2, point(3, 9, 1), 9, true));
    again(r);
    assert_int_equal(ps_co_epoch(shard(r)), 3);
    assert_int_equal(shard(r)->stable.version, 0);
}

// An operator's other history ends the stable point of the one before, even a point below its own
// beginning.
RIG_TEST(a_stable_point_of_another_history_is_given_up, struct rig *r)
{
    struct lh_point p = point(2, 12, 3);
    bool opened;
    rig_start_coordinator(r);
    assert_true(open(r, 0, point(1, 0, 0), 7, false));
    shard(r)->stable = point(1, 10, 1);
    assert_int_equal(ps_co_store_point(r->coordinator, 0), LH_OK);
    assert_int_equal(ps_co_open_epoch(r->coordinator, 0, 1, &p, 8, 0, false, true, &opened), LH_OK);
    assert_false(opened); // without an operator's order
    r->coordinator->refold.stage = PS_CO_REFOLD_GOES;
    assert_int_equal(ps_co_open_epoch(r->coordinator, 0, 1, &p, 8, 0, false, true, &opened), LH_OK);
    assert_true(opened);
    again(r);
    assert_int_equal(ps_co_epoch(shard(r)), 2);
    assert_int_equal(shard(r)->stable.version, 0);
}

RIG_TEST(epochs_below_the_stable_point_are_forgotten, struct rig *r)
{
    rig_start_coordinator(r);
    for (uint64_t e = 1; e <= 4; e++) assert_true(open(r, e - 1, point(e, 10 * e, 1), e, false));
    assert_int_equal(shard(r)->epochs, 4);
    shard(r)->stable = point(3, 35, 1);
    assert_int_equal(ps_co_store_point(r->coordinator, 0), LH_OK);
    assert_true(open(r, 4, point(5, 50, 1), 5, false));
    again(r);
    assert_int_equal(shard(r)->epochs, 2); // 4 and 5 began above it
    assert_int_equal(shard(r)->begun[0].epoch, 4);
    assert_int_equal(shard(r)->begun[0].version, 40);
}

// Does a state of this epoch and version belong to the history, by these epochs?
static bool counts(const struct lh_point *begun, size_t n, uint64_t epoch, uint64_t version)
{
    for (size_t i = 0; i < n; i++)
        if (begun[i].epoch > epoch && begun[i].version < version) return false;
    return true;
}

// An epoch is forgotten when a later one begins no higher. This changes no answer of the registry.
RIG_TEST(superseded_epochs_are_forgotten, struct rig *r)
{
    static const uint8_t at[] = {3, 7, 7, 9, 9, 8, 12, 12, 12, 7, 8, 11, 20, 11, 11};
    enum { EPOCHS = LH_COUNT(at) };
    struct lh_point all[EPOCHS];
    rig_start_coordinator(r);
    for (uint64_t e = 1; e <= EPOCHS; e++) {
        all[e - 1] = point(e, at[e - 1], (uint8_t)e);
        assert_true(open(r, e - 1, all[e - 1], e, false));
        for (uint64_t k = 0; k <= EPOCHS; k++)
            for (uint64_t v = 0; v < 25; v++)
                assert_int_equal(counts(shard(r)->begun, shard(r)->epochs, k, v),
                                 counts(all, e, k, v));
    }
    again(r);
    assert_int_equal(shard(r)->epochs, 4); // 3, 7, 8, 11
    assert_int_equal(ps_co_epoch(shard(r)), EPOCHS);
    assert_int_equal(shard(r)->begun[0].epoch, 1);
}

// A server dies at each start, before it serves.
RIG_TEST(starts_in_turn_that_never_served_fill_no_registry, struct rig *r)
{
    rig_start_coordinator(r);
    assert_true(open(r, 0, point(1, 3, 1), 1, false));
    for (uint64_t e = 2; e <= 5000; e++) assert_true(open(r, e - 1, point(e, 8, 1), e, false));
    assert_int_equal(shard(r)->epochs, 2);
    assert_int_equal(ps_co_epoch(shard(r)), 5000);
}

// A store restored from a copy is older than what servers report.
RIG_TEST(an_epoch_that_is_only_told_of_is_taken_up, struct rig *r)
{
    rig_start_coordinator(r);
    assert_true(open(r, 0, point(1, 0, 0), 7, false));
    assert_int_equal(adopt(r, 4), LH_OK);
    assert_int_equal(adopt(r, 3), LH_OK); // older: ignored
    again(r);
    assert_int_equal(ps_co_epoch(shard(r)), 4);
    assert_false(open(r, 1, point(5, 6, 1), 8, false));
    assert_true(open(r, 4, point(5, 6, 1), 8, false));
}

static lh_err ask(struct rig *r, bool wired, uint32_t of, const char *address)
{
    Longhaul__V1__EpochRequest m = LONGHAUL__V1__EPOCH_REQUEST__INIT;
    Longhaul__V1__Wire wire = lh_head_wire();
    struct lh_link *link;
    m.wire = wired ? &wire : NULL;
    lh_head_run(r->coordinator->conf.job, &r->manifest.hash, &m.job, &m.manifest);
    m.shard = of;
    m.address = (char *)(uintptr_t)address;
    struct lh_transport *t = r->s.transport;
    assert_int_equal(t->ops->dial(t, r->c.address, LH_C, LH_LINE_FIRST, &link), LH_OK);
    lh_err err = rig_say(r, link, LH_RPC_EPOCH, &m.base);
    link->transport_ops->hangup(link);
    return err;
}

RIG_TEST(a_request_without_versions_or_of_no_shard_is_refused, struct rig *r)
{
    char address[LH_ADDRESS_BYTES + 1];
    memset(address, 'x', sizeof address);
    address[LH_ADDRESS_BYTES] = 0;
    rig_start_coordinator(r);
    rig_boot_server(r);
    assert_int_equal(ask(r, false, 0, "host:1"), LH_ERR_VERSION);
    assert_int_equal(ask(r, true, 1, "host:1"), LH_ERR_MALFORMED);
    assert_int_equal(ask(r, true, 0, address), LH_ERR_MALFORMED);
    address[LH_ADDRESS_BYTES - 1] = 0;
    assert_int_equal(ask(r, true, 0, address), LH_OK);
    assert_string_equal(shard(r)->address, address);
}

RIG_TEST(a_row_that_is_too_short_is_refused, struct rig *r)
{
    static const struct {
        const char *key;
        lh_err (*load)(struct ps_coordinator *c);
    } row[] = {{"stable/0000", ps_co_load_points},
               {"epoch/0000", ps_co_load_epochs},
               {"insync/0000", ps_co_load_insync},
               {"move/0000", ps_co_load_moves}};
    rig_start_coordinator(r);
    for (size_t i = 0; i < LH_COUNT(row); i++) {
        struct ps_store *store = r->coordinator->store;
        assert_int_equal(ps_store_put(store, row[i].key, lh_span("12345678 9", 10)), LH_OK);
        assert_int_equal(row[i].load(r->coordinator), LH_ERR_CORRUPT);
        assert_non_null(strstr(lh_err_text(LH_ERR_CORRUPT), row[i].key));
    }
}

static lh_err comes_back(struct rig *r, uint64_t process, struct lh_point head)
{
    return ps_co_check_history(r->coordinator, 0, process, &head);
}

// A process that the coordinator does not know must have what is stable and what was reported.
RIG_TEST(a_server_comes_back_with_all_that_is_known, struct rig *r)
{
    rig_start_coordinator(r);
    shard(r)->stable = point(2, 10, 1); // nothing was reported in this life
    assert_int_equal(comes_back(r, 5, point(2, 9, 0)), LH_ERR_FENCED);
    assert_int_equal(comes_back(r, 5, point(2, 10, 2)), LH_ERR_FENCED);
    assert_int_equal(comes_back(r, 5, point(2, 10, 1)), LH_OK);
    assert_int_equal(comes_back(r, 5, point(3, 4, 3)), LH_OK); // a later epoch may be shorter
    shard(r)->head = point(2, 20, 1);
    shard(r)->process = 4;
    assert_int_equal(comes_back(r, 5, point(2, 19, 0)), LH_ERR_FENCED);
    assert_int_equal(comes_back(r, 5, point(2, 20, 1)), LH_OK);
    assert_int_equal(comes_back(r, 4, point(2, 19, 0)), LH_OK); // an overtaken report
}
