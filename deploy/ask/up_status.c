// Reading status.json. See up_status.h.
#include "deploy/ask/up_status.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/text.h"
#include "common/format/json.h"
#include "deploy/tool/files.h"

// A number that no count can have gives the nearest one.
static uint64_t count_of(double v)
{
    return v >= 0x1p64 ? UINT64_MAX : v > 0 ? (uint64_t)v : 0;
}

static uint64_t count(const json_t *o, const char *key)
{
    return count_of(lh_json_number(o, key));
}

static void text(const json_t *o, const char *key, char *out, size_t size)
{
    snprintf(out, size, "%s", lh_json_word(o, key));
    lh_text_tame(out, strlen(out)); // it is shown on a terminal
}

static void read_holding(const json_t *o, struct dp_holding *out)
{
    const json_t *staleness = json_object_get(o, "staleness");
    *out = (struct dp_holding){
        .shard = (uint32_t)count(o, "shard"),
        .version = count(o, "version"),
        .epoch = count(o, "epoch"),
        .parameters = count(o, "parameters"),
        .admitted = count(o, "admitted"),
        .refused = count(o, "refused"),
        .credited = count(o, "credited"),
        .staleness_p50 = lh_json_number(staleness, "p50"),
        .staleness_p99 = lh_json_number(staleness, "p99"),
        .staleness_max = lh_json_number(staleness, "max"),
        .staleness_bound = lh_json_number(staleness, "bound"),
    };
    text(o, "digest", out->digest, sizeof out->digest);
}

static void read_arrays(const json_t *o, struct dp_status *out)
{
    const json_t *list = json_object_get(o, "digests");
    if (!list) list = json_object_get(o, "shards");
    size_t i;
    const json_t *item;
    json_array_foreach(list, i, item)
    {
        if (out->shards < DP_SHARDS_MAX) read_holding(item, &out->shard[out->shards++]);
    }
    json_array_foreach(json_object_get(o, "workers"), i, item)
    {
        if (json_object_get(item, "left_out") && out->left_outs < DP_LEFT_OUT_MAX)
            text(item, "name", out->left_out[out->left_outs++], sizeof out->left_out[0]);
        if (json_is_true(json_object_get(item, "expelled")) && out->expelleds < DP_LEFT_OUT_MAX)
            text(item, "name", out->expelled[out->expelleds++], sizeof out->expelled[0]);
        if (!strcmp(lh_json_word(item, "member_state"), "stalled") &&
            out->stalleds < DP_LEFT_OUT_MAX) {
            struct dp_stalled *s = &out->stalled[out->stalleds++];
            text(item, "name", s->name, sizeof s->name);
            text(item, "why", s->why, sizeof s->why);
        }
    }
    json_array_foreach(json_object_get(o, "behind"), i, item)
    {
        if (out->behind_count < DP_SHARDS_MAX)
            out->behind[out->behind_count++] = count_of(json_number_value(item));
    }
}

lh_err dp_status_parse(struct lh_span json, struct dp_status *out)
{
    json_error_t why;
    json_t *o = json_loadb((const char *)json.data, json.len, JSON_REJECT_DUPLICATES, &why);
    if (!json_is_object(o)) {
        json_decref(o);
        return lh_fail(LH_ERR_MALFORMED, "status: not a JSON object");
    }
    *out = (struct dp_status){
        .seen = true,
        .pid = (int64_t)count(o, "pid"),
        .loss = lh_json_number(o, "loss"),
        .tokens_per_s = lh_json_number(o, "tokens_per_s"),
        .h = (int64_t)count(o, "h"),
        .disk_full = lh_json_yes(o, "disk_full"),
        .commit_age_s = lh_json_number(o, "commit_age_s"),
        .time_s = (int64_t)count(o, "time_s"),
        .trainer_lives = count(json_object_get(o, "trainer"), "lives"),
        .trainer_cuts = count(json_object_get(o, "trainer"), "cuts"),
        .life_steps = count(json_object_get(o, "trainer"), "life_steps"),
        .life_tokens = count(json_object_get(o, "trainer"), "life_tokens"),
        .trainer_over = lh_json_yes(json_object_get(o, "trainer"), "over"),
        .counts = {.steps = count(o, "step"),
                   .tokens = count(o, "tokens"),
                   .rounds = count(o, "rounds"),
                   .payload_up = count(o, "payload_up_bytes"),
                   .payload_down = count(o, "payload_down_bytes"),
                   .wire_up = count(o, "wire_up_bytes"),
                   .wire_down = count(o, "wire_down_bytes"),
                   .accepted = count(o, "accepted"),
                   .damped = count(o, "damped"),
                   .returned = count(o, "returned"),
                   .lost_units = count(o, "lost_units"),
                   .plain_up = count(o, "plain_up_bytes"),
                   .stall_s = lh_json_number(o, "stall_s")},
        .credited_tokens = count(o, "credited_tokens"),
        .budget_tokens = count(o, "budget_tokens"),
        .units = count(o, "units"),
        .data_epoch = count(o, "data_epoch"),
        .credited = count(o, "credited"),
        .hears = lh_json_yes(o, "hears"),
        .leads = lh_json_yes(o, "leads") ? count(json_object_get(o, "leader"), "number") : 0,
        .draining = lh_json_yes(o, "draining"),
        .ending = lh_json_yes(o, "ending"),
    };
    text(json_object_get(o, "trainer"), "life", out->trainer_life, sizeof out->trainer_life);
    text(o, "role", out->role, sizeof out->role);
    text(o, "region", out->region, sizeof out->region);
    text(o, "name", out->name, sizeof out->name);
    text(o, json_object_get(o, "phase") ? "phase" : "state", out->state, sizeof out->state);
    read_arrays(o, out);
    json_decref(o);
    return LH_OK;
}

lh_err dp_status_read(const char *dir, struct dp_status *out)
{
    char path[DP_PATH_BYTES];
    LH_TRY(dp_path(path, "%s/status.json", dir));
    struct lh_buf bytes = lh_buf(DP_STATUS_BYTES_MAX);
    lh_err err = dp_file_read(path, &bytes);
    if (!err) err = dp_status_parse(lh_buf_span(&bytes), out);
    lh_buf_free(&bytes);
    return err;
}

void dp_run_state(const char *dir, char out[DP_STATE_BYTES])
{
    static const char *const names[] = {"coordinator", DP_STANDBY_NAME};
    uint64_t leads = 0;
    out[0] = 0;
    for (size_t i = 0; i < LH_COUNT(names); i++) {
        struct dp_status is = {0};
        char path[DP_PATH_BYTES];
        lh_err err = dp_path(path, "%s/%s", dir, names[i]);
        if (!err) err = dp_status_read(path, &is);
        if (err || !strcmp(is.state, "standby") || (out[0] && is.leads <= leads)) continue;
        memcpy(out, is.state, sizeof is.state);
        leads = is.leads;
    }
}

void dp_note_gone_on(const char *command, const char *dir, const char *parameters)
{
    char state[DP_STATE_BYTES];
    dp_run_state(dir, state);
    if (state[0] && strcmp(state, "ended") != 0)
        fprintf(stderr,
                "longhaul %s: %s is from the run's last end, and the run has gone on since; "
                "`longhaul export` makes a later version of its servers' directories\n",
                command, parameters);
}

// ---------------------------------------------------------------- lives

// One counter: the sum of earlier processes, plus the value now.
static uint64_t carry(uint64_t *past, uint64_t *last, uint64_t now, bool reborn)
{
    if (reborn) *past += *last;
    *last = now;
    return *past + now;
}

// A new worker process counts the trainer's life from its beginning, although the previous process
// counted a part: subtracts that part.
static void count_once(struct dp_lives *lives, const struct dp_status *status)
{
    if (!status->trainer_life[0]) return; // no trainer has greeted this process yet
    if (lives->reborn && !strcmp(lives->life, status->trainer_life)) {
        lives->past.steps -= lives->life_steps;
        lives->past.tokens -= lives->life_tokens;
    }
    lives->reborn = false;
    snprintf(lives->life, sizeof lives->life, "%s", status->trainer_life);
    lives->life_steps = status->life_steps;
    lives->life_tokens = status->life_tokens;
}

void dp_lives_see(struct dp_lives *lives, const struct dp_status *status, struct dp_counts *total)
{
    const struct dp_counts *now = &status->counts;
    bool reborn = lives->pid && lives->pid != status->pid;
    lives->reborn |= reborn;
    lives->pid = status->pid;
#define CARRY(field)                                                                               \
    total->field = carry(&lives->past.field, &lives->last.field, now->field, reborn)
    CARRY(steps);
    CARRY(tokens);
    CARRY(rounds);
    CARRY(payload_up);
    CARRY(payload_down);
    CARRY(wire_up);
    CARRY(wire_down);
    CARRY(damped);
    CARRY(returned);
    CARRY(lost_units);
    CARRY(plain_up);
#undef CARRY
    total->accepted = lives->last.accepted =
        now->accepted; // the logs' count, already over all processes
    if (reborn) lives->past.stall_s += lives->last.stall_s;
    lives->last.stall_s = now->stall_s;
    total->stall_s = lives->past.stall_s + now->stall_s;
    count_once(lives, status);
    total->steps = lives->past.steps + now->steps;
    total->tokens = lives->past.tokens + now->tokens;
}
