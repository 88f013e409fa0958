// The folder of a run. See up_dir.h.
//
//   DIR/topology.yaml             the run's topology; rewritten when settings change
//   DIR/topology.next             that of a run that had ended, until the run goes on
//   DIR/secrets/                  outside the state directories: ca.pem, ca.key, job.keys, NODE.pem
//                                 and NODE.key; SERVER.sign and signers for checkpoints
//   DIR/model.json, weights.bin   the manifest; initial parameters, fp32
//   DIR/NODE.yaml, NODE.log       settings (written anew) and output of each process
//   DIR/NODE.trainer.log          output of the command beside a worker
//   DIR/units.json                where commands have data of their own: a manifest of units that
//                                 nobody leases
//   DIR/NODE/                     its state directory
//   DIR/curves.csv, totals.json   what later `up`s go on from
//   DIR/summary.json, loss.svg    the end
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "common/security/certs.h"
#include "common/security/seal.h"
#include "common/security/sign.h"
#include "deploy/models/import.h"
#include "deploy/up/topology_private.h"
#include "deploy/up/up_change.h"
#include "deploy/up/up_dir.h"
#include "deploy/up/up_trainers.h"
#include "worker/ranks/reduce_shm.h"

enum { CERT_DAYS = 365, TOPOLOGY_BYTES_MAX = LH_YAML_BYTES_MAX };
static const char ADMIN[] = "admin"; // get_command.c looks for its files

// ---------------------------------------------------------------- model

// The shape of an imported model, whose tensors must be the built-in trainer's.
static LH_MUST lh_err imported_shape(const char *path, const struct lh_manifest *is,
                                     struct wk_shape *out)
{
    struct lh_manifest ours = {0};
    lh_err err = wk_shape_parse(is->model_json, out);
    if (!err) err = wk_model_manifest(out, is->shards, &ours);
    if (!err && !lh_hash_equal(&is->hash, &ours.hash))
        err = lh_fail(LH_ERR_MANIFEST, "%s: its tensors do not match its \"model\"", path);
    lh_manifest_free(&ours);
    return err;
}

// Tensors of any model, in the topology's number of shards.
static LH_MUST lh_err imported_tensors(const struct lh_manifest *is, uint32_t shards,
                                       struct lh_manifest *out)
{
    const char **name = calloc(is->tensors, sizeof *name);
    uint64_t(*shape)[5] = calloc(is->tensors, sizeof *shape);
    lh_err err = name && shape ? LH_OK : lh_fail(LH_ERR_NO_MEMORY, "no memory for a manifest");
    for (uint32_t i = 0; !err && i < is->tensors; i++) {
        name[i] = is->tensor[i].name;
        for (int d = 0; d < is->tensor[i].dims; d++) shape[i][d] = is->tensor[i].shape[d];
    }
    if (!err)
        err = lh_manifest_build(out, is->tensors, name, (const uint64_t(*)[5])shape, shards,
                                is->model_json);
    free(name);
    free(shape);
    return err;
}

// The folder of the model's manifest: model.import, or, for a Hugging Face folder, its import in
// the run's folder, made once.
static LH_MUST lh_err find_model(struct dp_up *up)
{
    const char *from = up->t->run->model.import, *dir = up->flags.dir;
    char path[DP_PATH_BYTES];
    LH_TRY(dp_path(path, "%s/model.json", from));
    if (dp_file_exists(path)) return dp_path(up->model, "%s", from);
    LH_TRY(dp_path(path, "%s/config.json", from));
    if (!dp_file_exists(path))
        return lh_fail(LH_ERR_NOT_FOUND,
                       "model.import: %s has neither model.json (`longhaul model import`, "
                       "longhaul.save_initial) nor config.json (a Hugging Face folder)",
                       from);
    if (dir)
        LH_TRY(dp_path(up->model, "%s/import", dir));
    else
        LH_TRY(dp_path(up->model, "run/%s/import", up->t->run->run));
    LH_TRY(dp_path(path, "%s/model.json", up->model));
    if (dp_file_exists(path)) return LH_OK;
    LH_TRY(dp_make_dirs(up->model));
    struct dp_import q = {.from = from, .out = up->model, .shards = up->t->shards};
    lh_err err = dp_import(&q);
    if (q.notes.len) fwrite(q.notes.data, 1, q.notes.len, stderr);
    dp_import_free(&q);
    return err;
}

// Takes a model from a folder. A model of another shape than the built-in trainer's needs a command
// in every region.
static LH_MUST lh_err import_model(struct dp_up *up)
{
    const struct dp_run_settings *r = up->t->run;
    char path[DP_PATH_BYTES];
    struct lh_manifest is = {0};
    LH_TRY(find_model(up));
    LH_TRY(dp_path(path, "%s/model.json", up->model));
    LH_TRY(dp_manifest_load(path, &is));
    lh_err err = imported_shape(path, &is, &up->shape);
    up->shaped = !err;
    up->shape.context = (uint32_t)r->model.context;
    if (err && (up->t->trainers == up->t->workers ||
                up->t->worker_base->trainer.kind == WK_TRAINER_EXTERNAL))
        err = imported_tensors(&is, up->t->shards, &up->manifest);
    else if (err)
        err = lh_fail(err, "%s: a region without a command has the built-in trainer: %s", path,
                      lh_err_text(err));
    lh_manifest_free(&is);
    return err;
}

lh_err dp_dir_model(struct dp_up *up)
{
    const struct dp_run_settings *r = up->t->run;
    up->shape = (struct wk_shape){
        .vocab = (uint32_t)r->model.vocabulary,
        .dim = (uint32_t)r->model.dim,
        .layers = (uint32_t)r->model.layers,
        .heads = (uint32_t)r->model.heads,
        .kv_heads = (uint32_t)r->model.kv_heads,
        .ffn = (uint32_t)r->model.ffn,
        .context = (uint32_t)r->model.context,
        .rope_theta = 10000,
        .rms_eps = 1e-6,
        .tied = true,
    };
    up->shaped = true;
    LH_TRY(dp_private_check(up->t, up->flags.topology));
    if (up->t->shards > DP_SHARDS_MAX)
        return lh_fail(LH_ERR_CONFIG, "%u shards: `up` shows at most %d", up->t->shards,
                       DP_SHARDS_MAX);
    if (r->model.import[0]) LH_TRY(import_model(up));
    if (up->shaped) {
        LH_TRY(wk_shape_check(&up->shape));
        LH_TRY(wk_model_manifest(&up->shape, up->t->shards, &up->manifest));
    }
    if (!up->shaped) up->unjudged = "the built-in evaluation does not support this model";
    if (dp_topology_own_data(up->t))
        up->unjudged = up->t->trainers ? "the commands use their own data"
                                       : "all data belong to private regions";
    dp_plan_make(up->t, up->manifest.values, &up->plan);
    return LH_OK;
}

// ---------------------------------------------------------------- nodes

static LH_MUST lh_err add_node(struct dp_up *up, enum dp_kind kind, unsigned region, unsigned index,
                               const char *format, ...) __attribute__((format(printf, 5, 6)));
static LH_MUST lh_err add_node(struct dp_up *up, enum dp_kind kind, unsigned region, unsigned index,
                               const char *format, ...)
{
    struct dp_node *node = &up->node[up->nodes++];
    *node = (struct dp_node){.kind = kind, .region = region, .index = index};
    va_list args;
    va_start(args, format);
    vsnprintf(node->name, sizeof node->name, format, args);
    va_end(args);
    LH_TRY(dp_path(node->dir, "%s/%s", up->dir, node->name));
    return dp_path(node->config, "%s/%s.yaml", up->dir, node->name);
}

static LH_MUST lh_err list_ranks(struct dp_up *up)
{
    for (unsigned i = 0, nodes = up->nodes; i < nodes; i++) {
        const struct dp_node *worker = &up->node[i];
        if (worker->kind != DP_WORKER) continue;
        for (unsigned k = 1; k <= dp_region_helpers(&up->t->region[worker->region]); k++) {
            LH_TRY(add_node(up, DP_RANK, worker->region, worker->index, "%s.%u", worker->name, k));
            up->node[up->nodes - 1].rank = k;
        }
    }
    return LH_OK;
}

lh_err dp_dir_list(struct dp_up *up)
{
    const struct dp_topology *t = up->t;
    LH_TRY(add_node(up, DP_COORDINATOR, t->coordinator, 0, "coordinator"));
    if (dp_topology_pair(t))
        LH_TRY(add_node(up, DP_COORDINATOR, t->coordinator, 1, DP_STANDBY_NAME));
    for (unsigned i = 0; i < t->servers; i++)
        LH_TRY(add_node(up, DP_SERVER, t->server[i].region, i, "%s", t->server[i].name));
    for (unsigned r = 0; r < t->regions; r++)
        for (unsigned w = 0; w < t->region[r].workers; w++)
            LH_TRY(add_node(up, DP_WORKER, r, w, "%s-%u", t->region[r].name, w));
    LH_TRY(list_ranks(up));
    return dp_trainers_list(up);
}

// ---------------------------------------------------------------- folder

static void tell_changes(const struct dp_up *up, const struct dp_changes *c,
                         const struct dp_topology *was)
{
    static const char *const what[] = {"density", "eta", "rounds"};
    struct dp_plan before;
    dp_plan_make(was, up->manifest.values, &before);
    const double from[] = {before.density, before.eta, before.rounds};
    const double to[] = {up->plan.density, up->plan.eta, up->plan.rounds};
    printf("The run continues with changed settings:\n%.*s", (int)c->taken.len,
           (const char *)c->taken.data);
    for (size_t i = 0; i < LH_COUNT(what); i++)
        if (from[i] < to[i] || from[i] > to[i])
            printf("so %s: %.4g -> %.4g\n", what[i], from[i], to[i]);
    if (c->old_budget)
        printf(
            "so the learning rate: from where it stands it goes to the new budget's schedule, over "
            "worker.trainer.warmup of what is left (a loop's own: `longhaul.schedule`)\n");
    printf("\n");
}

// Prints all refused changes with their reasons.
static lh_err refuse_changes(const struct dp_up *up, const struct dp_changes *c)
{
    if (c->refusals > 1)
        fprintf(stderr, "longhaul up: %.*s", (int)c->refused.len, (const char *)c->refused.data);
    return lh_fail(LH_ERR_CONFIG,
                   "%u setting%s of %s differ%s from what %s was made from, and can't change in a "
                   "run (%.*s): put %s back, or use another --dir for another run",
                   c->refusals, c->refusals > 1 ? "s" : "", up->flags.topology,
                   c->refusals > 1 ? "" : "s", up->dir,
                   (int)strcspn((const char *)c->refused.data, "\n"), (const char *)c->refused.data,
                   c->refusals > 1 ? "them" : "it");
}

// An ended run continues only with more to train and with the flag, so that merely editing a file
// trains nothing more.
static LH_MUST lh_err check_over(const struct dp_up *up, const char *state, bool more)
{
    bool over = !strcmp(state, "ended");
    if (up->flags.go_on && !over)
        return lh_fail(
            LH_ERR_CONFIG,
            "no run has ended in %s: to continue one that was stopped, leave --continue out",
            up->dir);
    if (up->flags.go_on && !more)
        return lh_fail(
            LH_ERR_CONFIG,
            "%s: nothing is left to train: raise budget_tokens to the total of the whole run, and "
            "epochs if all data were trained (if a --continue was stopped, leave the flag out)",
            up->flags.topology);
    if (over && more && !up->flags.go_on)
        return lh_fail(LH_ERR_CONFIG,
                       "the run in %s has ended at its budget: `longhaul up --continue` continues "
                       "it with the larger one",
                       up->dir);
    return LH_OK;
}

static LH_MUST lh_err take_changes(struct dp_up *up, const struct dp_topology *was,
                                   const struct dp_changes *c)
{
    const struct dp_run_settings *before = was->run, *now = up->t->run;
    char state[DP_STATE_BYTES];
    if (c->refusals) return refuse_changes(up, c);
    dp_run_state(up->dir, state);
    LH_TRY(check_over(up, state,
                      now->budget_tokens > before->budget_tokens || now->epochs > before->epochs));
    // The coordinator would not take it, and would measure a later, larger one by the old budget.
    if (!strcmp(state, "ended") && now->budget_tokens < before->budget_tokens)
        return lh_fail(LH_ERR_CONFIG,
                       "the run in %s has ended with budget_tokens %lld, and a smaller one changes "
                       "nothing: put it back",
                       up->dir, (long long)before->budget_tokens);
    if (c->taken.len) tell_changes(up, c, was);
    return LH_OK;
}

static LH_MUST lh_err parse_kept(const char *kept, struct lh_span text, struct dp_topology **out)
{
    lh_err err = dp_topology_parse(kept, text, out);
    return err ? lh_fail(err,
                         "%s; this is the copy of the topology that the run was made from: restore "
                         "it, or remove it, and the settings are taken without a comparison",
                         lh_err_text(err))
               : LH_OK;
}

static const char NEXT_TOPOLOGY[] = "%s/topology.next";

lh_err dp_dir_went_on(struct dp_up *up)
{
    char next[DP_PATH_BYTES], kept[DP_PATH_BYTES];
    up->next_kept = true;
    LH_TRY(dp_path(next, NEXT_TOPOLOGY, up->dir));
    LH_TRY(dp_path(kept, "%s/topology.yaml", up->dir));
    return rename(next, kept) ? lh_fail_errno(errno, "%s", kept) : LH_OK;
}

// Compares the folder's topology file with the present one, by meaning. The new one of a run that
// had ended is kept when the run goes on: with --continue stopped before, the same command works.
static LH_MUST lh_err meet_topology(struct dp_up *up, const char *kept, struct lh_span mine)
{
    struct lh_buf theirs = lh_buf(TOPOLOGY_BYTES_MAX);
    struct dp_topology *was = NULL;
    struct dp_changes changes = {0};
    char next[DP_PATH_BYTES];
    LH_TRY(dp_path(next, NEXT_TOPOLOGY, up->dir));
    lh_err err = dp_file_read(kept, &theirs);
    bool same = !err && !up->flags.go_on && lh_span_equal(mine, lh_buf_span(&theirs));
    if (!err && !same) err = parse_kept(kept, lh_buf_span(&theirs), &was);
    if (!err && !same) err = dp_changes_find(was, up->t, &changes);
    if (!err && !same) err = take_changes(up, was, &changes);
    if (!err && !same) err = dp_file_write(up->flags.go_on ? next : kept, mine, 0640);
    dp_changes_free(&changes);
    dp_topology_free(was);
    lh_buf_free(&theirs);
    return err;
}

static LH_MUST lh_err same_topology(struct dp_up *up, const char *kept)
{
    struct lh_buf mine = lh_buf(TOPOLOGY_BYTES_MAX);
    lh_err err = dp_file_read(up->flags.topology, &mine);
    if (!err)
        err = dp_file_exists(kept) ? meet_topology(up, kept, lh_buf_span(&mine))
              : up->flags.go_on    ? check_over(up, "", false)
                                   : dp_file_write(kept, lh_buf_span(&mine), 0640);
    lh_buf_free(&mine);
    return err;
}

static LH_MUST lh_err absolute(const char *path, char out[DP_PATH_BYTES])
{
    char *real = realpath(path, NULL);
    if (!real) return lh_fail_errno(errno, "%s", path);
    lh_err err = dp_path(out, "%s", real);
    free(real);
    return err;
}

lh_err dp_dir_data(const struct dp_up *up, unsigned region, char out[DP_PATH_BYTES])
{
    const struct dp_region *r = &up->t->region[region];
    if (!r->data[0]) return dp_path(out, "%s", up->data);
    if (up->places.elsewhere) return dp_path(out, "%s", r->data);
    lh_err err = absolute(r->data, out);
    return err ? lh_fail(err, "%s: regions.%s.data: %s", up->flags.topology, r->name,
                         lh_err_text(err))
               : LH_OK;
}

void dp_dir_close(struct dp_up *up)
{
    if (up->lock > 0) close(up->lock);
    up->lock = 0;
}

// One `up` per folder: a second one would rewrite the settings of the first one's nodes. The lock
// ends with this process, however it ends; children do not inherit it.
static LH_MUST lh_err lock_folder(struct dp_up *up)
{
    dp_dir_close(up);
    up->lock = open(up->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (up->lock < 0) return lh_fail_errno(errno, "%s", up->dir);
    if (!flock(up->lock, LOCK_EX | LOCK_NB)) return LH_OK;
    if (errno != EWOULDBLOCK) return lh_fail_errno(errno, "%s: no lock", up->dir);
    return lh_fail(LH_ERR_EXISTS,
                   "a run goes on in %s already (`longhaul top --dir %s` shows it): use another "
                   "--dir for this one",
                   up->dir, up->dir);
}

lh_err dp_dir_open(struct dp_up *up)
{
    char path[DP_PATH_BYTES];
    if (up->flags.dir)
        LH_TRY(dp_path(path, "%s", up->flags.dir));
    else
        LH_TRY(dp_path(path, "run/%s", up->t->run->run));
    LH_TRY(dp_make_dirs(path));
    LH_TRY(absolute(path, up->dir)); // children may have another working directory
    LH_TRY(lock_folder(up));
    LH_TRY(dp_path(path, "%s/topology.yaml", up->dir));
    LH_TRY(same_topology(up, path));
    LH_TRY(dp_dir_list(up));
    for (unsigned i = 0; i < up->nodes; i++) LH_TRY(dp_make_dirs(up->node[i].dir));
    return LH_OK;
}

lh_err dp_dir_own_data(struct dp_up *up)
{
    char path[DP_PATH_BYTES];
    struct lh_unit unit = {.file = "none.bin", .language = "none", .tokens = 1, .may_leave = true};
    const struct lh_units none = {
        .unit = &unit, .count = 1, .vocabulary = 2, .token_bytes = sizeof(uint16_t)};
    snprintf(unit.home, sizeof unit.home, "%s", up->t->region[0].name);
    struct lh_buf json = lh_buf(4096);
    memcpy(up->data, up->dir, sizeof up->data);
    LH_TRY(dp_path(path, "%s/units.json", up->dir));
    lh_err err = lh_units_write(&none, &json);
    if (!err) err = lh_buf_err(&json);
    if (!err) err = dp_file_write(path, lh_buf_span(&json), 0640);
    lh_buf_free(&json);
    return err ? err : dp_units_load(up->data, &up->units);
}

// ---------------------------------------------------------------- secrets and model files

// A certificate and its key; an `up` that was killed may have made only one of them.
static LH_MUST lh_err has_pair(const char *secrets, const char *name, bool *both)
{
    char cert[DP_PATH_BYTES], key[DP_PATH_BYTES];
    LH_TRY(dp_path(cert, "%s/%s.pem", secrets, name));
    LH_TRY(dp_path(key, "%s/%s.key", secrets, name));
    *both = dp_file_exists(cert) && dp_file_exists(key);
    return LH_OK;
}

static LH_MUST lh_err issue(const struct dp_up *up, enum lh_role role, unsigned region,
                            const char *name, const char *secrets)
{
    struct lh_peer peer = {.role = role};
    bool whole;
    LH_TRY(has_pair(secrets, name, &whole));
    if (whole) return LH_OK;
    snprintf(peer.domain, sizeof peer.domain, "%s", LH_DOMAIN_DEFAULT);
    snprintf(peer.run, sizeof peer.run, "%s", up->t->run->run);
    snprintf(peer.region, sizeof peer.region, "%s", up->t->region[region].name);
    snprintf(peer.name, sizeof peer.name, "%s", name);
    return lh_certs_issue(secrets, &peer, CERT_DAYS, secrets, true);
}

// Makes each server's signing key for checkpoints, and the list of the public keys.
static LH_MUST lh_err make_signers(const struct dp_up *up, const char *secrets)
{
    char path[DP_PATH_BYTES];
    struct lh_buf all = lh_buf(1 << 16), one = lh_buf(4096);
    lh_err err = LH_OK;
    for (unsigned i = 0; !err && i < up->nodes; i++) {
        if (up->node[i].kind != DP_SERVER) continue;
        err = dp_path(path, "%s/%s.sign", secrets, up->node[i].name);
        if (!err && !dp_file_exists(path)) err = lh_sign_generate(path, up->node[i].name);
        if (!err) err = dp_path(path, "%s/%s.sign.pub", secrets, up->node[i].name);
        if (!err) err = dp_file_read(path, &one);
        lh_put(&all, one.data, one.len);
    }
    if (!err) err = lh_buf_err(&all);
    if (!err) err = dp_path(path, "%s/signers", secrets);
    if (!err) err = dp_file_write(path, lh_buf_span(&all), 0640);
    lh_buf_free(&all);
    lh_buf_free(&one);
    return err;
}

// Another one in its place would spoil the run.
static LH_MUST lh_err must_be_there(const char *path, const char *why)
{
    if (dp_file_exists(path)) return LH_OK;
    return lh_fail(LH_ERR_NOT_FOUND,
                   "%s is gone, and %s: put it back from a copy, or use another --dir for another "
                   "run",
                   path, why);
}

// Makes what all certificates and seals rest on. `issued`: there are certificates, so all of it was
// made; of the CA they need the certificate alone.
static LH_MUST lh_err make_roots(const struct dp_up *up, const char *secrets, bool issued)
{
    char keys[DP_PATH_BYTES], ca[DP_PATH_BYTES];
    bool whole;
    LH_TRY(dp_path(keys, "%s/job.keys", secrets));
    LH_TRY(dp_path(ca, "%s/ca.pem", secrets));
    if (issued) {
        LH_TRY(must_be_there(ca, "the run's certificates are void without it"));
        return must_be_there(keys, "the run's logs and checkpoints are sealed with it");
    }
    LH_TRY(has_pair(secrets, "ca", &whole));
    if (!whole) LH_TRY(lh_certs_ca_create(secrets, LH_DOMAIN_DEFAULT, CERT_DAYS, true));
    LH_TRY(make_signers(up, secrets));
    return dp_file_exists(keys) ? LH_OK : lh_key_generate(keys);
}

static LH_MUST lh_err prepare_secrets(struct dp_up *up)
{
    static const enum lh_role roles[] = {LH_C, LH_S, LH_W, LH_W};
    char secrets[DP_PATH_BYTES], first[DP_PATH_BYTES];
    LH_TRY(dp_path(secrets, "%s/secrets", up->dir));
    LH_TRY(dp_path(first, "%s/%s.pem", secrets, up->node[0].name));
    LH_TRY(make_roots(up, secrets, dp_file_exists(first)));
    for (unsigned i = 0; i < up->nodes; i++) {
        const struct dp_node *node = &up->node[i];
        if (node->kind >= DP_RANK) continue; // uses its worker's certificate, or none
        if (!strcmp(node->name, ADMIN))
            return lh_fail(LH_ERR_CONFIG, "a node can't be named %s: the operator has that name",
                           ADMIN);
        LH_TRY(issue(up, roles[node->kind], node->region, node->name, secrets));
    }
    // for `longhaul get` and related commands
    return issue(up, LH_A, up->t->coordinator, ADMIN, secrets);
}

static LH_MUST lh_err first_values(const struct dp_up *up, float **out)
{
    char path[DP_PATH_BYTES];
    uint64_t values = up->manifest.values;
    if (up->t->run->model.import[0]) {
        char state[DP_STATE_BYTES];
        LH_TRY(dp_path(path, "%s/final.bin", up->model));
        dp_run_state(up->model, state);
        if (dp_file_exists(path)) { // the folder of an ended run
            dp_note_gone_on("up", up->model, path);
            return dp_floats_load(path, values, out);
        }
        if (state[0])
            return lh_fail(LH_ERR_CONFIG,
                           "model.import: the run in %s has not ended: let it end first, or import "
                           "what `longhaul export` makes of its servers' directories",
                           up->model);
        LH_TRY(dp_path(path, "%s/weights.bin", up->model));
        return dp_floats_load(path, values, out);
    }
    *out = malloc(values * sizeof **out);
    return *out ? wk_model_init(&up->shape, (uint64_t)up->t->run->seed, *out)
                : lh_fail(LH_ERR_NO_MEMORY, "no memory for the parameters");
}

static LH_MUST lh_err write_weights(const struct dp_up *up, const char *path)
{
    uint64_t values = up->manifest.values;
    float *theta = NULL;
    struct lh_buf bytes = lh_buf(values * sizeof(float));
    lh_err err = first_values(up, &theta);
    for (uint64_t i = 0; !err && i < values; i++) lh_put_f32(&bytes, theta[i]);
    if (!err) err = lh_buf_err(&bytes);
    if (!err) err = dp_file_write(path, lh_buf_span(&bytes), 0640);
    lh_buf_free(&bytes);
    free(theta);
    return err;
}

lh_err dp_dir_model_files(struct dp_up *up)
{
    char path[DP_PATH_BYTES];
    LH_TRY(dp_path(path, "%s/model.json", up->dir));
    struct lh_buf json = lh_buf(64 << 20);
    lh_err err = lh_manifest_write(&up->manifest, &json);
    if (!err) err = dp_file_write(path, lh_buf_span(&json), 0640);
    lh_buf_free(&json);
    LH_TRY(err);
    LH_TRY(dp_path(path, "%s/weights.bin", up->dir));
    return dp_file_exists(path) ? LH_OK : write_weights(up, path);
}

lh_err dp_dir_prepare(struct dp_up *up)
{
    LH_TRY(prepare_secrets(up));
    return dp_dir_model_files(up);
}

void dp_dir_forget_ranks(const struct dp_up *up)
{
    for (unsigned i = 0; i < up->nodes; i++) {
        const struct dp_node *node = &up->node[i];
        char name[WK_SHM_NAME_BYTES];
        if (node->kind != DP_WORKER || !dp_region_helpers(&up->t->region[node->region])) continue;
        wk_shm_name(node->dir, name);
        wk_shm_remove(name);
    }
}
