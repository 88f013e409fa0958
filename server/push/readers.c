// Readers. See readers.h.
//
// A peer that does not read holds a few messages of memory, for LH_READ_SILENT_MS at most; then its
// call is cancelled. A peer's newer streams replace its oldest, and no peer takes all places of
// snapshots. A snapshot has a deadline by its size; while a reader waits, the slowest is cancelled,
// or one of a peer that began more of them lately.
#include <string.h>

#include "server/push/readers.h"

enum {
    SNAPSHOTS_MAX = 4 * LH_SNAPSHOT_RANGES,
    SNAPSHOTS_OF_A_PEER = 3 * LH_SNAPSHOT_RANGES,
    SNAPSHOTS_A_SHARE = LH_SNAPSHOT_RANGES, // If others wait, a peer keeps so many.
    BEGUN_MS = 600000,                      // after so long all counts begin anew
};

// Cancels at once: a final status would wait behind the unread messages.
static void cut_off(struct ps_follower *f, const char *why)
{
    lh_log_peer(
        f->server->conf.log, LH_WARN, f->snapshot ? "snapshot.silent" : "follow.silent",
        "%s %s of %s, shard %u: %s; its stream is cancelled, and it may ask for another one",
        lh_role_name(f->peer.role), f->peer.name, f->peer.region, f->shard ? f->shard->id : 0, why);
    f->ended = f->cut = true;
    if (f->snapshot) f->server->snapshots--;
    lh_call_cancel(f->call);
}

// Counts a peer's streams of that kind; *oldest: the first that was not cut off. A snapshot whose
// last messages are unread still counts: it occupies a slot until it is closed.
static uint32_t streams_of(const struct ps_server *s, const struct lh_peer *peer, bool snapshot,
                           struct ps_follower **oldest)
{
    uint32_t n = 0;
    for (struct ps_follower *f = s->readers; f; f = f->older) {
        if (f->snapshot != snapshot || f->cut || (f->ended && !snapshot) ||
            !lh_peer_same(&f->peer, peer))
            continue;
        *oldest = f;
        n++;
    }
    return n;
}

static int64_t bytes_sent(const struct ps_follower *f)
{
    return (int64_t)(f->giving.at - f->giving.from);
}

// The deadline of a snapshot from its start, whatever its progress.
static int64_t time_of(const struct ps_follower *f)
{
    int64_t rate = f->server->snapshot_rate / LH_JOIN_RATE_PART;
    if (rate < LH_JOIN_BYTES_PER_S) rate = LH_JOIN_BYTES_PER_S;
    int64_t bytes = (int64_t)(f->giving.until - f->giving.from);
    return LH_JOIN_SILENT_MS * LH_MS + bytes / rate * LH_SECOND;
}

void ps_readers_note_rate(const struct ps_follower *f)
{
    int64_t took_ms = (lh_now(f->server->conf.env) - f->begun_ns) / LH_MS + 1;
    int64_t rate = bytes_sent(f) * 1000 / took_ms, *mean = &f->server->snapshot_rate;
    *mean = *mean ? *mean + (rate - *mean) / 4 : rate;
}

// Time to completion at the rate so far, in ms.
static int64_t left_ms(const struct ps_follower *f, int64_t now)
{
    int64_t rate = bytes_sent(f) * 1000 / ((now - f->begun_ns) / LH_MS + 1) + 1; // bytes a second
    return (int64_t)(f->giving.until - f->giving.at) / rate * 1000 + (f->sending ? 1 : 0);
}

static struct ps_begun *row_of(struct ps_server *server, uint64_t peer)
{
    for (size_t i = 0; i < PS_BEGUN; i++)
        if (server->begun[i].snapshots && server->begun[i].peer == peer) return &server->begun[i];
    return NULL;
}

static uint32_t snapshots_of(struct ps_server *server, const struct lh_peer *peer)
{
    struct ps_follower *oldest;
    return streams_of(server, peer, true, &oldest);
}

// Snapshots that the peer began lately.
static uint32_t begun_by(struct ps_server *server, const struct lh_peer *peer)
{
    const struct ps_begun *row = row_of(server, lh_worker_id(peer));
    return row ? row->snapshots : 0;
}

// Counts one more. A peer without a row gets that of whoever began fewest.
static void note_begun(struct ps_server *server, const struct lh_peer *peer)
{
    uint64_t id = lh_worker_id(peer);
    struct ps_begun *row = row_of(server, id), *least = server->begun;
    for (size_t i = 0; i < PS_BEGUN; i++)
        if (server->begun[i].snapshots < least->snapshots) least = &server->begun[i];
    if (!row) *(row = least) = (struct ps_begun){.peer = id};
    row->snapshots++;
}

static void forget_old(struct ps_server *server)
{
    int64_t now = lh_now(server->conf.env);
    if (now - server->begun_since_ns <= BEGUN_MS * LH_MS) return;
    memset(server->begun, 0, sizeof server->begun);
    server->begun_since_ns = now;
}

// The newest snapshot of the peer with the most by this count, if it has more than `most`.
static struct ps_follower *of_most(struct ps_server *server, uint32_t most,
                                   uint32_t (*count)(struct ps_server *, const struct lh_peer *))
{
    struct ps_follower *found = NULL;
    for (struct ps_follower *f = server->readers; f; f = f->older) {
        uint32_t n = f->snapshot && !f->cut ? count(server, &f->peer) : 0;
        if (n <= most) continue;
        found = f;
        most = n;
    }
    return found;
}

void ps_readers_yield(struct ps_server *server, const struct ps_shard *s)
{
    int64_t now = lh_now(server->conf.env);
    struct ps_follower *slowest = NULL;
    for (struct ps_follower *f = server->readers; f; f = f->older) {
        bool reads = f->snapshot && f->giving.of && !f->cut && (!s || f->shard == s);
        if (!reads || now - f->begun_ns < LH_JOIN_TURN_MS * LH_MS) continue;
        if (!slowest || left_ms(f, now) > left_ms(slowest, now)) slowest = f;
    }
    const struct ps_snapshot *of = slowest ? slowest->giving.of : NULL;
    for (struct ps_follower *f = of ? server->readers : NULL, *older; f; f = older) {
        older = f->older;
        if (f->giving.of != of || f->cut || now - f->begun_ns < LH_JOIN_TURN_MS * LH_MS) continue;
        bool stuck = f->sending && now - f->sent_ns >= LH_JOIN_TURN_MS * LH_MS;
        if (f == slowest || stuck || left_ms(f, now) >= LH_JOIN_TURN_MS)
            cut_off(f, "it reads its snapshot more slowly than others, while another reader waits "
                       "for one");
    }
}

// ---------------------------------------------------------------- those who do not read

bool ps_readers_look(struct ps_server *s)
{
    int64_t now = lh_now(s->conf.env);
    for (struct ps_follower *f = s->readers, *older; f; f = older) {
        older = f->older;
        int64_t most = (f->snapshot ? LH_JOIN_SILENT_MS : LH_READ_SILENT_MS) * LH_MS;
        bool waits = f->sending || !f->asked; // waits on its peer
        if (f->cut) continue;
        if (f->snapshot && f->giving.of && now - f->begun_ns >= time_of(f))
            cut_off(f, "it takes its snapshot too slowly");
        else if (waits && now - f->sent_ns >= most)
            cut_off(f, f->asked ? "it has read nothing for too long" : "it asks for nothing");
    }
    return s->readers != NULL;
}

void ps_readers_expel(struct ps_server *s)
{
    for (struct ps_follower *f = s->readers; f; f = f->older)
        if (!f->ended && ps_expelled(s, lh_worker_id(&f->peer))) cut_off(f, "it was expelled");
}

// ---------------------------------------------------------------- whoever comes

void ps_readers_admit_follow(struct ps_server *server, const struct lh_peer *peer)
{
    struct ps_follower *oldest = NULL;
    if (streams_of(server, peer, false, &oldest) >= LH_STREAMS_A_SHARD * server->conf.shard_count)
        cut_off(oldest, "it has opened many later ones");
}

lh_err ps_readers_admit_snapshot(struct ps_server *server, const struct lh_peer *peer)
{
    struct ps_follower *oldest;
    uint32_t has = streams_of(server, peer, true, &oldest);
    forget_old(server);
    if (server->snapshots >= SNAPSHOTS_MAX && has < SNAPSHOTS_A_SHARE) {
        // The place goes to this reader at once, because others may ask more often.
        // Peers that renew theirs in turn would keep all places.
        struct ps_follower *most = of_most(server, SNAPSHOTS_A_SHARE, snapshots_of);
        if (!most) most = of_most(server, begun_by(server, peer) + SNAPSHOTS_A_SHARE, begun_by);
        if (most) cut_off(most, "it reads many snapshots, while another reader waits for one");
        if (!most) ps_readers_yield(server, NULL);
    }
    if (server->snapshots >= SNAPSHOTS_MAX)
        return lh_fail(LH_ERR_BUSY, "%d snapshots are being sent; try again", SNAPSHOTS_MAX);
    if (has >= SNAPSHOTS_OF_A_PEER)
        return lh_fail(LH_ERR_BUSY, "%d snapshots to this peer are being sent; try again",
                       SNAPSHOTS_OF_A_PEER);
    note_begun(server, peer);
    return LH_OK;
}
