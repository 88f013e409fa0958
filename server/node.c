// The server's process: configures the cores from the settings, and opens the door. See node.h.
//
// The coordinator starts first, so that a server in the same process finds it. With both roles, one
// listener hands each call to the core that answers it. With one role, the core opens the door.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/app/status.h"
#include "common/app/units_file.h"
#include "common/format/manifest_pace.h"
#include "common/net/grpc/transport_grpc.h"
#include "server/audit.h"
#include "server/coordinator/watch/page.h"
#include "server/core.h"
#include "server/node_parts.h"
#include "server/state/uploader.h"

enum {
    WEIGHTS_EVERY = 100, // versions between weights-only checkpoints of a shard, for readers
    // An owner stops waiting for a standby that confirms nothing for this long, once the
    // coordinator has noted that it may not take over. A long path adds eight of its retransmission
    // timeouts.
    STANDBY_WAIT_MS = 1000,
};

// A push is clipped if its norm is above this times the reference (server/docs/0000-protocol.md).
static const double NORM_GATE = 10;

lh_err ps_node_create(struct ps_node **out)
{
    *out = calloc(1, sizeof **out);
    return *out ? LH_OK : LH_ERR_NO_MEMORY;
}

void ps_node_destroy(struct ps_node *n)
{
    if (!n) return;
    lh_signer_destroy(n->signer);
    lh_hmac_wipe(&n->hook.secret);
    free(n);
}

bool ps_node_again(const struct ps_node *n)
{
    return n->again;
}

// A process with both roles has a coordinator's certificate, which may serve shards, too.
static enum lh_role role(const void *settings)
{
    return ps_is_coordinator(settings) ? LH_C : LH_S;
}

// ---------------------------------------------------------------- initial parameters

static LH_MUST lh_err check_weights(const struct ps_node *n, uint64_t bytes)
{
    const struct lh_manifest *m = &n->program->manifest;
    if (bytes == m->values * sizeof(float)) return LH_OK;
    return lh_fail(LH_ERR_CONFIG,
                   "model.weights: %s has %llu bytes, but the manifest's %llu parameters need %llu "
                   "in fp32: is it another model's?",
                   n->settings->model.weights, (unsigned long long)bytes,
                   (unsigned long long)m->values, (unsigned long long)(m->values * sizeof(float)));
}

// Refuses initial values that are not finite: no region could train the run.
static LH_MUST lh_err check_finite(const struct ps_node *n, uint64_t first, uint64_t count,
                                   const float *values)
{
    const struct lh_manifest *m = &n->program->manifest;
    uint64_t i = 0;
    while (i < count && isfinite(values[i])) i++;
    if (i == count) return LH_OK;
    uint32_t t = 0;
    while (t + 1 < m->tensors && m->tensor[t + 1].offset <= first + i) t++;
    return lh_fail(LH_ERR_CONFIG,
                   "model.weights: %s: value %llu of %s is not finite (NaN or infinite): no run "
                   "can train it; write the file again from a model with finite values",
                   n->settings->model.weights,
                   (unsigned long long)(first + i - m->tensor[t].offset), m->tensor[t].name);
}

static lh_err initial(void *arg, uint64_t first, uint64_t count, float *out)
{
    struct ps_node *n = arg;
    const struct lh_files_ops *files = n->program->env->ops->files;
    struct lh_file *file;
    uint64_t bytes = 0;
    size_t got = 0, want = (size_t)count * sizeof *out;
    lh_err err = files->open(n->program->env, n->settings->model.weights, LH_OPEN_READ, &file);
    if (err == LH_ERR_NOT_FOUND)
        return lh_fail(err, "model.weights: %s does not exist", n->settings->model.weights);
    if (err) return err;
    err = files->size(file, &bytes);
    if (!err) err = check_weights(n, bytes);
    // The file is little endian, like this host.
    if (!err) err = files->read(file, first * sizeof *out, out, want, &got);
    if (!err && got != want)
        err = lh_fail(LH_ERR_IO, "model.weights: %s ends early", n->settings->model.weights);
    files->close(file);
    return err ? err : check_finite(n, first, count, out);
}

// ---------------------------------------------------------------- the data's manifest

// Loads the manifest of the units that this server gives. An empty data.dir gives none.
static LH_MUST lh_err load_given(struct ps_node *n)
{
    const struct ps_settings *s = n->settings;
    char path[LH_PATH_BYTES];
    if (!s->node.data.dir[0]) return LH_OK;
    if (s->node.data.units[0])
        LH_TRY(
            lh_units_find(n->program->env, n->program->log, s->node.data.units, s->node.dir, path));
    else
        LH_TRY(lh_path(path, sizeof path, s->node.data.dir, "units.json"));
    LH_TRY(ps_node_read_units("data.units", path, &n->given_units));
    uint64_t own = 0;
    for (uint64_t u = 0; u < n->given_units.count; u++)
        own += strcmp(n->given_units.unit[u].home, n->program->peer.region) == 0;
    lh_logf(n->program->log, own ? LH_INFO : LH_WARN, "units.given",
            "%llu of %llu units of %s belong to region %s: workers without their files get them "
            "from this server",
            (unsigned long long)own, (unsigned long long)n->given_units.count, path,
            n->program->peer.region);
    return LH_OK;
}

// ---------------------------------------------------------------- shards

// Loads the optional keys that sign and verify checkpoints.
static LH_MUST lh_err load_signers(struct ps_node *n)
{
    const struct ps_settings *s = n->settings;
    if (s->checkpoint.sign_key[0])
        LH_TRY(lh_signer_load(s->checkpoint.sign_key, &n->signer));
    else
        lh_logf(n->program->log, LH_INFO, "checkpoint.unsigned",
                "checkpoint.sign_key is not set: checkpoints are not signed");
    if (!s->checkpoint.signers[0]) return LH_OK;
    lh_err err = lh_trusted_load(s->checkpoint.signers, &n->trusted);
    if (err) return lh_fail(err, "checkpoint.signers: %s", lh_err_text(err));
    struct lh_public own = {{0}};
    if (n->signer) own = lh_signer_public(n->signer);
    if (n->signer && lh_trusts(&n->trusted, &own)) return LH_OK;
    return lh_fail(LH_ERR_CONFIG,
                   "checkpoint.signers: %s does not list the key of checkpoint.sign_key: this "
                   "server would refuse its own checkpoints",
                   s->checkpoint.signers);
}

static void tell(void *arg, json_t *status)
{
    const struct ps_node *n = arg;
    lh_status_tell(n->program, status);
    if (n->uploader) json_object_set_new(status, "store", ps_uploader_status(n->uploader));
}

static LH_MUST lh_err start_uploader(struct ps_node *n)
{
    struct lh_program *p = n->program;
    const struct ps_settings *s = n->settings;
    if (!s->checkpoint.store[0]) return LH_OK;
    LH_TRY(lh_path(n->checkpoints, sizeof n->checkpoints, s->node.dir, "checkpoints"));
    const struct ps_uploader_conf conf = {.env = p->env,
                                          .log = p->log,
                                          .dir = n->checkpoints,
                                          .shards = n->shard,
                                          .shard_count = s->shards.count,
                                          .keep = (unsigned)s->checkpoint.keep,
                                          .store = {.address = s->checkpoint.store}};
    lh_err err = ps_uploader_start(&conf, &n->uploader);
    return err ? lh_fail(err, "checkpoint.store: %s", lh_err_text(err)) : LH_OK;
}

static void fatal(void *arg, lh_err err, const char *text)
{
    lh_program_fatal(((struct ps_node *)arg)->program, err, text);
}

static LH_MUST lh_err start_server(struct ps_node *n)
{
    struct lh_program *p = n->program;
    const struct ps_settings *s = n->settings;
    for (uint32_t i = 0; i < s->shards.count; i++) {
        if (s->shards.value[i] >= p->manifest.shards)
            return lh_fail(LH_ERR_CONFIG, "shards: there is no shard %lld, the manifest has %u",
                           (long long)s->shards.value[i], p->manifest.shards);
        n->shard[i] = (uint32_t)s->shards.value[i];
    }
    LH_TRY(load_signers(n));
    LH_TRY(load_given(n));
    LH_TRY(start_uploader(n));
    bool both = n->coordinator != NULL;
    struct ps_conf conf = {
        .env = p->env,
        .transport = p->transport,
        .log = p->log,
        .audit = n->audit,
        .self = p->peer,
        .dir = s->node.dir,
        .listen = both ? "" : s->listen,
        .advertise = both && !s->advertise[0] ? n->address : s->advertise,
        .coordinator = both ? n->address : s->node.coordinator,
        .manifest = &p->manifest,
        .keys = p->keys,
        .cipher = (uint8_t)lh_node_cipher(&s->node),
        .key_id = lh_keyring_first(p->keys),
        .shards = n->shard,
        .shard_count = s->shards.count,
        .initial = initial,
        .initial_arg = n,
        .segment_bytes = lh_segment_bytes(&p->manifest),
        .checkpoint_every = (uint64_t)s->checkpoint.every_versions,
        .replay_ns = s->checkpoint.every_versions ? LH_REPLAY_MS * LH_MS : 0,
        .checkpoint_keep = (unsigned)s->checkpoint.keep,
        .weights_every = WEIGHTS_EVERY,
        .weights_keep = (unsigned)s->checkpoint.keep,
        .signer = n->signer,
        .trusted = n->trusted.count ? &n->trusted : NULL,
        .digest_every = lh_point_every(&p->manifest),
        .report_ns =
            (s->acknowledge == PS_ACK_REPLICATED || s->role == PS_ROLE_STANDBY ? 200 : 500) * LH_MS,
        .replicated = s->acknowledge == PS_ACK_REPLICATED,
        .wait_ns = STANDBY_WAIT_MS * LH_MS,
        .wait_max_ns = LH_TAKE_OVER_MAX_MS * LH_MS,
        .standby = s->role == PS_ROLE_STANDBY,
        .mark_ns = 100 * LH_MS,
        .deadline_ns = LH_CALL_MS * LH_MS,
        .deadline_max_ns = LH_CALL_MAX_MS * LH_MS,
        .norm_gate = NORM_GATE,
        .rebuild_damaged = s->rebuild.damaged == PS_DAMAGED_FOLLOWERS,
        .below_stable = s->rebuild.below_stable,
        .units = n->given_units.count ? &n->given_units : NULL,
        .units_dir = s->node.data.dir,
        .tell = tell,
        .tell_arg = n,
        .grace_ns = s->rebuild.grace_s * LH_SECOND,
        .voices = (uint32_t)s->rebuild.voices,
        .fatal = fatal,
        .fatal_arg = n,
        .again = ps_node_start_again,
    };
    memcpy(conf.job, p->job, LH_JOB_BYTES);
    LH_TRY(ps_server_start(&conf, &n->server));
    if (!both) lh_program_listening(n->server->address);
    return LH_OK;
}

// ---------------------------------------------------------------- the door of both

// The coordinator's service; the server answers the others.
static const char MEMBER[] = "longhaul.v1.Member/";

static lh_err on_call(void *self, struct lh_call *call, enum lh_rpc rpc, const struct lh_peer *peer,
                      const struct lh_call_ops **ops, void **call_self)
{
    struct ps_node *n = self;
    if (!strncmp(lh_rpc_path(rpc), MEMBER, sizeof MEMBER - 1))
        return ps_coordinator_on_call(n->coordinator, call, rpc, peer, ops, call_self);
    if (!n->server) return lh_fail(LH_ERR_UNAVAILABLE, "the server is starting");
    return ps_server_on_call(n->server, call, rpc, peer, ops, call_self);
}

static LH_MUST lh_err open_door(struct ps_node *n)
{
    struct lh_transport *t = n->program->transport;
    n->door = (struct lh_service){n, on_call};
    LH_TRY(t->ops->listen(t, n->settings->listen, &n->door, n->address, sizeof n->address));
    ps_coordinator_at(n->coordinator, n->address);
    return LH_OK;
}

// ---------------------------------------------------------------- the application

// Peers can't dial "every address of this host".
static LH_MUST lh_err check_address(const struct ps_settings *s)
{
    bool every = !strncmp(s->listen, "0.0.0.0:", 8) || !strncmp(s->listen, "[::]:", 5);
    if (!every || s->advertise[0] || !ps_is_shard(s)) return LH_OK;
    return lh_fail(LH_ERR_CONFIG,
                   "advertise is missing: listen is %s, every address of this host, but workers "
                   "need one address to connect to",
                   s->listen);
}

static LH_MUST lh_err open_audit(struct ps_node *n)
{
    const struct lh_program *p = n->program;
    char who[160], path[LH_PATH_BYTES];
    snprintf(who, sizeof who, "%s/%s/%s", lh_role_name(p->peer.role), p->peer.region, p->peer.name);
    LH_TRY(lh_path(path, sizeof path, n->settings->node.dir, "audit.jsonl"));
    LH_TRY(lh_log_open_audit(&n->audit, p->env, who, path));
    return lh_log_apart(n->audit);
}

static void close_cores(void *self)
{
    struct ps_node *n = self;
    if (n->server) ps_server_close(n->server);
    if (n->coordinator) ps_coordinator_close(n->coordinator);
    ps_lead_close(n->lead);
}

static void stop(void *self)
{
    struct ps_node *n = self;
    ps_uploader_stop(n->uploader);
    ps_server_stop(n->server);
    ps_coordinator_stop(n->coordinator);
    ps_lead_free(n->lead);
    lh_transport_grpc_on_refused(n->program->transport, NULL, NULL);
    lh_log_close(n->audit);
    lh_units_close(&n->units);
    lh_units_close(&n->given_units);
}

static lh_err start(void *self, struct lh_program *p)
{
    struct ps_node *n = self;
    n->program = p;
    n->settings = p->settings;
    LH_TRY(check_address(n->settings));
    lh_err err = open_audit(n);
    if (!err) lh_transport_grpc_on_refused(p->transport, ps_audit_refused, n->audit);
    if (!err && ps_is_coordinator(n->settings)) err = ps_node_start_coordinator(n);
    if (!err && ps_is_coordinator(n->settings) && ps_is_shard(n->settings)) err = open_door(n);
    if (!err && ps_is_shard(n->settings)) err = start_server(n);
    if (!err && n->coordinator && n->server) lh_program_listening(n->address);
    if (!err) return LH_OK;
    struct lh_err_said said;
    lh_err_take(&said);
    close_cores(n);
    stop(n);
    lh_err_give(&said);
    return err;
}

// Gives {"role": "both", "server": {...}, "coordinator": {...}} for both roles, else the object of
// the one core.
static lh_err status(void *self, struct lh_buf *out)
{
    struct ps_node *n = self;
    lh_log_look(n->audit);
    if (n->server) n->server->ending = n->program->ended;
    if (n->uploader) ps_uploader_serve(n->uploader, n->server->phase == PS_SERVING);
    if (n->lead) return ps_node_lead_status(n, out);
    if (!n->coordinator) return ps_server_status(n->server, out);
    if (!n->server) return ps_coordinator_durable_status(n->coordinator, out);
    static const char server[] = "{\"role\":\"both\",\"server\":",
                      coordinator[] = ",\"coordinator\":";
    lh_put(out, server, sizeof server - 1);
    LH_TRY(ps_server_status(n->server, out));
    lh_put(out, coordinator, sizeof coordinator - 1);
    LH_TRY(ps_coordinator_durable_status(n->coordinator, out));
    lh_put(out, "}", 1);
    return lh_buf_err(out);
}

static bool over(void *self)
{
    struct ps_node *n = self;
    if (n->lead && !n->coordinator) return false;
    return (!n->coordinator || ps_coordinator_over(n->coordinator)) &&
           (!n->server || ps_server_over(n->server));
}

static const char *page(const void *settings)
{
    return role(settings) == LH_C ? ps_co_page : NULL;
}

const struct lh_app ps_node_app = {
    .table = &ps_settings_table,
    .role = role,
    .lock = true,
    .start = start,
    .status = status,
    .page = page,
    .over = over,
    .close = close_cores,
    .stop = stop,
};
