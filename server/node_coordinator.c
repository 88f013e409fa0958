// The coordinator's part of longhaul-server's process: its configuration from the settings, and
// where its store is in etcd, its lead. See node_parts.h.
#include <stdio.h>
#include <string.h>

#include "common/app/status.h"
#include "common/app/units_file.h"
#include "common/format/json.h"
#include "common/net/grpc/transport_grpc.h"
#include "server/coordinator/store/number.h"
#include "server/node_parts.h"
#include "server/privacy.h"

enum {
    STALENESS_PER_LIVE = 4, // a push staler than this times the live workers is refused
    DRAIN_ROUNDS = 4,       // rounds of the slowest worker that makes progress
    // A run has 1,024 names of workers. Once seven eighths are taken, names that were unused for a
    // week are retired, and their directories are refused.
    RETIRE_S = 7 * 24 * 3600,
};
static const float DAMPING = 0.5f; // a of the weight (1 + staleness)^-a of an arrival

// ---------------------------------------------------------------- what it needs

lh_err ps_node_read_units(const char *key, const char *path, struct lh_units *out)
{
    lh_err err = lh_units_open(path, out);
    return err ? lh_fail(err, "%s: %s: %s", key, path, lh_err_text(err)) : LH_OK;
}

void ps_node_start_again(void *arg)
{
    struct ps_node *n = arg;
    n->again = !n->program->ended; // not where it was asked to end before
    lh_program_end(n->program, LH_OK);
}

static uint32_t fixed_h(void *arg, const char *region)
{
    return ps_settings_h(arg, region);
}

static bool region_data(void *arg, const char *region, enum lh_data *out)
{
    *out = ps_settings_data(arg, region);
    return true;
}

static uint32_t epochs_of(const struct ps_settings *s)
{
    return s->node.run.epochs ? (uint32_t)s->node.run.epochs : 1;
}

static void tell(void *arg, json_t *status)
{
    lh_status_tell(arg, status);
}

static LH_MUST lh_err load_units(struct ps_node *n)
{
    char path[LH_PATH_BYTES];
    LH_TRY(lh_units_find(n->program->env, n->program->log, n->settings->node.data.units,
                         n->settings->node.dir, path));
    LH_TRY(ps_node_read_units("data.units", path, &n->units));
    lh_err err = lh_units_check_epochs(&n->units, epochs_of(n->settings));
    return err ? lh_fail(err, "%s: %s", n->settings->node.data.units, lh_err_text(err)) : LH_OK;
}

static struct ps_co_balance_conf balance_of(int rule)
{
    static const struct ps_co_balance_conf of[] = {
        [PS_RULE_FINISH] = {true, PS_BALANCE_FINISH},
        [PS_RULE_WEIGHTED] = {true, PS_BALANCE_WEIGHTED},
        [PS_RULE_LEVEL] = {false, PS_BALANCE_FINISH},
    };
    return of[rule];
}

// Runs on the hook lane.
static int64_t call_supplier(void *arg, const struct ps_co_scale_wish *wish,
                             const atomic_bool *stop, struct ps_co_call_end *end)
{
    const struct ps_node *n = arg;
    char run[160], region[32 + LH_NAME_BYTES], wanted[48], present[48];
    snprintf(run, sizeof run, "LONGHAUL_RUN=%s", n->program->peer.run);
    snprintf(region, sizeof region, "LONGHAUL_REGION=%s", wish->region);
    snprintf(wanted, sizeof wanted, "LONGHAUL_WANTED=%u", wish->wanted);
    snprintf(present, sizeof present, "LONGHAUL_PRESENT=%u", wish->present);
    char *const extra[] = {run, region, wanted, present, NULL};
    struct ps_command_end is;
    ps_command_run(&n->scale_command, n->program->env, extra, lh_span(NULL, 0),
                   LH_SUPPLIER_MS * LH_MS, stop, &is);
    ps_hook_tell_end(&is, LH_SUPPLIER_MS, end);
    return 0;
}

static LH_MUST lh_err load_hook(struct ps_node *n)
{
    struct ps_hook_call *h = &n->hook;
    const char *path = n->settings->coordinator.hook_secret;
    h->env = n->program->env;
    h->run = n->program->peer.run;
    h->url = n->settings->coordinator.hook_url;
    LH_TRY(ps_command_parse(n->settings->coordinator.hook_command, &h->command));
    if (!path[0]) return LH_OK;
    lh_err err = lh_hmac_load(path, &h->secret);
    return err ? lh_fail(err, "coordinator.hook_secret: %s", lh_err_text(err)) : LH_OK;
}

// Room of this machine for rules: false before the first look at it.
static bool tell_machine(void *arg, double *disk_free, double *certificate_s)
{
    const struct ps_node *n = arg;
    const struct lh_program *p = n->program;
    if (!p->limits.disk_free || !p->limits.certificate_ends_s) return false;
    *disk_free = (double)p->limits.disk_free;
    *certificate_s = (double)(p->limits.certificate_ends_s - p->env->ops->wall_s(p->env));
    return true;
}

static bool leads(void *arg)
{
    return ps_lead_holds(((struct ps_node *)arg)->lead);
}

// A coordinator whose store does not answer, or that another one replaced, stands by.
static void coordinator_fatal(void *arg, lh_err err, const char *text)
{
    struct ps_node *n = arg;
    if (n->lead && lh_err_class(err) == LH_CLASS_RETRY)
        ps_node_start_again(n);
    else
        lh_program_fatal(n->program, err, text);
}

// Takes `store`, of the leader with this number.
static LH_MUST lh_err start_coordinator(struct ps_node *n, struct ps_store *store, uint64_t number)
{
    struct lh_program *p = n->program;
    const struct ps_settings *s = n->settings;
    bool told = n->hook.command.words || n->hook.url[0];
    struct ps_co_conf conf = {
        .env = p->env,
        .transport = p->transport,
        .log = p->log,
        .audit = n->audit,
        .self = p->peer,
        .dir = s->node.dir,
        .store = store,
        .leads = n->lead ? leads : NULL,
        .leads_arg = n,
        .listen = ps_is_shard(s) ? "" : s->listen,
        .manifest = &p->manifest,
        .units = &n->units,
        .servers = s->coordinator.servers,
        .workers = (uint32_t)s->coordinator.workers,
        .worker_timeout_ns = s->coordinator.worker_timeout_s * LH_SECOND,
        .worker_timeout_max_ns = LH_SILENT_MAX_MS * LH_MS,
        .tick_ns = 250 * LH_MS,
        .stall_floor_ns = s->coordinator.stall_floor_s * LH_SECOND,
        .stall_rounds = s->coordinator.stall_rounds,
        .retire_ns = RETIRE_S * LH_SECOND,
        .drain_floor_ns = s->coordinator.stall_floor_s * LH_SECOND,
        .drain_rounds = DRAIN_ROUNDS,
        .take_over_ns = s->coordinator.take_over_ms * LH_MS,
        .take_over_max_ns = LH_TAKE_OVER_MAX_MS * LH_MS,
        .ride_out_ns = s->coordinator.ride_out_s * LH_SECOND,
        .balance = balance_of(s->coordinator.balance),
        .links = {.terms = &n->terms, .affinity = s->coordinator.affinity},
        .budget_tokens = (uint64_t)s->node.run.budget_tokens,
        .epochs = epochs_of(s),
        .seed = (uint64_t)s->node.run.seed,
        .scale = {.schedule = &n->schedule,
                  .call = n->scale_command.words ? call_supplier : NULL,
                  .arg = n,
                  .every_ns = LH_SUPPLIER_EVERY_MS * LH_MS},
        .hook = {.call = told ? ps_hook_call : NULL, .arg = &n->hook, .run = p->peer.run},
        .rules = &n->rules,
        .machine = tell_machine,
        .machine_arg = n,
        .tell = tell,
        .tell_arg = n->program,
        .data = ps_settings_data(s, ""),
        .region_data = region_data,
        .region_data_arg = (void *)(uintptr_t)s, // only read
        .step_tokens = (uint64_t)s->coordinator.step_tokens,
        .h_base = ps_settings_h_base(s),
        .dylu = s->coordinator.cadence != PS_CADENCE_FIXED,
        .by_link = s->coordinator.cadence == PS_CADENCE_LINK,
        .staged = s->coordinator.cadence == PS_CADENCE_STAGED,
        .fixed_h = fixed_h,
        .fixed_h_arg = (void *)(uintptr_t)s, // only read
        .plan = {.mode = (uint8_t)s->update.mode,
                 .weighting = (uint8_t)s->update.weighting,
                 .eta = s->update.eta > 0 ? (float)s->update.eta : 1,
                 .damping = DAMPING,
                 .staleness_per_live = STALENESS_PER_LIVE,
                 .optimizer = (uint8_t)s->update.optimizer,
                 .momentum = (float)ps_momentum(s),
                 .effective_step_max = s->update.optimizer ? (float)PS_EFFECTIVE_STEP_MAX : 0,
                 .privacy = ps_privacy_terms(s)},
        .fatal = coordinator_fatal,
        .fatal_arg = n,
    };
    memcpy(conf.job, p->job, LH_JOB_BYTES);
    lh_transport_grpc_leads(p->transport, number);
    LH_TRY(ps_coordinator_start(&conf, &n->coordinator));
    if (!ps_is_shard(s)) lh_program_listening(ps_coordinator_address(n->coordinator));
    return LH_OK;
}

// ---------------------------------------------------------------- the lead

// A coordinator on a file leads alone. It has a number because the run may have come from an etcd,
// or may go on elsewhere with a copy of the file.
static LH_MUST lh_err start_on_file(struct ps_node *n)
{
    struct lh_env *env = n->program->env;
    struct ps_store *store;
    uint64_t number;
    LH_TRY(ps_store_open(env, n->settings->node.dir, &store));
    lh_err err = ps_store_number(env, store, &number);
    if (!err || err == LH_ERR_DISK_FULL) return start_coordinator(n, store, number);
    ps_store_close(store);
    return err;
}

static void on_leads(void *arg, struct ps_store *store)
{
    struct ps_node *n = arg;
    lh_err err = start_coordinator(n, store, ps_lead_number(n->lead));
    if (err) lh_program_fatal(n->program, err, lh_err_text(err));
}

static void on_end_of_lead(void *arg, lh_err err)
{
    struct ps_node *n = arg;
    lh_logf(n->program->log, LH_WARN, "lead.end", "%s", lh_err_text(err));
    coordinator_fatal(n, err, lh_err_text(err));
}

lh_err ps_node_start_coordinator(struct ps_node *n)
{
    const struct ps_settings *s = n->settings;
    LH_TRY(load_units(n));
    LH_TRY(ps_schedule_parse(s->coordinator.scale,
                             &n->schedule)); // The check of the settings parsed it, too.
    LH_TRY(ps_terms_parse(s->coordinator.links, &n->terms));
    LH_TRY(ps_terms_check(&n->terms, &n->units));
    LH_TRY(ps_command_parse(s->coordinator.scale_command, &n->scale_command));
    LH_TRY(ps_rules_parse(s->coordinator.rules, &n->rules)); // as the settings' check did
    LH_TRY(load_hook(n));
    if (!s->coordinator.store[0]) return start_on_file(n);
    const struct ps_lead_conf conf = {.env = n->program->env,
                                      .log = n->program->log,
                                      .store = s->coordinator.store,
                                      .secrets = s->coordinator.store_secrets,
                                      .run = n->program->peer.run,
                                      .dir = s->node.dir,
                                      .name = n->program->peer.name,
                                      .address = s->advertise[0] ? s->advertise : s->listen,
                                      .leads = on_leads,
                                      .ends = on_end_of_lead,
                                      .arg = n};
    lh_err err = ps_lead_start(&conf, &n->lead);
    return err ? lh_fail(err, "coordinator.store: %s", lh_err_text(err)) : LH_OK;
}

lh_err ps_node_lead_status(struct ps_node *n, struct lh_buf *out)
{
    size_t from = out->len;
    json_t *root;
    if (n->coordinator) {
        LH_TRY(ps_coordinator_durable_status(n->coordinator, out));
        root = json_loadb((const char *)out->data + from, out->len - from, 0, NULL);
        out->len = from;
    } else {
        const struct ps_settings *s = n->settings;
        root = json_pack("{s:s s:s s:b s:s}", "role", "coordinator", "phase", "standby", "ready", 0,
                         "address", s->advertise[0] ? s->advertise : s->listen);
    }
    lh_err err = root ? ps_lead_status(n->lead, root) : LH_ERR_NO_MEMORY;
    if (!err) return lh_json_give(root, out);
    json_decref(root);
    return err;
}
