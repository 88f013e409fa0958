// A run that goes on, as its processes see it. See doctor_run.h.
//
// Each finding names who is concerned and what to do. A run that goes on by itself soon gives a
// warning; what waits for a person is a failure.
#include "deploy/up/doctor_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/format/json.h"
#include "common/format/manifest_pace.h"
#include "deploy/up/up_plan.h"

enum { DAY_S = 86400, CERT_DAYS_LEFT = 14, CLOCK_S = 30, COMMIT_S = 10, STATUS_S = 15 };

// ---------------------------------------------------------------- one process

static void check_certificate(struct dp_check *c, const char *who, const json_t *is)
{
    const json_t *left = json_object_get(is, "certificate_expires_s");
    double days = json_number_value(left) / DAY_S;
    if (!left) return;
    if (days <= 0)
        dp_check_say(c, DP_FAILS,
                     "%s: its certificate has expired: issue a new one (`longhaul certs issue`); "
                     "the process loads the new file by itself",
                     who);
    else if (days < CERT_DAYS_LEFT)
        dp_check_say(c, DP_MAY_FAIL, "%s: its certificate expires in %.1f days: issue a new one",
                     who, days);
}

static void check_room(struct dp_check *c, const char *who, const json_t *is)
{
    char a[16], b[16];
    const json_t *room = json_object_get(is, "disk_free_bytes");
    double needed = 2.0 * LH_SEGMENT_BYTES_MAX, parameters = 0;
    const json_t *shard;
    size_t i;
    json_array_foreach(json_object_get(is, "shards"), i, shard) parameters +=
        lh_json_number(shard, "parameters");
    needed += 4 * parameters; // the next checkpoint
    if (lh_json_yes(is, "disk_full"))
        dp_check_say(
            c, DP_FAILS,
            "%s: its disk is full: free some space, and it goes on (deploy/docs/full-disk.md)",
            who);
    else if (room && json_number_value(room) < needed)
        dp_check_say(c, DP_MAY_FAIL,
                     "%s: %s free on its disk, about %s are needed soon: free some space", who,
                     dp_bytes_text(json_number_value(room), a), dp_bytes_text(needed, b));
    if (lh_json_number(is, "commit_age_s") > COMMIT_S)
        dp_check_say(c, DP_FAILS,
                     "%s: its disk has not finished a write for %.0f s: check the disk", who,
                     lh_json_number(is, "commit_age_s"));
}

static void check_store(struct dp_check *c, const char *who, const json_t *store)
{
    if (lh_json_yes(store, "away"))
        dp_check_say(
            c, DP_FAILS,
            "%s: the store of checkpoints can't be reached (%.0f failures, last upload %.0f s "
            "ago): check the store, its address and the credentials (deploy/docs/store.md)",
            who, lh_json_number(store, "failures"), lh_json_number(store, "age_s"));
}

static void check_units(struct dp_check *c, const char *who, const json_t *loader)
{
    if (lh_json_number(loader, "away_s") > 0)
        dp_check_say(c, DP_FAILS,
                     "%s: the store of units (data.dir) could not be read for %.0f s: check the "
                     "store, its address and the credentials (deploy/docs/store.md)",
                     who, lh_json_number(loader, "away_s"));
}

void dp_check_process(struct dp_check *c, const char *who, const json_t *is)
{
    const char *version = lh_json_word(is, "version");
    check_certificate(c, who, is);
    check_room(c, who, is);
    check_store(c, who, json_object_get(is, "store"));
    check_units(c, who, json_object_get(is, "loader"));
    if (version[0] && strcmp(version, LH_VERSION) != 0)
        dp_check_say(c, DP_MAY_FAIL,
                     "%s: it runs version %s, this tool is version %s: install one version "
                     "everywhere, and restart the older processes",
                     who, version, LH_VERSION);
}

// The process has just answered.
static void check_clock(struct dp_check *c, const char *who, const json_t *is, int64_t now_s)
{
    double apart = lh_json_number(is, "time_s") - (double)now_s;
    if (json_object_get(is, "time_s") && (apart > CLOCK_S || apart < -CLOCK_S))
        dp_check_say(c, DP_MAY_FAIL,
                     "%s: its clock is %.0f s %s this machine's: synchronise both (NTP); "
                     "certificates are checked against it",
                     who, apart > 0 ? apart : -apart, apart > 0 ? "before" : "behind");
}

// ---------------------------------------------------------------- the run

static void check_paused(struct dp_check *c, const json_t *status)
{
    const json_t *paused = json_object_get(status, "paused"), *alarm;
    size_t i;
    if (paused)
        dp_check_say(c, DP_MAY_FAIL, "run: paused by %s (%s): `longhaul resume` lets it go on",
                     lh_json_word(paused, "by"), lh_json_word(paused, "why"));
    if (lh_json_yes(status, "draining"))
        dp_check_say(c, DP_MAY_FAIL, "run: it drains%s",
                     lh_json_yes(status, "ending") ? ", and ends then"
                                                   : ": `longhaul drain run --undo` lets it go on");
    json_array_foreach(json_object_get(status, "alarms"), i, alarm)
    {
        const char *region = lh_json_word(alarm, "region");
        if (lh_json_yes(alarm, "active"))
            dp_check_say(c, DP_FAILS, "alarm %s%s%s: %s (coordinator.rules)",
                         lh_json_word(alarm, "rule"), region[0] ? " of " : "", region,
                         lh_json_word(alarm, "text"));
    }
}

// A region that is gone leaves units that nobody else gets meanwhile.
static void check_balancer(struct dp_check *c, const json_t *status)
{
    const json_t *worker;
    const char *gone = "";
    size_t i;
    if (!lh_json_yes(json_object_get(status, "balancer"), "frozen")) return;
    json_array_foreach(json_object_get(status, "workers"), i, worker)
    {
        if (!lh_json_yes(worker, "live") && !lh_json_yes(worker, "done"))
            gone = lh_json_word(worker, "name");
    }
    dp_check_say(c, gone[0] ? DP_FAILS : DP_MAY_FAIL,
                 "balancer: frozen by an operator: each region gets only its own units%s%s%s: "
                 "`longhaul balancer thaw` undoes it",
                 gone[0] ? ", so nobody trains those of " : "", gone,
                 gone[0] ? " while it is away" : "");
}

static void check_hook(struct dp_check *c, const json_t *hook)
{
    if (lh_json_number(hook, "failures") > 0)
        dp_check_say(c, DP_MAY_FAIL, "hook: %.0f calls in a row failed: %.200s",
                     lh_json_number(hook, "failures"), lh_json_word(hook, "says"));
}

static void check_coordinator(struct dp_check *c, const json_t *status, int64_t now_s)
{
    const char *who = "coordinator";
    unsigned live = 0;
    const json_t *worker;
    size_t i;
    json_array_foreach(json_object_get(status, "workers"), i, worker) live +=
        lh_json_yes(worker, "live");
    dp_check_say(c, DP_FINE, "run: %s, %.0f of %.0f tokens, %u of %zu workers live",
                 lh_json_word(status, "phase"), lh_json_number(status, "credited_tokens"),
                 lh_json_number(status, "budget_tokens"), live,
                 json_array_size(json_object_get(status, "workers")));
    check_paused(c, status);
    check_balancer(c, status);
    check_hook(c, json_object_get(status, "hook"));
    check_clock(c, who, status, now_s);
    dp_check_process(c, who, status);
}

// ---------------------------------------------------------------- workers

// Gives a person's part for a worker in this state; NULL: none.
static const char *remedy_of(const char *state, enum dp_finding *level)
{
    static const struct {
        const char *state, *remedy;
        enum dp_finding level;
    } remedies[] = {
        {"new", "it has not joined since the coordinator started: is its process running?",
         DP_MAY_FAIL},
        {"suspect",
         "it is silent: if it stays silent, check its host and its connection to the coordinator",
         DP_MAY_FAIL},
        {"stalled", "it answers but makes no progress: check its log and its device", DP_FAILS},
        {"lost",
         "it is gone, and other workers got its units: start it again with its worker.yaml, or "
         "release its name (`longhaul retire`)",
         DP_FAILS},
        {"set_aside",
         "its pushes are refused: find the cause, then let it back (`longhaul admit`) or expel it "
         "(`longhaul expel`)",
         DP_FAILS},
        {"expelled", "`longhaul admit` lets it back", DP_MAY_FAIL},
    };
    for (size_t i = 0; i < LH_COUNT(remedies); i++) {
        if (strcmp(state, remedies[i].state) != 0) continue;
        *level = remedies[i].level;
        return remedies[i].remedy;
    }
    return NULL;
}

// A worker that answers writes its file every second, unless its disk takes nothing.
static bool is_stale(const json_t *file, int64_t now_s)
{
    double time_s = lh_json_number(file, "time_s");
    return time_s > 0 && (double)now_s - time_s > STATUS_S;
}

static void check_worker(struct dp_check *c, const json_t *worker, const json_t *file,
                         int64_t now_s)
{
    char who[2 * LH_NAME_BYTES + 16];
    const char *state = lh_json_word(worker, "member_state"), *why = lh_json_word(worker, "why");
    enum dp_finding level = DP_FINE;
    const char *remedy = remedy_of(state, &level);
    snprintf(who, sizeof who, "worker %s/%s", lh_json_word(worker, "region"),
             lh_json_word(worker, "name"));
    if (remedy)
        dp_check_say(c, level, "%s: %s, silent for %.0f s%s%s: %s", who, state,
                     lh_json_number(worker, "silent_s"), why[0] ? "; " : "", why, remedy);
    if (json_object_get(worker, "left_out"))
        dp_check_say(c, DP_MAY_FAIL, "%s: the run ends without it", who);
    bool told = json_is_object(file) && lh_json_yes(worker, "live"), stale = is_stale(file, now_s);
    if (told && stale)
        dp_check_say(c, DP_FAILS,
                     "%s: it answers, but has written no status for %.0f s: its disk is full or "
                     "hangs: check it (deploy/docs/full-disk.md)",
                     who, (double)now_s - lh_json_number(file, "time_s"));
    dp_check_process(c, who, told && !stale ? file : worker);
}

// ---------------------------------------------------------------- servers, shards

static void check_member(struct dp_check *c, const json_t *member)
{
    const char *state = lh_json_word(member, "state"), *name = lh_json_word(member, "name");
    bool standby = !strcmp(lh_json_word(member, "role"), "standby");
    if (!strcmp(state, "unheard"))
        dp_check_say(c, DP_FAILS,
                     "%s: no server has reported it since the coordinator started: start its "
                     "server, or check whether that server reaches the coordinator",
                     name);
    else if (!strcmp(state, "expelled"))
        dp_check_say(c, DP_FAILS,
                     "%s: it was expelled, and nothing reaches its shards: `longhaul admit server "
                     "%s` lets it back, or adopt another server for them (`longhaul adopt`)",
                     name, name);
    else if (!strcmp(state, "suspect"))
        dp_check_say(c, standby ? DP_MAY_FAIL : DP_FAILS,
                     "%s %s: silent for %.0f s: start it again with its server.yaml, or check its "
                     "host and its connection to the coordinator",
                     lh_json_word(member, "role"), name, lh_json_number(member, "silent_s"));
}

static void check_shard(struct dp_check *c, const json_t *status, const json_t *shard)
{
    const json_t *member, *of;
    json_int_t number_of = json_integer_value(json_object_get(shard, "shard"));
    size_t i, k;
    if (lh_json_yes(shard, "standby_in_sync")) return;
    json_array_foreach(json_object_get(status, "servers"), i, member)
    {
        if (strcmp(lh_json_word(member, "role"), "standby") != 0) continue;
        json_array_foreach(json_object_get(member, "shards"), k, of)
        {
            if (json_integer_value(of) != number_of) continue;
            dp_check_say(c, DP_MAY_FAIL,
                         "shard %d: its standby %s is not in sync yet: it can't take over now",
                         (int)number_of, lh_json_word(member, "name"));
        }
    }
}

static void check_server(struct dp_check *c, const char *address, const json_t *is, int64_t now_s)
{
    char who[LH_ADDRESS_BYTES + LH_NAME_BYTES + 32];
    const json_t *shard;
    size_t i;
    snprintf(who, sizeof who, "server %s at %s", lh_json_word(is, "name"), address);
    if (!json_is_object(is)) {
        dp_check_say(
            c, DP_FAILS,
            "server at %s: no answer: is it running, and does a firewall block this machine?",
            address);
        return;
    }
    dp_check_say(c, DP_FINE, "%s: it answers", who);
    json_array_foreach(json_object_get(is, "shards"), i, shard)
    {
        if (json_object_get(shard, "rebuilding"))
            dp_check_say(c, DP_MAY_FAIL, "%s: shard %.0f is being rebuilt from its followers", who,
                         lh_json_number(shard, "shard"));
    }
    check_clock(c, who, is, now_s);
    dp_check_process(c, who, is);
}

void dp_check_run(struct dp_check *c, const json_t *status, const json_t *servers,
                  const json_t *files, int64_t now_s)
{
    const json_t *row;
    size_t i;
    check_coordinator(c, status, now_s);
    json_array_foreach(json_object_get(status, "servers"), i, row) check_member(c, row);
    for (void *at = json_object_iter((json_t *)servers); at;
         at = json_object_iter_next((json_t *)servers, at))
        check_server(c, json_object_iter_key(at), json_object_iter_value(at), now_s);
    json_array_foreach(json_object_get(status, "shards"), i, row) check_shard(c, status, row);
    json_array_foreach(json_object_get(status, "workers"), i, row)
        check_worker(c, row, json_object_get(files, lh_json_word(row, "name")), now_s);
}
