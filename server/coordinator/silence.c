// Silence: the time after which a silent member is given up, and the display of it.
//
// Bound = the setting (coordinator.worker_timeout_s, take_over_ms) + an allowance for the round
// trip that the member reports (common/net/trip.h), at most the setting's maximum. So an invented
// round trip gains that maximum and no more. A member that reports none gets the setting alone.
//
// Store: trip/w/<worker, 16 hex>, trip/s/<shard, 4 hex> = mean u64, spread u64, in ns: the trips of
// workers, and of the servers that own the shards. A restarted coordinator needs them: a member
// that it has not heard yet is connecting, which takes long on a long path. A row is written when
// its bound is off by a quarter, so that a wavering trip costs no commits.
#include <stdio.h>

#include "server/coordinator/commit.h"
#include "server/coordinator/silence.h"

static const char OF_WORKERS[] = "trip/w/", OF_SHARDS[] = "trip/s/";
static const int64_t STANDBY = 10 * LH_SECOND; // a live standby reports more often
static const int64_t STANDBY_MAX = 120 * LH_SECOND;
static const int64_t REPORTED = 2 * LH_SECOND, REPORTED_MAX = 60 * LH_SECOND;
static const int64_t REST = 30 * LH_SECOND; // time for disconnected members to connect again

// ---------------------------------------------------------------- bounds

static int64_t of_worker(const struct ps_coordinator *c, const struct lh_trip *t)
{
    return lh_trip_patience_ns(t, c->conf.worker_timeout_ns, c->conf.worker_timeout_max_ns);
}

static int64_t of_owner(const struct ps_coordinator *c, const struct lh_trip *t)
{
    if (!c->conf.take_over_ns) return 0;
    return lh_trip_patience_ns(t, c->conf.take_over_ns, c->conf.take_over_max_ns);
}

int64_t ps_co_worker_bound(const struct ps_coordinator *c, const struct ps_co_worker *w)
{
    return of_worker(c, &w->trip);
}

int64_t ps_co_owner_bound(const struct ps_coordinator *c, const struct ps_co_shard *s)
{
    return of_owner(c, &s->trip);
}

int64_t ps_co_standby_bound(const struct ps_co_standby *b)
{
    return lh_trip_patience_ns(&b->trip, STANDBY, STANDBY_MAX);
}

// Servers report twice a second; the slowest path adds its allowance.
int64_t ps_co_reported_within(const struct ps_coordinator *c)
{
    int64_t most = REPORTED;
    for (uint32_t i = 0; i < c->conf.manifest->shards; i++) {
        int64_t ns = lh_trip_patience_ns(&c->shard[i].trip, REPORTED, REPORTED_MAX);
        if (ns > most) most = ns;
    }
    return most;
}

// After a pause of this process, every member gets time to report, even the one with the longest
// path.
int64_t ps_co_rest(const struct ps_coordinator *c)
{
    int64_t most = REST;
    for (uint32_t i = 0; i < c->workers; i++) {
        int64_t ns = c->worker[i].live ? ps_co_worker_bound(c, &c->worker[i]) : 0;
        if (c->worker[i].trip.mean_ns && ns > most) most = ns;
    }
    return most;
}

const char *ps_co_bound_text(char out[80], int64_t bound_ns, const struct lh_trip *trip)
{
    int n = snprintf(out, 80, "bound %.1f s", (double)bound_ns / LH_SECOND);
    if (trip->mean_ns && n > 0 && n < 80)
        snprintf(out + n, 80 - (size_t)n, " at a round trip of %.3f s",
                 (double)trip->mean_ns / LH_SECOND);
    return out;
}

// ---------------------------------------------------------------- trips

// Is the stored trip so far off that a restarted coordinator would misjudge silence?
static bool is_off(int64_t bound, int64_t stored)
{
    int64_t off = bound > stored ? bound - stored : stored - bound;
    return off > stored / 4;
}

static void put_trip(struct lh_buf *b, const struct lh_trip *t)
{
    lh_put_u64(b, (uint64_t)t->mean_ns);
    lh_put_u64(b, (uint64_t)t->spread_ns);
}

// Stored values are bounded like a peer's: a peer reported them once.
static struct lh_trip get_trip(struct lh_cursor *at)
{
    uint64_t mean = lh_get_u64(at), spread = lh_get_u64(at);
    const uint64_t most = LH_TRIP_US_MAX * UINT64_C(1000);
    if (at->failed || !mean) return (struct lh_trip){0};
    return (struct lh_trip){(int64_t)(mean < most ? mean : most),
                            (int64_t)(spread < most ? spread : most)};
}

lh_err ps_co_hear_worker_trip(struct ps_coordinator *c, struct ps_co_worker *w, struct lh_trip trip)
{
    w->trip = trip;
    if (!is_off(of_worker(c, &w->trip), of_worker(c, &w->stored_trip))) return LH_OK;
    struct lh_buf b = lh_buf(16);
    put_trip(&b, &w->trip);
    LH_TRY(ps_co_put_of(c, OF_WORKERS, w->id, &b));
    w->stored_trip = w->trip;
    return LH_OK;
}

lh_err ps_co_hear_owner_trip(struct ps_coordinator *c, uint32_t shard, struct lh_trip trip)
{
    struct ps_co_shard *s = &c->shard[shard];
    s->trip = trip;
    if (!is_off(of_owner(c, &s->trip), of_owner(c, &s->stored_trip))) return LH_OK;
    struct lh_buf b = lh_buf(16);
    put_trip(&b, &s->trip);
    LH_TRY(ps_co_put_row(c, OF_SHARDS, shard, &b));
    s->stored_trip = trip;
    return LH_OK;
}

// A trip in memory is newer than any row.
static lh_err read_trip(struct ps_co_shard *s, struct lh_cursor *at)
{
    s->stored_trip = at ? get_trip(at) : (struct lh_trip){0};
    if (!s->trip.mean_ns) s->trip = s->stored_trip;
    return LH_OK;
}

lh_err ps_co_load_trips(struct ps_coordinator *c)
{
    for (uint32_t i = 0; i < c->workers; i++) {
        struct ps_co_worker *w = &c->worker[i];
        struct ps_co_key key = ps_co_key(OF_WORKERS, w->id);
        struct lh_span row;
        w->stored_trip = (struct lh_trip){0};
        if (ps_store_get(c->store, key.text, &row)) {
            struct lh_cursor at = lh_cursor(row);
            w->stored_trip = get_trip(&at);
            if (at.failed) return ps_co_bad_row(c, key.text, "is too short");
        }
        if (!w->trip.mean_ns) w->trip = w->stored_trip;
    }
    return ps_co_load_rows(c, OF_SHARDS, read_trip);
}
