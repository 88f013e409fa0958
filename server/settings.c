// The table of server.yaml, and checks that involve several of its rows. See settings.h.
#include "server/settings.h"

#include <stdlib.h>
#include <string.h>

#include "common/format/plan.h"
#include "common/objects/objects.h"
#include "common/security/identity.h"
#include "server/command.h"
#include "server/coordinator/balance/terms.h"
#include "server/coordinator/owners/rights.h"
#include "server/coordinator/schedule.h"
#include "server/coordinator/watch/rules_text.h"
#include "server/coordinator/watch/hook_call.h"
#include "server/privacy.h"

#define T struct ps_settings
#define GIB 1073741824.0

// clang-format off
static const struct lh_config_row rows[] = {
    LH_NODE_ROWS(T, node),
    LH_CONFIG_ROW_ENUM(T, user, "role", role, "shard", "shard|coordinator|both|standby",
        "What this process is: owner of shards, coordinator of the run, both, or a standby that "
        "follows the owner of its shards and takes them over when that falls silent"),
    LH_CONFIG_ROW_STRING(T, user, "listen", listen, NULL,
        "Address to listen on, host:port; port 0 takes a free one"),
    LH_CONFIG_ROW_STRING(T, rare, "advertise", advertise, "",
        "Address that others dial, host:port; empty: the bound address"),
    LH_CONFIG_ROW_INTS(T, user, "shards", shards, "", 0, 4095, NULL, "Shards this server owns"),
    LH_CONFIG_ROW_STRING(T, user, "model.weights", weights, "",
        "Initial parameters of the whole model, fp32 in the manifest's order; read at first start"),

    LH_CONFIG_ROW_FLOAT(T, rare, "update.eta", eta, "auto", 0, 10, NULL, "auto=0",
        "Outer learning rate; auto: 1; `longhaul up` writes up to 2 for densities under 10 %, "
        "up to 3 under 3 %"),
    LH_CONFIG_ROW_INT(T, rare, "update.staleness_max_per_worker", staleness_max_per_worker, "4", 1,
        1000,
        "pushes", NULL, "A push staler than this times the live workers is refused"),
    LH_CONFIG_ROW_ENUM(T, user, "update.mode", mode, "async", "async|bsp",
        "Apply pushes as they arrive, or wait for one of every worker"),
    LH_CONFIG_ROW_ENUM(T, rare, "update.weighting", weighting, "equal", "equal|tokens",
        "Regions count equally, or by the tokens they trained"),
    LH_CONFIG_ROW_FLOAT(T, rare, "update.norm_gate", norm_gate, "10", 0, 1e6, NULL, "off=0",
        "A push whose norm is over this times what workers push, by their medians at equal H, is "
        "clipped to that"),
    LH_CONFIG_ROW_ENUM(T, user, "update.optimizer", optimizer, "sgd", "sgd|delayed-nesterov",
        "Outer optimizer: plain steps as pushes arrive; or these and momentum after every few "
        "pushes, for dense pushes at large H, which keeps 8 bytes a parameter on servers and "
        "workers"),
    LH_CONFIG_ROW_FLOAT(T, rare, "update.momentum", momentum, "auto", 0, 0.99, NULL, "auto=-1",
        "Momentum of the outer optimizer; auto: 0.6 with delayed-nesterov, else 0"),

    LH_CONFIG_ROW_INT(T, user, "checkpoint.every_versions", checkpoint_every_versions, "500", 0,
        1e9,
        "versions", "off=0", "Most versions between two checkpoints of a shard; they come earlier "
        "where folding the log above one again would take 2 s. off: there are none"),
    LH_CONFIG_ROW_INT(T, rare, "checkpoint.keep", checkpoint_keep, "2", 2, 100, NULL, NULL,
        "Checkpoints that are kept, of each kind; the log is trimmed below the oldest whole one"),
    LH_CONFIG_ROW_SECRET(T, rare, "checkpoint.sign_key", checkpoint_sign_key,
        "LONGHAUL_CHECKPOINT_SIGN_KEY",
        "File of this server's signing key (longhaul certs signer); empty: nothing is signed"),
    LH_CONFIG_ROW_STRING(T, rare, "checkpoint.signers", checkpoint_signers, "",
        "File of public keys: this server starts only from checkpoints that one of them signed; "
        "empty: from any that the job keys open"),
    LH_CONFIG_ROW_STRING(T, rare, "checkpoint.store", checkpoint_store, "",
        "Where the newest checkpoints are stored as well, beside training: s3://BUCKET/PREFIX, the "
        "same for all servers of a run, or file:///FOLDER; empty: nowhere"),
    LH_CONFIG_ROW_STRING(T, rare, "checkpoint.store_endpoint", store_endpoint, "",
        "URL of the S3 store, such as https://s3.example.org:9000; empty: AWS_ENDPOINT_URL_S3, "
        "AWS_ENDPOINT_URL, or Amazon's of AWS_REGION"),
    LH_CONFIG_ROW_STRING(T, rare, "checkpoint.store_credentials", store_credentials, "",
        "File of the store's access key, of its owner alone to read, as ~/.aws/credentials is; "
        "empty: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or that file"),

    LH_CONFIG_ROW_ENUM(T, user, "acknowledge", acknowledge, "durable", "durable|replicated",
        "A push is acknowledged when it is durable here, or when a standby holds it durably too, "
        "while one is in sync"),

    LH_CONFIG_ROW_ENUM(T, user, "rebuild.damaged", rebuild_damaged, "refuse", "refuse|followers",
        "A log that is damaged below what was acknowledged: refuse to start, or set it aside and "
        "rebuild the shards from their followers. An empty directory is always rebuilt"),
    LH_CONFIG_ROW_DURATION(T, rare, "rebuild.grace_s", rebuild_grace_s, "30", 1, 86400, "s",
        "How long a rebuild waits for workers that are there to say what they hold"),
    LH_CONFIG_ROW_INT(T, rare, "rebuild.voices", rebuild_voices, "2", 1, 64, "regions", NULL,
        "Regions whose workers must hold the same state before a rebuild takes it; of a run with "
        "fewer regions, all of them. Else an operator chooses: longhaul adopt --state. Set 1 where "
        "all regions are yours"),
    LH_CONFIG_ROW_BOOL(T, rare, "rebuild.below_stable", rebuild_below_stable, "false",
        "Give up what only lost copies held: a shard may begin anew below its stable point"),

    LH_CONFIG_ROW_INT(T, user, "coordinator.workers", coordinator.workers, "1", 1, 1024, NULL, NULL,
        "Workers that the run starts with; it waits for them"),
    LH_CONFIG_ROW_DURATION(T, rare, "coordinator.worker_timeout_s", coordinator.worker_timeout_s,
        "15", 1,
        86400, "s", "A worker that was silent this long is no longer counted as live, and its "
        "units go to others; a long path adds eight of its retransmission timeouts"),
    LH_CONFIG_ROW_DURATION(T, rare, "coordinator.stall_floor_s", coordinator.stall_floor_s, "30", 1,
        86400, "s", "A worker whose trainer makes no step for so long, or of which a shard admits "
        "no push for so long, is stalled: others train its units. Ten times that before its first "
        "step or decided push"),
    LH_CONFIG_ROW_FLOAT(T, rare, "coordinator.stall_rounds", coordinator.stall_rounds, "4", 1, 1000,
        "rounds", NULL, "The same, in rounds of that worker (its step time x its local steps): the "
        "longer of the two counts"),
    LH_CONFIG_ROW_DURATION(T, rare, "coordinator.drain_floor_s", coordinator.drain_floor_s, "30", 1,
        86400, "s", "The run's end waits this long for workers that have not drained, or four "
        "rounds of the slowest that makes progress, if that is longer; then it is without them"),
    LH_CONFIG_ROW_DURATION(T, user, "coordinator.take_over_ms", coordinator.take_over_ms, "1000", 0,
        86400000, "ms", "A server that was silent this long is replaced by its standby, where one "
        "is in sync; 0: never. A long path adds eight of its retransmission timeouts"),
    LH_CONFIG_ROW_DURATION(T, rare, "coordinator.ride_out_s", coordinator.ride_out_s, "300", 0,
        86400,
        "s", "Workers hold leases for this long at their measured speed, at most half of what is "
        "left for them, and train on while the coordinator is away; 0: only what they read ahead"),
    LH_CONFIG_ROW_ENUM(T, user, "coordinator.balance", coordinator.balance, "finish",
        "finish|weighted|level", "Who gets which units: by estimated finish, over measured speeds "
        "and links; own ones first, then by 0.6 utilisation + 0.4 network; whoever asks, and who "
        "runs dry gets of the busiest"),
    LH_CONFIG_ROW_STRING(T, rare, "coordinator.links", coordinator.links, "",
        "Bytes of units that may travel from a home region to another in the whole run, as in "
        "asia>africa=50GiB,*>africa=200GiB; the first entry that names a link counts. Not with "
        "balance: level"),
    LH_CONFIG_ROW_FLOAT(T, rare, "coordinator.affinity", coordinator.affinity, "0", 0, 1000, NULL,
        NULL,
        "Share of a unit's training time by which it has to end earlier in a region whose own "
        "units have other languages; 0: languages count for nothing"),
    LH_CONFIG_ROW_STRING(T, rare, "coordinator.scale", coordinator.scale, "",
        "Workers that are wanted from which time of the day on (UTC), as in "
        "22:00=64,06:00=8,asia@22:00=32; without a region: in all. Empty: none are asked for"),
    LH_CONFIG_ROW_STRING(T, rare, "coordinator.scale_command", coordinator.scale_command, "",
        "Command that is run where other than the wanted number of workers is here: words, "
        "separated by blanks, no shell. LONGHAUL_REGION, LONGHAUL_WANTED and LONGHAUL_PRESENT tell "
        "it the figures; empty: nobody is told"),
    LH_CONFIG_ROW_STRING(T, user, "coordinator.hook_command", coordinator.hook_command, "",
        "Command that is run where a worker joins, is suspect, lost, drained, done or live again, "
        "or a rule's alarm begins or ends: words, separated by blanks, no shell. It reads the "
        "change as JSON; empty: nobody is told"),
    LH_CONFIG_ROW_STRING(T, user, "coordinator.hook_url", coordinator.hook_url, "",
        "Webhook: the same changes, and alarms of rules, are sent there as JSON (HTTP POST), as in "
        "https://ops.example/longhaul; empty: none"),
    LH_CONFIG_ROW_SECRET(T, rare, "coordinator.hook_secret", coordinator.hook_secret,
        "LONGHAUL_HOOK_SECRET", "File of the secret that signs what hook_command reads and "
        "hook_url gets (HMAC-SHA256, in LONGHAUL_SIGNATURE or X-Longhaul-Signature); empty: it is "
        "not signed"),
    LH_CONFIG_ROW_STRING(T, user, "coordinator.rules", coordinator.rules, "",
        "Alarms, one a line, that the hook is told and that may pause the run, as in "
        "diverging: loss_rise > 15% and utilisation < 40% for 30s then pause. Metrics: loss, "
        "loss_rise, utilisation, failing, stalled, silent, privacy_spent, disk_free, "
        "certificate_ends"),
    LH_CONFIG_ROW_STRING(T, rare, "coordinator.servers", coordinator.servers, "",
        "Servers of the shards by their certificates, REGION/NAME, the owner first and its "
        "standbys after plus signs, as in 0-3=asia/ps-0+europe/ps-1,4=africa/ps-2. A shard that is "
        "not named belongs to the first server, and the first standby, that reports it. "
        "`longhaul adopt` adds others"),
    LH_CONFIG_ROW_STRING(T, user, "coordinator.data", coordinator.data, "leased",
        "Whose data the workers train: leased, units that the coordinator leases; own, data of "
        "their own; private, the same under differential privacy. Regions may differ, as in "
        "leased,asia=own,europe=private"),
    LH_CONFIG_ROW_INT(T, rare, "coordinator.step_tokens", coordinator.step_tokens, "0", 0, 1e12,
        "tokens",
        NULL, "Most tokens that one step of a worker trains: a push that says more is refused. 0: "
        "twice the most that a worker says, as long as that is no more than 16 times the median"),
    LH_CONFIG_ROW_STRING(T, user, "coordinator.h_base", coordinator.h_base, "8",
        "Local steps per round of the fastest region, from 1 to 300; those of named regions, as in "
        "8,asia=8,europe=4, hold whatever the cadence"),
    LH_CONFIG_ROW_ENUM(T, user, "coordinator.cadence", coordinator.cadence, "speed",
        "speed|link|fixed|staged", "Local steps per round: h_base, fewer for slower regions as "
        "measured (DyLU); link: more where a region's link needs longer than that to exchange a "
        "round; fixed: h_base everywhere; staged: as speed, with half of h_base for about the "
        "first 1,000 steps of the run and twice h_base after 10,000"),

    LH_CONFIG_ROW_ENUM(T, rare, "privacy.level", privacy.level, "none",
        "none|record|region|reported",
        "Where clip and noise of private regions are enforced: for each record by the built-in "
        "trainer, for each push by the worker, or by the loop, as it reports"),
    LH_CONFIG_ROW_FLOAT(T, rare, "privacy.sigma", privacy.sigma, "0", 0, 1e6, NULL, NULL,
        "Standard deviation of the noise over privacy.clip"),
    LH_CONFIG_ROW_FLOAT(T, rare, "privacy.rate", privacy.rate, "1", 1e-9, 1, NULL, NULL,
        "Probability with which a step draws a record; 1 at region level"),
    LH_CONFIG_ROW_FLOAT(T, rare, "privacy.clip", privacy.clip, "0", 0, 1e6, NULL, NULL,
        "Bound of the norm of a record's gradient, or of a push of the whole model"),
    LH_CONFIG_ROW_FLOAT(T, rare, "privacy.epsilon", privacy.epsilon, "0", 0, 1000, NULL, NULL,
        "Epsilon that all steps of a region may cost"),
    LH_CONFIG_ROW_FLOAT(T, rare, "privacy.delta", privacy.delta, "0", 0, 0.1, NULL, NULL,
        "Delta of that epsilon, less than 1 over the number of records"),
    LH_CONFIG_ROW_INT(T, rare, "privacy.steps", privacy.steps, "0", 0, LH_CHARGED_MAX, "steps",
        NULL,
        "Steps that a private region may charge in the run: local steps, at region level pushes "
        "of each shard. At that many it leaves, and the others go on"),
    LH_CONFIG_ROW_INT(T, rare, "privacy.record_tokens", privacy.record_tokens, "1024", 1, 1e9,
        "tokens",
        NULL, "Tokens of a document that are one record; the rest of it is dropped"),
};
// clang-format on

// ---------------------------------------------------------------- values by region

// One entry of a list such as "8,asia=4": a value and its region; "": all other regions.
struct entry {
    char region[LH_NAME_BYTES], value[16];
};

// Takes the next entry of the list. Gives false at the end of the list. For a malformed entry,
// gives false and does not move *at.
static bool next_entry(const char **at, struct entry *e)
{
    const char *from = *at + strspn(*at, " ");
    size_t len = strcspn(from, ","), name = strcspn(from, "=,");
    size_t skip = name < len ? name + 1 : 0;
    *e = (struct entry){.region = ""};
    if (!len || (skip && !name) || name >= sizeof e->region || len - skip >= sizeof e->value)
        return false;
    if (skip) memcpy(e->region, from, name);
    memcpy(e->value, from + skip, len - skip);
    *at = from + len + (from[len] == ',');
    return true;
}

// Reads a value; -1: malformed.
static int64_t steps_of(const char *value)
{
    char *end;
    long h = strtol(value, &end, 10);
    return end > value && !*end && h >= 1 && h <= 300 ? h : -1;
}

static int64_t data_of(const char *value)
{
    static const char *const names[] = {"leased", "own", "private"}; // as enum lh_data
    for (size_t i = 0; i < LH_COUNT(names); i++)
        if (!strcmp(value, names[i])) return (int64_t)i;
    return -1;
}

// Gives the list's value for a region, or for all others (""); -1: the list names none.
static int64_t value_of(const char *list, const char *region, int64_t (*read)(const char *))
{
    struct entry e;
    for (const char *at = list; next_entry(&at, &e);)
        if (!strcmp(e.region, region)) return read(e.value);
    return -1;
}

static LH_MUST lh_err check_list(const char *key, const char *list, int64_t (*read)(const char *),
                                 const char *expected)
{
    struct entry e;
    const char *at = list;
    bool fine = true;
    while (fine && next_entry(&at, &e)) fine = read(e.value) >= 0;
    if (fine && !*at) return LH_OK;
    return lh_fail(LH_ERR_CONFIG, "%s: \"%.100s\" is not valid, expected %s", key, list, expected);
}

uint32_t ps_settings_h_base(const struct ps_settings *s)
{
    int64_t h = value_of(s->coordinator.h_base, "", steps_of);
    return h < 0 ? PS_H_BASE : (uint32_t)h;
}

uint32_t ps_settings_h(const struct ps_settings *s, const char *region)
{
    int64_t h = value_of(s->coordinator.h_base, region, steps_of);
    return h < 0 ? 0 : (uint32_t)h;
}

enum lh_data ps_settings_data(const struct ps_settings *s, const char *region)
{
    int64_t data = value_of(s->coordinator.data, region, data_of);
    if (data < 0) data = value_of(s->coordinator.data, "", data_of);
    return data < 0 ? LH_DATA_LEASED : (enum lh_data)data;
}

bool ps_settings_has_data(const struct ps_settings *s, enum lh_data data)
{
    struct entry e;
    for (const char *at = s->coordinator.data; next_entry(&at, &e);)
        if (data_of(e.value) == (int64_t)data) return true;
    return false;
}

// ---------------------------------------------------------------- checks

static LH_MUST lh_err check_shards(const struct lh_ints *shards)
{
    if (!shards->count)
        return lh_fail(LH_ERR_CONFIG,
                       "shards is empty: a server of role shard, both or standby has some");
    for (uint32_t i = 0; i < shards->count; i++)
        for (uint32_t j = 0; j < i; j++)
            if (shards->value[i] == shards->value[j])
                return lh_fail(LH_ERR_CONFIG, "shards: %lld is given twice",
                               (long long)shards->value[i]);
    return LH_OK;
}

static LH_MUST lh_err check_optimizer(const struct ps_settings *s)
{
    if (s->optimizer == LH_OPT_SGD && s->momentum > 0)
        return lh_fail(LH_ERR_CONFIG,
                       "update.momentum needs update.optimizer: delayed-nesterov; sgd has none");
    if (ps_momentum(s) > 0 && s->eta > PS_EFFECTIVE_STEP_MAX)
        return lh_fail(LH_ERR_CONFIG,
                       "update.eta (%g) is above %g, the bound of the effective step, which no "
                       "momentum can keep: lower it",
                       s->eta, PS_EFFECTIVE_STEP_MAX);
    return LH_OK;
}

double ps_momentum(const struct ps_settings *s)
{
    if (s->momentum >= 0) return s->momentum;
    return s->optimizer == LH_OPT_DELAYED_NESTEROV ? 0.6 : 0;
}

static LH_MUST lh_err check_scale(const struct ps_settings *s)
{
    struct ps_schedule schedule;
    struct ps_command command;
    LH_TRY(ps_schedule_parse(s->coordinator.scale, &schedule));
    lh_err err = ps_command_parse(s->coordinator.scale_command, &command);
    if (err) return lh_fail(err, "coordinator.scale_command: %s", lh_err_text(err));
    if (!command.words || schedule.entries) return LH_OK;
    return lh_fail(LH_ERR_CONFIG, "coordinator.scale_command needs coordinator.scale, which says "
                                  "how many workers are wanted");
}

static LH_MUST lh_err check_hook(const struct ps_settings *s)
{
    struct ps_command command;
    lh_err err = ps_command_parse(s->coordinator.hook_command, &command);
    if (err) return lh_fail(err, "coordinator.hook_command: %s", lh_err_text(err));
    LH_TRY(ps_hook_check_url(s->coordinator.hook_url));
    bool told = command.words || s->coordinator.hook_url[0];
    if (told || !s->coordinator.hook_secret[0]) return LH_OK;
    return lh_fail(LH_ERR_CONFIG, "coordinator.hook_secret needs coordinator.hook_command or "
                                  "hook_url: it signs what these get");
}

static LH_MUST lh_err check_links(const struct ps_settings *s)
{
    struct ps_terms terms;
    LH_TRY(ps_terms_parse(s->coordinator.links, &terms));
    bool finish = s->coordinator.balance == PS_RULE_FINISH;
    if (terms.terms && s->coordinator.balance == PS_RULE_LEVEL)
        return lh_fail(LH_ERR_CONFIG,
                       "coordinator.links needs coordinator.balance: finish or weighted; level "
                       "does not reckon with links");
    if (!finish && s->coordinator.affinity > 0)
        return lh_fail(LH_ERR_CONFIG, "coordinator.affinity needs coordinator.balance: finish");
    return LH_OK;
}

static LH_MUST lh_err check_coordinator(const struct ps_settings *s)
{
    LH_TRY(lh_setting_needed("data.units", s->node.units, "a coordinator"));
    if (!s->node.budget_tokens)
        return lh_fail(LH_ERR_CONFIG, "run.budget_tokens is missing: a coordinator needs "
                                      "it to know when the run ends");
    LH_TRY(check_scale(s));
    struct ps_rules rules;
    LH_TRY(ps_rules_parse(s->coordinator.rules, &rules));
    LH_TRY(check_hook(s));
    LH_TRY(check_links(s));
    LH_TRY(ps_rights_check(s->coordinator.servers));
    LH_TRY(check_list("coordinator.data", s->coordinator.data, data_of,
                      "leased, own or private, and region=leased, region=own or region=private, "
                      "separated by commas"));
    LH_TRY(check_list("coordinator.h_base", s->coordinator.h_base, steps_of,
                      "steps from 1 to 300, and region=steps, separated by commas"));
    return ps_privacy_check(s);
}

static LH_MUST lh_err check_store(const struct ps_settings *s)
{
    if (!s->checkpoint_store[0]) return LH_OK;
    lh_err err = lh_objects_check(s->checkpoint_store);
    if (err) return lh_fail(err, "checkpoint.store: %s", lh_err_text(err));
    if (!s->checkpoint_every_versions)
        return lh_fail(LH_ERR_CONFIG,
                       "checkpoint.store needs checkpoints: checkpoint.every_versions "
                       "is off");
    return LH_OK;
}

static lh_err check(const void *settings)
{
    const struct ps_settings *s = settings;
    LH_TRY(lh_node_check(&s->node));
    LH_TRY(lh_address_check("listen", s->listen, true));
    LH_TRY(check_optimizer(s));
    if (s->advertise[0]) LH_TRY(lh_address_check("advertise", s->advertise, false));
    if (ps_is_coordinator(s)) LH_TRY(check_coordinator(s));
    if (s->node.units[0] && !ps_is_coordinator(s))
        LH_TRY(lh_setting_needed("data.dir", s->node.data_dir, "data.units of a server of shards"));
    if (!ps_is_shard(s) && s->node.data_dir[0])
        return lh_fail(LH_ERR_CONFIG, "data.dir: a server of role coordinator gives no units; set "
                                      "it at one of role shard, standby or both");
    if (!ps_is_shard(s)) return LH_OK;

    LH_TRY(check_shards(&s->shards));
    LH_TRY(check_store(s));
    LH_TRY(lh_setting_needed("seal.keys", s->node.seal_keys, "a server of shards"));
    LH_TRY(lh_setting_needed("model.weights", s->weights, "a server of shards"));
    if (!ps_is_coordinator(s))
        LH_TRY(
            lh_setting_needed("coordinator", s->node.coordinator,
                              s->role == PS_ROLE_STANDBY ? "a standby" : "a server of role shard"));
    return LH_OK;
}

const struct lh_config_table ps_settings_table = {
    .kind = "server",
    .row = rows,
    .rows = sizeof rows / sizeof rows[0],
    .settings_bytes = sizeof(struct ps_settings),
    .check = check,
};
