// Operator: does what server/docs/0000-protocol.md#rule-21, #rule-22 and server/README.md ask for
// when the target of a move, or the standby that a shard's owner waits for, is gone for good.
//
// The former owner stays frozen until its target reports. A target that lost its directory comes
// back as another one, which can't take the shard. The operator sees that every server of the shard
// is up, that none has the directory that the coordinator names as the target, and that it is the
// same five seconds later. It then restarts the former owner with rebuild.below_stable: true.
// Records that only the target had are lost by name, as a loss of that target's disk.
//
// If no state of a shard is confirmed by as many regions as the settings require, the server's
// status lists each worker's claims and says that it waits for an operator. The operator chooses
// the highest claim, if it is the same five seconds later. (No worker lies here.)
//
// The same holds for an owner that can't go on with its log, that says in its status that it waits
// for its standby, and whose standby's directory is gone.
#include <string.h>

#include "common/net/wire_admin.h"
#include "server/coordinator/owners/choice.h"
#include "server/recovery/choose.h"
#include "server/recovery/rebuilding.h"
#include "tests/sim/judge.h"

static const int64_t LOOK_EVERY = 5 * LH_SECOND;

// Returns whether no server of the shard has this directory. False while one is down: it may have
// it.
static bool is_gone(const struct sim *s, uint32_t shard, uint64_t directory)
{
    for (uint32_t i = 0; i < s->nodes; i++) {
        const struct sim_node *n = &s->node[i];
        if (!sim_has(n, shard)) continue;
        if (!n->server || lh_same_directory(directory, n->server->standby.identity)) return false;
    }
    return true;
}

// Finds the shard's owner by the coordinator's row, which does not name the original owner. If the
// owner's directory is gone too, and its standby finds nobody, the shard's original server takes
// its place, with role: shard.
static struct sim_node *former_owner(struct sim *s, uint32_t shard, uint64_t owner)
{
    struct sim_node *first = NULL;
    for (uint32_t i = 0; i < s->nodes; i++) {
        struct sim_node *n = &s->node[i];
        if (!sim_has(n, shard)) continue;
        if (owner && n->server && n->server->standby.identity == owner) return n;
        if (n->kind == SIM_SERVER) first = n;
    }
    if (first) first->stands_by = false;
    return first;
}

static void give_up(struct sim *s, uint32_t shard, struct sim_node *n, const char *whom)
{
    if (!n || !n->server || n->gives_up || lh_fake_stalled(n->env)) return;
    sim_trace(s, "operator: the %s of shard %u is gone: %s goes on without it", whom, shard,
              n->name);
    sim_saw_loss(n, SIM_LOSS_DISK, NULL);
    n->gives_up = true;
    sim_node_die(n, false);
    if (n->refused) lh_fake_disk_wipe(n->env);
    n->refused = false;
}

// The server's log needs no new epoch, so the setting had no effect. It stops, and asks for an
// empty directory. It gets one if the target is still gone when the operator looks again.
void sim_operator_refused(struct sim_node *n)
{
    n->refused |= n->gives_up;
    n->gives_up = false;
}

// The server's log lost its end, with the beginning of an epoch that was served from it. To the
// server this is an older copy of its directory, which it refuses
// (server/docs/0000-protocol.md#rule-27). The operator knows of no newer one, and follows its
// message.
bool sim_operator_rebuilds(struct sim_node *n, lh_err err, const char *text)
{
    bool refuses = err == LH_ERR_FENCED && strstr(text, "rebuild.damaged: followers");
    if (!refuses || !sim_standbys(n->sim)) return false;
    if (!n->lost_end) sim_fail(n->sim, "%s lost nothing, and refuses its log: %s", n->name, text);
    n->rebuilds = true;
    return true;
}

// The server that waits for the shard's standby, by its status; NULL: none.
static struct sim_node *waiting_owner(struct sim *s, uint32_t shard)
{
    for (uint32_t i = 0; i < s->nodes; i++) {
        struct sim_node *n = &s->node[i];
        const struct ps_shard *at = sim_has(n, shard) ? sim_shard_at(n, shard) : NULL;
        if (!at || !at->rebuild) continue;
        json_t *status = ps_rebuild_status(at->rebuild);
        const char *whom = json_string_value(json_object_get(status, "waits_for"));
        bool waits = whom && strcmp(whom, "standby") == 0;
        json_decref(status);
        if (waits) return n;
    }
    return NULL;
}

static void look_at_move(struct sim *s, uint32_t shard, const struct ps_co_shard *row)
{
    bool gone = row->move.target && is_gone(s, shard, row->move.target);
    if (gone && s->unreached[shard] == row->move.epoch)
        give_up(s, shard, former_owner(s, shard, row->owner), "target");
    s->unreached[shard] = gone ? row->move.epoch : 0;
}

static void look_at_standby(struct sim *s, uint32_t shard, const struct ps_co_shard *row)
{
    struct sim_node *owner = row->standby ? waiting_owner(s, shard) : NULL;
    bool gone = owner && is_gone(s, shard, row->standby);
    if (gone && s->awaited[shard] == row->standby) give_up(s, shard, owner, "standby");
    s->awaited[shard] = gone ? row->standby : 0;
}

static struct ps_rebuild *undecided(struct sim *s, uint32_t shard)
{
    for (uint32_t i = 0; i < s->nodes; i++) {
        struct sim_node *n = &s->node[i];
        const struct ps_shard *at = sim_has(n, shard) ? sim_shard_at(n, shard) : NULL;
        if (at && at->rebuild && !n->zombie && at->rebuild->undecided) return at->rebuild;
    }
    return NULL;
}

// The highest possible state that some worker claims.
static const struct ps_state *highest(const struct ps_rebuild *b)
{
    const struct ps_state *best = NULL;
    for (uint32_t i = 0; i < b->offer_count; i++)
        for (uint32_t k = 0; k < b->offer[i].have_count; k++) {
            const struct ps_state *state = &b->offer[i].have[k];
            bool may = ps_rebuild_counts(b, &state->at) && ps_rebuild_enough(b, &state->at);
            if (may && (!best || state->at.version > best->at.version)) best = state;
        }
    return best;
}

static void look_at_claims(struct sim *s, uint32_t shard)
{
    const struct ps_rebuild *b = undecided(s, shard);
    const struct ps_state *best = b ? highest(b) : NULL;
    bool again = best && s->undecided[shard];
    s->undecided[shard] = best != NULL;
    if (!again) return;
    struct lh_adopt_request m = {.server = ""};
    uint32_t shards;
    m.n_shards = 1;
    m.shards = &shard;
    m.state = lh_span(best->digest.b, LH_HASH_BYTES);
    sim_trace(s, "operator: shard %u comes back from version %llu", shard,
              (unsigned long long)best->at.version);
    lh_err err = ps_co_choose_state(sim_coordinator(s), &m, &shards);
    if (err) sim_trace(s, "operator: %s", lh_err_text(err)); // retries at the next look
}

void sim_operator_sees(struct sim_node *n)
{
    bool serves = n->server && n->server->phase == PS_SERVING;
    if (serves) n->lost_end = n->rebuilds = false;
    bool over = n->gives_up && serves;
    for (uint32_t i = 0; over && i < n->shards; i++) over = !ps_shard_frozen(n->server->shard[i]);
    if (over) n->gives_up = false;
}

static void look(void *arg)
{
    struct sim *s = arg;
    const struct ps_coordinator *c = sim_coordinator(s);
    for (uint32_t i = 0; i < s->nodes; i++) sim_operator_sees(&s->node[i]);
    for (uint32_t k = 0; c && !c->stopped && k < s->shards; k++) {
        const struct ps_co_shard *row = &c->shard[k];
        look_at_move(s, k, row);
        look_at_standby(s, k, row);
        look_at_claims(s, k);
    }
    lh_fake_at(s->world, LOOK_EVERY, look, s);
}

void sim_operator_start(struct sim *s)
{
    lh_fake_at(s->world, LOOK_EVERY, look, s);
}
