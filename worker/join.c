// Joins the ranks of a region. See join.h.
#include "worker/join.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "worker/ranks/comm/comm_nccl.h"
#include "worker/ranks/comm/comm_tcp.h"
#include "worker/ranks/peer.h"
#include "worker/ranks/rank.h"
#include "worker/ranks/reduce_peers.h"

// How long a leader waits for a lost rank before it continues without it: a process that restarts
// at once is back by then.
static const int64_t gather_ns = 2 * LH_SECOND;

struct wk_joined { // one rank's process
    struct wk_rank *rank;
    struct wk_peer *peer;
};

// A name that only this worker's ranks use. On several hosts it is their meeting address, and each
// has its own certificate. On one host it is the worker's identity and the coordinator, because two
// runs may use the same names.
static LH_MUST lh_err name_of(const struct wk_join_conf *c, char out[WK_SHM_NAME_BYTES])
{
    const struct wk_settings *s = c->settings;
    char place[LH_URI_BYTES + LH_PATH_BYTES];
    lh_peer_uri(c->self, place);
    size_t len = strlen(place);
    int n = snprintf(place + len, sizeof place - len, " %s", s->node.coordinator);
    if (n < 0 || (size_t)n >= sizeof place - len)
        return lh_fail(LH_ERR_TOO_LARGE, "coordinator: the address is too long");
    wk_shm_name(s->ranks.leader[0] ? s->ranks.leader : place, out);
    return LH_OK;
}

static LH_MUST lh_err shm_conf(const struct wk_join_conf *c, struct wk_shm_conf *out)
{
    const struct wk_settings *s = c->settings;
    *out = (struct wk_shm_conf){
        .manifest = c->manifest->hash,
        .values = c->manifest->values,
        .ranks = (uint32_t)s->ranks.count,
        .sequences = (uint32_t)(s->trainer.batch * s->trainer.accumulate),
        .length = c->shape.context,
        .sum = (enum wk_sum_type)s->ranks.wire,
        .patience_ms = s->ranks.patience_ms,
    };
    return name_of(c, out->name);
}

static struct wk_tls_conf tls_conf(const struct wk_join_conf *c)
{
    const struct lh_node *node = &c->settings->node;
    return (struct wk_tls_conf){
        .env = c->env,
        .ca = node->tls.ca,
        .cert = node->tls.cert,
        .key = node->tls.key,
        .domain = c->self->domain,
        .run = c->self->run,
        .region = c->self->region,
    };
}

// NCCL's own connections are neither encrypted nor authenticated: they may leave the host only
// through an interface named in the settings.
static LH_MUST lh_err check_interface(const char *leader)
{
    bool here = !leader[0] || !strncmp(leader, "127.", 4) || !strncmp(leader, "[::1]", 5);
    const char *named = getenv("NCCL_SOCKET_IFNAME");
    if (here || (named && *named && strcmp(named, "lo") != 0)) return LH_OK;
    return lh_fail(LH_ERR_CONFIG,
                   "ranks.leader is %.100s, but NCCL_SOCKET_IFNAME names no interface to other "
                   "hosts: set it in the environment of each rank",
                   leader);
}

static LH_MUST lh_err open_comm(const struct wk_join_conf *c, struct wk_comm **out)
{
    const struct wk_settings *s = c->settings;
    char log_file[LH_PATH_BYTES];
    const struct wk_comm_tcp_conf tcp = {c->env, c->log, s->ranks.address, tls_conf(c)};
    if (s->ranks.reduce == WK_REDUCE_TCP) return wk_comm_tcp_create(&tcp, out);
    LH_TRY(check_interface(s->ranks.leader));
    LH_TRY(lh_path(log_file, sizeof log_file, s->node.dir, "nccl.log"));
    const struct wk_comm_nccl_conf conf = {
        .log = c->log,
        .library = "",
        .plugin = "",
        .interface = "lo",
        .log_file = log_file,
        .rank = (uint32_t)s->ranks.rank,
    };
    return wk_comm_nccl_create(&conf, out);
}

static LH_MUST lh_err peers_conf(const struct wk_join_conf *c, struct wk_peers_conf *out)
{
    const struct wk_settings *s = c->settings;
    LH_STATIC_ASSERT((int)WK_PEERS_NAME_BYTES == (int)WK_SHM_NAME_BYTES, "a name fits both");
    *out = (struct wk_peers_conf){
        .env = c->env,
        .log = c->log,
        .rank = (uint32_t)s->ranks.rank,
        .ranks = (uint32_t)s->ranks.count,
        .sum = (enum wk_sum_type)s->ranks.wire,
        .patience_ns = s->ranks.patience_ms * LH_MS,
        .gather_ns = gather_ns,
        .address = s->ranks.leader,
        .tls = tls_conf(c),
    };
    LH_TRY(name_of(c, out->name));
    return open_comm(c, &out->comm);
}

lh_err wk_join_lead(const struct wk_join_conf *conf, struct wk_reduce **out)
{
    const struct wk_settings *s = conf->settings;
    struct wk_shm_conf shm;
    struct wk_reduce_peers_conf peers = {.manifest = conf->manifest->hash};
    *out = NULL;
    if (s->ranks.count == 1) return LH_OK;
    if (s->ranks.reduce == WK_REDUCE_SHM) {
        LH_TRY(shm_conf(conf, &shm));
        return wk_shm_lead(&shm, out);
    }
    LH_TRY(peers_conf(conf, &peers.peers));
    return wk_reduce_peers_create(&peers, out);
}

uint64_t wk_join_device_bytes(const struct wk_settings *s)
{
    bool nccl = s->ranks.count > 1 && s->ranks.reduce == WK_REDUCE_NCCL;
    return nccl ? wk_comm_nccl_device_bytes(WK_COMM_BUCKET_BYTES, (enum wk_sum_type)s->ranks.wire)
                : 0;
}

json_t *wk_join_status(const struct wk_settings *s, struct wk_reduce *reduce)
{
    struct wk_peers_status is;
    char digest[32];
    if (!reduce || s->ranks.reduce == WK_REDUCE_SHM) return NULL;
    wk_reduce_peers_status(reduce, &is);
    snprintf(digest, sizeof digest, "%016" PRIx64, is.digest);
    return json_pack("{s:s s:s s:i s:I s:I s:s s:f s:I s:I s:s}", "reduce",
                     wk_reduce_word(s->ranks.reduce), "wire",
                     wk_sum_word((enum wk_sum_type)s->ranks.wire), "members",
                     __builtin_popcountll(is.members | 1), "epochs", (json_int_t)is.epochs,
                     "failures", (json_int_t)is.failures, "last_failure", is.cause, "bytes_per_s",
                     is.bytes_per_s, "buckets", (json_int_t)is.counts.buckets, "buckets_early",
                     (json_int_t)is.counts.early, "digest", digest);
}

// ---------------------------------------------------------------- another rank

static LH_MUST lh_err join_shm(const struct wk_join_conf *c, struct wk_joined *j)
{
    struct wk_rank_conf conf = {
        .env = c->env,
        .log = c->log,
        .rank = (uint32_t)c->settings->ranks.rank,
        .batch = (uint32_t)c->settings->trainer.batch,
        .shape = c->shape,
        .ended = c->ended,
        .arg = c->arg,
    };
    LH_TRY(shm_conf(c, &conf.shm));
    return wk_rank_start(&conf, &j->rank);
}

static LH_MUST lh_err join_peers(const struct wk_join_conf *c, struct wk_joined *j)
{
    struct wk_peer_conf conf = {
        .manifest = c->manifest->hash,
        .shape = c->shape,
        .length = c->shape.context,
        .batch = (uint32_t)c->settings->trainer.batch,
        .device = c->device,
        .ended = c->ended,
        .arg = c->arg,
    };
    LH_TRY(peers_conf(c, &conf.peers));
    return wk_peer_start(&conf, &j->peer);
}

lh_err wk_join(const struct wk_join_conf *conf, struct wk_joined **out)
{
    struct wk_joined *j = calloc(1, sizeof *j);
    if (!j) return lh_fail(LH_ERR_NO_MEMORY, "a rank");
    bool shm = conf->settings->ranks.reduce == WK_REDUCE_SHM;
    lh_err err = shm ? join_shm(conf, j) : join_peers(conf, j);
    if (err)
        free(j);
    else
        *out = j;
    return err;
}

lh_err wk_joined_status(const struct wk_joined *j, struct lh_buf *out)
{
    return j->peer ? wk_peer_status(j->peer, out) : wk_rank_status(j->rank, out);
}

void wk_joined_close(struct wk_joined *j)
{
    if (j->peer)
        wk_peer_close(j->peer);
    else
        wk_rank_close(j->rank);
}

bool wk_joined_stop(struct wk_joined *j)
{
    if (!j) return true;
    bool gone = wk_peer_stop(j->peer);
    wk_rank_stop(j->rank);
    free(j);
    return gone;
}
