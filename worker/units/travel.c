// Travel: fetches units whose files are not local (deploy/docs/balancer.md).
//
// 1. A unit of another home region is looked up first. Until it is found or arrives, its place in
//    the queue is not `here`: it is not trained or announced to the loader, so other units need not
//    wait for a giver.
// 2. Fetched tokens must match the sha256 in the data's manifest. They stay in memory until the
//    unit leaves the queue: trained, recalled, or parked.
// 3. A giver that is absent, slow or refuses is retried a few times, as are other givers of the
//    region; a busy one is waited for while units arrive. Then the unit alone is refused if the
//    failure was its own; otherwise its home is closed (homes.c). Units ask the giver first that
//    sent the last one, so that one that sends nothing does not hold up each unit.
// 4. Units are fetched in queue order, as far ahead as a step looks: so fetched units are trained
//    and free memory for the next.
// 5. A home gets as many calls as its rate can keep moving well within a deadline: one until the
//    rate is known, and one after a stalled call.
// 6. Memory: bytes_max of tokens kept or in flight, and as much again while they are checked;
//    WK_TRAVEL_CALLS_MAX calls; 512 places.
#include "worker/units/travel_state.h"

#include <inttypes.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/format/shrink.h"
#include "common/net/wire_data.h"
#include "worker/units/units.h"

enum {
    TRIES = 3,      // tries before the unit is refused or its home is closed
    BUSY_TRIES = 8, // answers "busy" that count as one try
    PARTS_A_DEADLINE = 4,
};
static const int64_t LOOK_NS = 200 * LH_MS; // polling interval while a fetch is in progress
static const int64_t SERVED_NS =
    10 * LH_SECOND;                         // a giver that sent a unit this recently is only busy
static const int64_t SAMPLE_NS = LH_SECOND; // sampling period of the rate

static uint64_t data_of(const struct wk_worker *w, uint64_t unit)
{
    return unit % w->conf.units->count;
}

static uint64_t bytes_of(const struct wk_worker *w, uint64_t unit)
{
    return w->conf.units->unit[unit].tokens * w->conf.units->token_bytes;
}

uint32_t wk_travel_home(struct wk_travel *t, const char *region)
{
    uint32_t h = 0;
    while (h < t->homes && strcmp(t->home[h].region, region) != 0) h++;
    if (h < t->homes || h == LH_AWAY_MAX) return h;
    snprintf(t->home[h].region, sizeof t->home[h].region, "%.*s", LH_NAME_BYTES - 1, region);
    t->homes++;
    return h;
}

// ---------------------------------------------------------------- places

static void look_again(struct wk_worker *w);

static void release(struct wk_travel_unit *a)
{
    struct wk_worker *w = a->w;
    LH_ASSERT(!a->call);
    if (a->state == WK_TRAVEL_HERE || a->kept) w->conf.travel->drop(w->conf.travel->arg, a->unit);
    if (a->kept) w->travel->bytes -= bytes_of(w, a->unit);
    if (a->kept) w->travel->sure -= bytes_of(w, a->unit);
    lh_buf_free(&a->got);
    *a = (struct wk_travel_unit){.state = WK_TRAVEL_FREE};
}

bool wk_travel_release(struct wk_worker *w, struct wk_queued *q)
{
    if (!q->arrival) return true;
    struct wk_travel_unit *a = &w->travel->arrival[q->arrival - 1];
    if (a->kept) return false;
    q->arrival = 0;
    if (a->state == WK_TRAVEL_HERE) release(a);
    return true;
}

static void mark_here(struct wk_travel_unit *a)
{
    struct wk_worker *w = a->w;
    uint32_t place = (uint32_t)(a - w->travel->arrival) + 1;
    a->state = WK_TRAVEL_HERE;
    for (uint32_t i = 0; i < w->queued; i++)
        if (w->queue[i].arrival == place && data_of(w, w->queue[i].unit) == a->unit)
            w->queue[i].here = true;
    wk_units_announce(w);
    wk_changed(w);
}

// ---------------------------------------------------------------- rate

// Ends a sampling period of the rate.
static void take_rate(struct wk_worker *w, struct wk_travel_home *h)
{
    int64_t now = lh_now(w->conf.env), took = now - h->since_ns;
    if (took > 0 && h->bytes)
        lh_estimate_take(&h->bytes_per_s, (double)h->bytes * LH_SECOND / (double)took);
    h->since_ns = now;
    h->bytes = 0;
}

static void call_begins(struct wk_worker *w, struct wk_travel_home *h)
{
    if (!h->calls++) {
        h->since_ns = lh_now(w->conf.env);
        h->bytes = 0;
    }
    w->travel->calls++;
}

static void call_ended(struct wk_worker *w, struct wk_travel_home *h, uint64_t bytes)
{
    h->calls--;
    w->travel->calls--;
    h->bytes += bytes;
    if (!h->calls || lh_now(w->conf.env) - h->since_ns >= SAMPLE_NS) take_rate(w, h);
}

// ---------------------------------------------------------------- what came

// True: the failure concerns this unit, not its giver: damaged, missing, or unavailable.
static bool is_of_the_unit(lh_err err)
{
    switch (err) {
    case LH_ERR_MALFORMED: // wrong sha256 or length
    case LH_ERR_TOO_LARGE:
    case LH_ERR_DENIED:
    case LH_ERR_NOT_FOUND:
    case LH_ERR_IO:
    case LH_ERR_CORRUPT: return true;
    default: return false;
    }
}

static void refuse(struct wk_travel_unit *a, const char *text)
{
    struct wk_worker *w = a->w;
    struct wk_travel_home *h = &w->travel->home[a->home];
    uint32_t place = (uint32_t)(a - w->travel->arrival) + 1;
    uint64_t unit = a->unit;
    char why[WK_TRAVEL_TEXT_BYTES]; // `text` may belong to the place
    snprintf(why, sizeof why, "%s", text);
    for (uint32_t i = 0; i < w->queued; i++)
        if (w->queue[i].arrival == place) w->queue[i].arrival = 0;
    release(a);
    wk_travel_refuse(w, h, unit, why);
}

static void failed(struct wk_travel_unit *a, lh_err err, const char *text)
{
    struct wk_worker *w = a->w;
    struct wk_travel_home *h = &w->travel->home[a->home];
    lh_buf_free(&a->got);
    w->travel->bytes -= bytes_of(w, a->unit);
    if (!a->wanted || w->stopped) {
        release(a);
        return;
    }
    w->travel->count.failed++;
    bool served = h->arrived_ns && lh_now(w->conf.env) - h->arrived_ns < SERVED_NS;
    if (err != LH_ERR_BUSY || (++a->busy % BUSY_TRIES == 0 && !served)) {
        a->tries++;
        if (a->giver == h->first) h->first++; // other units begin with the next giver
        a->giver++;
    }
    a->its_own |= is_of_the_unit(err);
    uint32_t wait = a->tries;
    a->state = WK_TRAVEL_WAITING;
    a->try_ns = lh_now(w->conf.env) + wk_backoff(w, &wait, err);
    lh_log_peer(w->conf.log, LH_WARN, "unit.failed", "unit %" PRIu64 " of region %s: %s", a->unit,
                h->region, text);
    look_again(w);
    if (a->tries < TRIES) return;
    if (a->its_own)
        refuse(a, text);
    else
        wk_travel_close_home(w, h, text);
}

static lh_err check(struct wk_travel_unit *a, uint8_t *tokens, size_t n)
{
    const struct lh_unit *u = &a->w->conf.units->unit[a->unit];
    uint8_t is[EVP_MAX_MD_SIZE];
    if (a->lz4)
        LH_TRY(lh_unshrink(lh_buf_span(&a->got), tokens, n));
    else
        memcpy(tokens, a->got.data, n);
    bool whole = EVP_Digest(tokens, n, is, NULL, EVP_sha256(), NULL) == 1 &&
                 memcmp(is, u->sha256, sizeof u->sha256) == 0;
    if (!whole && !LH_BUG("unit_unchecked"))
        return lh_fail(LH_ERR_MALFORMED, "what came does not have the sha256 of the manifest");
    return a->w->conf.travel->keep(a->w->conf.travel->arg, a->unit, tokens, n);
}

static int64_t check_job(void *arg)
{
    struct wk_travel_unit *a = arg;
    size_t n = (size_t)bytes_of(a->w, a->unit);
    uint8_t *tokens = malloc(n + 1);
    a->err = tokens ? check(a, tokens, n) : lh_fail(LH_ERR_BUSY, "no memory for a unit");
    if (a->err) snprintf(a->text, sizeof a->text, "%s", lh_err_text(a->err));
    free(tokens);
    return 0;
}

static void checked(void *arg)
{
    struct wk_travel_unit *a = arg;
    struct wk_worker *w = a->w;
    if (a->err) {
        failed(a, a->err, a->text);
        return;
    }
    struct wk_travel_home *h = &w->travel->home[a->home];
    a->kept = true;
    w->travel->sure += bytes_of(w, a->unit);
    w->travel->count.units++;
    w->travel->count.bytes += bytes_of(w, a->unit);
    w->travel->count.wire_bytes += a->sent_bytes;
    lh_buf_free(&a->got);
    wk_travel_arrived(w, h, a->unit);
    h->first = a->giver;
    lh_logf(w->conf.log, LH_DEBUG, "unit.arrived",
            "unit %" PRIu64 " of region %s: %" PRIu64 " bytes, %" PRIu64 " on the wire", a->unit,
            h->region, bytes_of(w, a->unit), a->sent_bytes);
    if (!a->wanted || w->stopped)
        release(a);
    else
        mark_here(a);
    look_again(w);
}

// ---------------------------------------------------------------- the call

static lh_err take_head(struct wk_travel_unit *a, const struct lh_unit_head *m)
{
    uint64_t n = bytes_of(a->w, a->unit);
    if (a->told) return LH_OK;
    a->told = true;
    a->lz4 = m->lz4;
    a->sent_bytes = m->sent_bytes;
    bool fits = m->lz4 ? m->sent_bytes && m->sent_bytes < n : m->sent_bytes == n;
    if (m->bytes == n && fits) return LH_OK;
    return lh_fail(LH_ERR_MALFORMED, "%" PRIu64 " bytes come as %" PRIu64 ", the unit has %" PRIu64,
                   m->bytes, m->sent_bytes, n);
}

static lh_err take_part(struct wk_travel_unit *a, const struct lh_msg *msg)
{
    struct lh_got m;
    size_t at;
    LH_TRY(lh_take_bulk(msg, &lh_wire_unit_head, &m, &at));
    bool first = !a->told;
    lh_err err = take_head(a, m.message);
    lh_got_free(&m);
    LH_TRY(err);
    if (first) a->got = lh_buf((size_t)a->sent_bytes);
    size_t n = msg->len - at;
    if (!n) return lh_fail(LH_ERR_MALFORMED, "a message without tokens comes: it could go on so");
    uint8_t *to = lh_buf_grow(&a->got, n);
    if (!to)
        return lh_fail(LH_ERR_MALFORMED, "more bytes come than the %" PRIu64 " that were named",
                       a->sent_bytes);
    return lh_msg_copy(msg, at, to, n) ? LH_OK : LH_ERR_MALFORMED;
}

// A giver that sends a byte at a time does not hold its place and memory for ever.
static void note_bytes(struct wk_travel_unit *a)
{
    if (a->got.len < a->moved_bytes + LH_TRAVEL_PART_BYTES && a->got.len < a->sent_bytes) return;
    a->moved_ns = lh_now(a->w->conf.env);
    a->moved_bytes = a->got.len;
}

static void on_message(void *self, struct lh_call *call, const struct lh_msg *msg)
{
    struct wk_travel_unit *a = self;
    if (a->broken || a->late || a->w->stopped) return;
    a->broken = take_part(a, msg);
    note_bytes(a);
    if (!a->broken) {
        lh_call_read(call);
        return;
    }
    snprintf(a->text, sizeof a->text, "%s", lh_err_text(a->broken));
    lh_call_cancel(call);
}

static void on_close(void *self, struct lh_call *call, lh_err status, const char *text)
{
    (void)call;
    struct wk_travel_unit *a = self;
    struct wk_worker *w = a->w;
    bool whole = !status && a->told && a->got.len == a->sent_bytes;
    a->call = NULL;
    w->travel->home[a->home].arrived_bytes += a->got.len; // damaged, late or no longer wanted
    call_ended(w, &w->travel->home[a->home], whole ? bytes_of(w, a->unit) : 0);
    if (whole && a->wanted && !w->stopped) {
        a->state = WK_TRAVEL_CHECKING;
        w->conf.env->ops->work(w->conf.env, LH_LANE_STATUS, check_job, checked, a);
    } else if (a->broken) {
        char said[WK_TRAVEL_TEXT_BYTES];
        memcpy(said, a->text, sizeof said);
        failed(a, a->broken, said);
    } else if (a->late) {
        failed(a, LH_ERR_DEADLINE, "its server sends nothing");
    } else {
        failed(a, status ? status : LH_ERR_MALFORMED, status ? text : "its server ended early");
    }
}

static lh_err open_call(struct wk_travel_unit *a, struct lh_link *link)
{
    static const struct lh_call_ops ops = {on_message, lh_call_nothing, lh_call_nothing, on_close};
    struct wk_worker *w = a->w;
    struct lh_unit_request m = {.job = lh_span(w->conf.job, LH_JOB_BYTES),
                                .units = lh_span(w->conf.units->hash.b, LH_HASH_BYTES),
                                .unit = a->unit,
                                .lz4 = true};
    LH_TRY(lh_call_open(link, LH_RPC_UNIT, 0, &ops, a, &a->call));
    a->state = WK_TRAVEL_ASKING;
    a->told = a->late = false;
    a->broken = LH_OK;
    a->sent_bytes = 0;
    a->moved_ns = lh_now(w->conf.env);
    a->moved_bytes = 0;
    w->travel->bytes += bytes_of(w, a->unit);
    call_begins(w, &w->travel->home[a->home]);
    a->broken = lh_send(a->call, LH_MESSAGE(unit_request, &m));
    if (a->broken) {
        snprintf(a->text, sizeof a->text, "%s", lh_err_text(a->broken));
        lh_call_cancel(a->call);
        return LH_OK;
    }
    lh_call_finish(a->call, LH_OK, "");
    lh_call_read(a->call);
    return LH_OK;
}

// ---------------------------------------------------------------- asking

static bool has_room(const struct wk_worker *w, uint64_t unit)
{
    const struct wk_travel *t = w->travel;
    uint64_t bytes = t->bytes + bytes_of(w, unit);
    return t->calls < WK_TRAVEL_CALLS_MAX && (!t->bytes || bytes <= w->conf.travel->bytes_max);
}

// Calls allowed for the home: each must move several times within a deadline.
static uint32_t calls_of(const struct wk_worker *w, const struct wk_travel_home *h, uint64_t unit)
{
    uint64_t part = bytes_of(w, unit);
    if (part > LH_TRAVEL_PART_BYTES) part = LH_TRAVEL_PART_BYTES;
    double deadline_s = (double)w->conf.deadline_ns / LH_SECOND;
    double parts = h->bytes_per_s.mean * deadline_s / (double)part / PARTS_A_DEADLINE;
    if (h->slow || !(parts >= 1)) return 1;
    return parts < WK_TRAVEL_CALLS_MAX ? (uint32_t)parts : WK_TRAVEL_CALLS_MAX;
}

static bool may_ask(const struct wk_travel_unit *a)
{
    const struct wk_worker *w = a->w;
    const struct wk_travel_home *h = &w->travel->home[a->home];
    return a->state == WK_TRAVEL_WAITING && !h->closed && h->givers &&
           lh_now(w->conf.env) >= a->try_ns && h->calls < calls_of(w, h, a->unit);
}

static void ask(struct wk_travel_unit *a)
{
    struct wk_worker *w = a->w;
    struct wk_travel_home *h = &w->travel->home[a->home];
    if (!a->tries) a->giver = h->first;
    lh_err err = open_call(a, h->giver[a->giver % h->givers].link);
    if (!err) return;
    a->try_ns = lh_now(w->conf.env) + LOOK_NS;
    lh_log_peer(w->conf.log, LH_WARN, "unit.failed", "unit %" PRIu64 ": %s", a->unit,
                lh_err_text(err));
}

// Stops at the first unit that lacks memory, so that later units don't overtake it.
static void ask_in_order(struct wk_worker *w)
{
    struct wk_travel *t = w->travel;
    for (uint32_t i = 0; i < w->queued; i++) {
        struct wk_travel_unit *a =
            w->queue[i].arrival ? &t->arrival[w->queue[i].arrival - 1] : NULL;
        if (!a || !may_ask(a)) continue;
        if (!has_room(w, a->unit)) return;
        ask(a);
    }
}

// Cancels a call that stalled; on_close() handles the result.
static void end_if_silent(struct wk_travel_unit *a)
{
    struct wk_worker *w = a->w;
    struct wk_travel_home *h = &w->travel->home[a->home];
    struct lh_link *link = h->givers ? h->giver[a->giver % h->givers].link : NULL;
    int64_t most = link ? wk_deadline(w, link) : w->conf.deadline_ns;
    if (a->late || lh_now(w->conf.env) - a->moved_ns < most) return;
    a->late = h->slow = true;
    lh_call_cancel(a->call);
}

// ---------------------------------------------------------------- finding

static int64_t find_job(void *arg)
{
    struct wk_travel_unit *a = arg;
    const struct wk_travel_conf *its = a->w->conf.travel;
    a->err = its->find(its->arg, a->unit, &a->kept) ? LH_OK : LH_ERR_NOT_FOUND;
    return 0;
}

static void found(void *arg)
{
    struct wk_travel_unit *a = arg;
    struct wk_worker *w = a->w;
    struct wk_travel_home *h = &w->travel->home[a->home];
    a->state = WK_TRAVEL_WAITING;
    if (a->kept)
        w->travel->bytes += bytes_of(w, a->unit);
    else
        w->travel->sure -= bytes_of(w, a->unit);
    look_again(w); // lookups may have memory again
    if (!a->wanted || w->stopped) {
        release(a);
        return;
    }
    if (!a->err) {
        mark_here(a);
        return;
    }
    if (!h->away)
        lh_logf(w->conf.log, LH_INFO, "units.away",
                "the files of region %s's units are not in data.dir: a server of that region is "
                "asked for them",
                h->region);
    h->away = true;
}

// A place for the queued unit; NULL: all are taken, or there is no memory for it.
static struct wk_travel_unit *place_for(struct wk_worker *w, uint64_t unit)
{
    struct wk_travel *t = w->travel;
    struct wk_travel_unit *empty = NULL;
    for (struct wk_travel_unit *a = t->arrival; a < t->arrival + WK_ARRIVALS_MAX; a++) {
        if (a->state != WK_TRAVEL_FREE && a->unit == unit) return a;
        if (a->state == WK_TRAVEL_FREE && !empty) empty = a;
    }
    uint32_t home = wk_travel_home(t, w->conf.units->unit[unit].home);
    uint64_t sure = t->sure + bytes_of(w, unit); // the cache may hold it
    if (!empty || home == LH_AWAY_MAX || (t->sure && sure > w->conf.travel->bytes_max)) return NULL;
    t->sure = sure;
    *empty = (struct wk_travel_unit){
        .w = w, .state = WK_TRAVEL_FINDING, .unit = unit, .home = home, .wanted = true};
    // A store may take a minute to fail, which must not hold up the status lane.
    w->conf.env->ops->work(w->conf.env, LH_LANE_HOOK, find_job, found, empty);
    return empty;
}

// ---------------------------------------------------------------- the look

// Marks available units of the queue, and assigns places to its first unavailable ones.
static void look_at_queue(struct wk_worker *w)
{
    struct wk_travel *t = w->travel;
    for (uint32_t i = 0; i < w->queued; i++) {
        struct wk_queued *q = &w->queue[i];
        struct wk_travel_unit *a = q->arrival ? &t->arrival[q->arrival - 1] : NULL;
        bool looked_for = !q->arrival && !q->here && i < w->conf.queue_units && i < LH_WINDOW_MAX &&
                          !wk_travel_store_away(w, q->unit);
        if (looked_for && !wk_travel_is_refused(w, data_of(w, q->unit)))
            a = place_for(w, data_of(w, q->unit));
        if (!a) continue;
        q->arrival = (uint16_t)(a - t->arrival + 1);
        a->wanted = true;
        if (a->state == WK_TRAVEL_HERE && !q->here) { // it was fetched for another data epoch
            q->here = true;
            wk_units_announce(w);
            wk_changed(w);
        }
    }
}

static void drop_unwanted(struct wk_worker *w)
{
    for (struct wk_travel_unit *a = w->travel->arrival; a < w->travel->arrival + WK_ARRIVALS_MAX;
         a++) {
        if (a->wanted || a->state == WK_TRAVEL_FREE) continue;
        if (a->state == WK_TRAVEL_WAITING || a->state == WK_TRAVEL_HERE)
            release(a);
        else if (a->state == WK_TRAVEL_ASKING)
            lh_call_cancel(a->call); // jobs on the lane end by themselves
    }
}

static void on_timer(void *arg)
{
    struct wk_worker *w = arg;
    w->travel->timer = 0;
    wk_travel_look(w);
}

static void look_again(struct wk_worker *w)
{
    if (w->travel->timer || w->stopped) return;
    w->travel->timer = lh_after(w->conf.env, LOOK_NS, on_timer, w);
}

void wk_travel_look(struct wk_worker *w)
{
    struct wk_travel *t = w->travel;
    if (!t || w->stopped) return;
    bool busy = wk_travel_open(w);
    for (uint32_t i = 0; i < WK_ARRIVALS_MAX; i++) t->arrival[i].wanted = false;
    look_at_queue(w);
    drop_unwanted(w);
    ask_in_order(w);
    for (struct wk_travel_unit *a = t->arrival; a < t->arrival + WK_ARRIVALS_MAX; a++) {
        if (a->state == WK_TRAVEL_ASKING) end_if_silent(a);
        busy |= a->state != WK_TRAVEL_FREE && a->state != WK_TRAVEL_HERE;
    }
    if (busy) look_again(w);
}
