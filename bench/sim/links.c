// See links.h.
#include "bench/sim/links.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/format/frame.h"
#include "common/format/record.h"

static const double PACKET_BYTES = 1448, NEAR_S = 0.001;

// Bulk bytes that grow with the model: not a frame's or record's head, not a state's rows of
// workers. (Claims count as payload.)
static double payload_of(const struct scene_flags *f, enum lh_rpc rpc, size_t bulk)
{
    size_t head = LH_FRAME_HEADER_BYTES + LH_SEAL_TAG_BYTES;
    size_t state = sizeof(float) * f->values / f->shards;
    if (rpc == LH_RPC_SNAPSHOT) return (double)(bulk < state ? bulk : state);
    if (rpc == LH_RPC_FOLLOW) head += LH_RECORD_HEADER_BYTES;
    return bulk > head ? (double)(bulk - head) : 0;
}

// The number in a node's name; -1: a node of another kind.
static int number_of(const char *name, const char *kind)
{
    size_t n = strlen(kind);
    return strncmp(name, kind, n) == 0 ? (int)strtol(name + n, NULL, 10) : -1;
}

static const struct scene_region *region_of(const struct links *l, const char *from, const char *to)
{
    int w = number_of(from, "worker");
    if (w < 0) w = number_of(to, "worker");
    return w < 0 ? NULL : &l->scene->region[w];
}

static bool fate(void *arg, const char *from, const char *to, enum lh_rpc rpc, struct lh_fate *out)
{
    const struct scene_region *r = region_of(arg, from, to);
    (void)rpc;
    out->delay_ns = (int64_t)((r ? r->rtt_s : NEAR_S) / 2 * LH_SECOND);
    return true;
}

static void note_peak(struct link_way *way, int64_t now, double bytes)
{
    int64_t half = now / (LH_SECOND / 2);
    way->in_half = (half == way->half ? way->in_half : 0) + bytes;
    way->half = half;
    way->peak = fmax(way->peak, way->in_half);
}

// Queues the bytes behind those on their way from `now` on; gives the time when they are through.
static int64_t through(struct link_way *way, int64_t now, double bytes, double bytes_per_s)
{
    int64_t begins = way->free_ns > now ? way->free_ns : now;
    way->bytes += bytes;
    way->free_ns = begins + (bytes_per_s > 0 ? (int64_t)(bytes / bytes_per_s * LH_SECOND) : 0);
    return way->free_ns;
}

static double uniform(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 11) / 9007199254740992.0;
}

static bool loses(struct links *l, double bytes)
{
    double p = l->scene->flags.loss;
    bool lost = p > 0 && uniform(&l->chance) > pow(1 - p, ceil(bytes / PACKET_BYTES));
    l->messages++;
    l->lost += lost;
    return lost;
}

static int64_t pace(void *arg, const char *from, const char *to, enum lh_rpc rpc, size_t head,
                    size_t bulk)
{
    struct links *l = arg;
    const struct scene_flags *f = &l->scene->flags;
    int up = number_of(from, "worker"), down = number_of(to, "worker");
    if (up < 0 && down < 0) return 0; // servers and the coordinator are side by side
    int64_t now = lh_fake_now(l->world);
    double bytes = (double)(head + bulk) + payload_of(f, rpc, bulk) * (f->stands_for - 1);
    double port = f->port_mbit * 1e6 / 8;
    if (rpc == LH_RPC_SNAPSHOT) l->snapshots += bytes;
    const struct scene_region *r = region_of(l, from, to);
    int64_t at = now;
    if (up >= 0 && rpc == LH_RPC_PUSH && !l->late) note_peak(&l->up[up], now, bytes);
    int server = number_of(from, "server");
    if (server >= 0) at = through(&l->out[server], at, bytes, port);
    at = through(up >= 0 ? &l->up[up] : &l->down[down], at, bytes, r->bytes_per_s);
    server = number_of(to, "server");
    if (server >= 0) at = through(&l->in[server], at, bytes, port);
    return at - now + (loses(l, bytes) ? (int64_t)(r->rtt_s * LH_SECOND) : 0);
}

void links_begin(struct links *l, const struct scene *scene, struct lh_fake_world *world,
                 struct lh_fabric *fabric)
{
    l->scene = scene;
    l->world = world;
    l->chance = scene->flags.seed;
    lh_fabric_fates(fabric, fate, l);
    lh_fabric_pace(fabric, pace, l);
}
