// Leading. See lead.h.
//
//  1. Only ps_lead_run() calls etcd. The lock guards what status() reads of it.
//  2. `until_ns` is counted from before the request that began or renewed the lease, so this clock
//     ends before etcd's.
//  3. Each leader creates the leader's key again, so a late request of an earlier leader is fenced
//     off, its commit of a number too: no number is used twice.
#include "server/coordinator/store/lead.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "server/coordinator/store/etcd_log.h"
#include "server/coordinator/store/etcd_wire.h"
#include "server/coordinator/store/move.h"
#include "server/coordinator/store/number.h"

enum {
    BASE_BYTES = 280,
    HOLDER_BYTES = 512,
    NONCE_BYTES = 17,
};
static const int64_t TTL_NS = PS_LEAD_TTL_S * LH_SECOND;
static const int64_t BEAT_NS = PS_LEAD_TTL_S * LH_SECOND / 4; // between two keep-alives
static const int64_t LOOK_NS = 250 * LH_MS;                   // between two looks at the key
// A member that does not answer costs this; then the next one is asked.
static const int64_t ATTEMPT_NS = LH_SECOND, ATTEMPT_COMMIT_NS = 2 * LH_SECOND;

struct ps_lead {
    struct ps_lead_conf conf;
    struct ps_etcd_place place;
    char base[BASE_BYTES], key[BASE_BYTES + 8], login[PS_ETCD_LOGIN_BYTES];
    struct ps_etcd *etcd;
    pthread_t thread;
    bool has_thread;
    atomic_bool closing;
    atomic_int_fast64_t until_ns; // 0: does not lead
    int64_t beat_ns, lease, created;
    uint64_t number;        // as the leader
    struct ps_store *store; // from run() to leads()
    struct lh_err_said said;
    bool closed;
    pthread_mutex_t lock;
    bool away;
    // The key's value: name, address, nonce and, once the holder has it, number; with blanks
    // between them.
    char holder[HOLDER_BYTES];
    int64_t holder_created;
};

// ---------------------------------------------------------------- what is told

static void tell_away(struct ps_lead *l, lh_err err)
{
    bool away = err == LH_ERR_UNAVAILABLE;
    pthread_mutex_lock(&l->lock);
    bool changed = away != l->away;
    l->away = away;
    pthread_mutex_unlock(&l->lock);
    if (changed && away)
        lh_logf(l->conf.log, LH_WARN, "store.away",
                "%s: %s; trying again. Until it answers, training goes on with the units that are "
                "leased",
                l->conf.store, lh_err_text(err));
    else if (changed)
        lh_logf(l->conf.log, LH_INFO, "store.back", "%s answers again", l->conf.store);
}

static void note_holder(struct ps_lead *l, struct lh_span value, int64_t created)
{
    char text[HOLDER_BYTES];
    size_t n = value.len < sizeof text ? value.len : sizeof text - 1;
    memcpy(text, value.data, n);
    text[n] = 0;
    pthread_mutex_lock(&l->lock);
    bool changed = created != l->holder_created;
    memcpy(l->holder, text, sizeof text);
    l->holder_created = created;
    pthread_mutex_unlock(&l->lock);
    if (changed && !atomic_load(&l->until_ns))
        lh_logf(l->conf.log, LH_INFO, "lead.standby", "%.*s leads; this coordinator stands by",
                (int)strcspn(text, " "), text);
}

lh_err ps_lead_status(struct ps_lead *l, json_t *status)
{
    char name[HOLDER_BYTES] = "", address[HOLDER_BYTES] = "";
    uint64_t number = 0;
    pthread_mutex_lock(&l->lock);
    bool away = l->away;
    (void)sscanf(l->holder, "%511s %511s %*s %" SCNu64, name, address, &number);
    pthread_mutex_unlock(&l->lock);
    json_t *part =
        json_pack("{s:b s:{s:s s:s s:I} s:b}", "leads", ps_lead_holds(l), "leader", "name", name,
                  "address", address, "number", (json_int_t)number, "store_away", away);
    return json_object_update_new(status, part) ? LH_ERR_NO_MEMORY : LH_OK;
}

bool ps_lead_holds(const struct ps_lead *l)
{
    if (LH_BUG("late_answer")) return atomic_load(&l->until_ns) != 0;
    return lh_now(l->conf.env) < atomic_load(&l->until_ns);
}

uint64_t ps_lead_number(const struct ps_lead *l)
{
    return l->number; // run() has set it before it posted leads()
}

// ---------------------------------------------------------------- the lease

static LH_MUST lh_err client(const struct ps_lead *l, int64_t timeout_ns, int64_t patience_ns,
                             struct ps_etcd **out)
{
    struct ps_etcd_conf conf = {.env = l->conf.env,
                                .login = l->login,
                                .timeout_ns = timeout_ns,
                                .patience_ns = patience_ns};
    LH_TRY(l->conf.dial ? l->conf.dial(l->conf.arg, &conf.wire)
                        : ps_etcd_wire_open(&l->place, l->conf.secrets, &conf.wire));
    return ps_etcd_create(&conf, out);
}

// Keeps the lease alive, if that is due. An error: it is over, or may be.
static lh_err beat(void *arg)
{
    struct ps_lead *l = arg;
    int64_t now = lh_now(l->conf.env);
    if (atomic_load(&l->closing)) return lh_fail(LH_ERR_CANCELLED, "the coordinator is stopping");
    if (now - l->beat_ns < BEAT_NS) return LH_OK;
    lh_err err = ps_etcd_keep_alive(l->etcd, l->lease);
    tell_away(l, err);
    if (err == LH_ERR_NOT_FOUND) return lh_fail(LH_ERR_CONFLICT, "the leader's lease has expired");
    if (!err) {
        l->beat_ns = now;
        if (LH_BUG("lease_from_answer")) now = lh_now(l->conf.env); // planted
        atomic_store(&l->until_ns, now + TTL_NS);
    }
    if (ps_lead_holds(l)) return LH_OK;
    return lh_fail(LH_ERR_UNAVAILABLE, "the leader's lease could not be renewed for %d s",
                   PS_LEAD_TTL_S);
}

// Tries the lease first; afterwards the key is ours, or another coordinator's. Each attempt has a
// value of its own, in `mine`, which names its lease.
static LH_MUST lh_err take_key(struct ps_lead *l, char mine[HOLDER_BYTES], struct lh_buf *value)
{
    const struct ps_etcd_fence none = {l->key, 0};
    snprintf(mine, HOLDER_BYTES, "%s %s %016" PRIx64, l->conf.name, l->conf.address,
             lh_random_u64(l->conf.env));
    l->beat_ns = lh_now(l->conf.env);
    LH_TRY(ps_etcd_grant(l->etcd, PS_LEAD_TTL_S, &l->lease));
    lh_err err = ps_etcd_change(l->etcd, &none, l->key, lh_span_str(mine), l->lease, NULL);
    if (err && err != LH_ERR_CONFLICT) return err;
    LH_TRY(ps_etcd_get(l->etcd, l->key, value, &l->created)); // an attempt without answer made it
    if (lh_span_equal(lh_buf_span(value), lh_span_str(mine))) {
        atomic_store(&l->until_ns, l->beat_ns + TTL_NS);
        return LH_OK;
    }
    (void)!ps_etcd_revoke(l->etcd, l->lease);
    return LH_OK;
}

static LH_MUST lh_err look(struct ps_lead *l, char mine[HOLDER_BYTES])
{
    struct lh_buf value = lh_buf(HOLDER_BYTES);
    lh_err err = ps_etcd_get(l->etcd, l->key, &value, &l->created);
    if (!err && lh_span_equal(lh_buf_span(&value), lh_span_str(mine))) // its answer was lost
        atomic_store(&l->until_ns, l->beat_ns + TTL_NS);
    if (err == LH_ERR_NOT_FOUND) err = take_key(l, mine, &value);
    if (!err) note_holder(l, lh_buf_span(&value), l->created);
    lh_buf_free(&value);
    return err == LH_ERR_NOT_FOUND ? LH_OK : err; // it ended between two calls
}

static LH_MUST lh_err campaign(struct ps_lead *l, char mine[HOLDER_BYTES])
{
    mine[0] = 0;
    while (!atomic_load(&l->closing)) {
        lh_err err = look(l, mine);
        tell_away(l, err);
        if (err && err != LH_ERR_UNAVAILABLE) return err;
        if (!err && atomic_load(&l->until_ns)) return LH_OK;
        ps_etcd_wait(l->etcd, LOOK_NS);
    }
    return LH_ERR_CANCELLED;
}

static LH_MUST lh_err open_store(struct ps_lead *l)
{
    struct ps_etcd_log_conf conf = {
        .base = l->base, .created = l->created, .beat = beat, .beat_arg = l};
    bool moved = false;
    LH_TRY(client(l, ATTEMPT_COMMIT_NS, 2 * TTL_NS, &conf.etcd));
    LH_TRY(ps_store_open_etcd(&conf, &l->store));
    lh_err err = ps_store_move(l->conf.env, l->conf.dir, l->store, &moved);
    if (err) return lh_fail(err, "%s to %s: %s", l->conf.dir, l->conf.store, lh_err_text(err));
    if (moved)
        lh_logf(l->conf.log, LH_INFO, "store.moved",
                "the store of %s is in %s now; the file was renamed to store.moved", l->conf.dir,
                l->conf.store);
    return LH_OK;
}

// Takes a number, and tells it in the key.
static LH_MUST lh_err take_number(struct ps_lead *l, const char *mine)
{
    const struct ps_etcd_fence fence = {l->key, l->created};
    char text[HOLDER_BYTES + 24];
    LH_TRY(ps_store_number(l->conf.env, l->store, &l->number));
    snprintf(text, sizeof text, "%s %" PRIu64, mine, l->number);
    LH_TRY(ps_etcd_change(l->etcd, &fence, l->key, lh_span_str(text), l->lease, NULL));
    note_holder(l, lh_span_str(text), l->created);
    return LH_OK;
}

// ---------------------------------------------------------------- the thread

static void on_leads(void *arg)
{
    struct ps_lead *l = arg;
    struct ps_store *store = l->store;
    l->store = NULL;
    if (l->closed)
        ps_store_close(store);
    else
        l->conf.leads(l->conf.arg, store);
}

static void on_end(void *arg)
{
    struct ps_lead *l = arg;
    lh_err_give(&l->said);
    if (!l->closed) l->conf.ends(l->conf.arg, l->said.code);
}

static LH_MUST lh_err lead(struct ps_lead *l)
{
    char mine[HOLDER_BYTES];
    LH_TRY(campaign(l, mine));
    LH_TRY(open_store(l));
    LH_TRY(take_number(l, mine));
    lh_logf(l->conf.log, LH_INFO, "lead.begin", "leader %" PRIu64 " of %s", l->number, l->base);
    lh_post(l->conf.env, on_leads, l);
    lh_err err;
    while (!(err = beat(l))) ps_etcd_wait(l->etcd, LOOK_NS);
    return err;
}

void ps_lead_run(struct ps_lead *l)
{
    lh_err err = lead(l);
    bool led = atomic_exchange(&l->until_ns, 0) != 0;
    lh_err_take(&l->said);
    l->said.code = err;
    if (led) (void)!ps_etcd_revoke(l->etcd, l->lease);
    if (!atomic_load(&l->closing)) lh_post(l->conf.env, on_end, l);
}

// ---------------------------------------------------------------- life

lh_err ps_lead_create(const struct ps_lead_conf *conf, struct ps_lead **out)
{
    struct ps_lead *l = calloc(1, sizeof *l);
    if (!l) return LH_ERR_NO_MEMORY;
    l->conf = *conf;
    pthread_mutex_init(&l->lock, NULL);
    lh_err err = ps_etcd_parse(conf->store, &l->place);
    if (!err) err = ps_etcd_login(conf->secrets, l->login);
    snprintf(l->base, sizeof l->base, "%s/%s", l->place.prefix, conf->run);
    snprintf(l->key, sizeof l->key, "%s/leader", l->base);
    if (!err) err = client(l, ATTEMPT_NS, 3 * ATTEMPT_NS, &l->etcd);
    if (err) {
        ps_lead_free(l);
        return err;
    }
    *out = l;
    return LH_OK;
}

static void *thread(void *arg)
{
    ps_lead_run(arg);
    return NULL;
}

lh_err ps_lead_start(const struct ps_lead_conf *conf, struct ps_lead **out)
{
    LH_TRY(ps_lead_create(conf, out));
    (*out)->has_thread = pthread_create(&(*out)->thread, NULL, thread, *out) == 0;
    if ((*out)->has_thread) return LH_OK;
    ps_lead_free(*out);
    *out = NULL;
    return lh_fail(LH_ERR_NO_MEMORY, "cannot start the leader's thread");
}

void ps_lead_close(struct ps_lead *l)
{
    if (!l || l->closed) return;
    l->closed = true;
    atomic_store(&l->closing, true);
    if (l->has_thread) pthread_join(l->thread, NULL);
}

void ps_lead_free(struct ps_lead *l)
{
    if (!l) return;
    if (l->store) ps_store_close(l->store);
    ps_etcd_destroy(l->etcd);
    pthread_mutex_destroy(&l->lock);
    explicit_bzero(l->login, sizeof l->login);
    free(l);
}
