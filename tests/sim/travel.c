// Travel: workers have only their own region's files; servers and standbys send the units of their
// regions. Two of four regions have a server, so the others' units travel only with standbys.
//
// Faults: a sender is killed, sends nothing for up to 90 s, is so slow that calls end, refuses one
// unit or all, sends damaged tokens with a matching hash, notices that its tokens are damaged, or
// has lost their file. All but the second heal when faults cease.
//
// Violations: a worker keeps tokens that are not the unit's, or trains a unit that it does not
// have. That each unit is credited exactly once is judged in every run (judge.c).
#include <inttypes.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#include "common/format/tokens.h"
#include "tests/sim/cluster.h"

enum { UNIT_BYTES = SIM_UNIT_BYTES, KEPT_UNITS = 6 };
static const char GOOD[] = "all.bin", BAD[] = "bad.bin", GONE[] = "gone.bin", FOLDER[] = "units";

static uint64_t draw(struct sim *s, uint64_t n)
{
    return sim_draw(s, SIM_FAULT_travel, n);
}

// lz4 can shrink every second unit.
static uint8_t byte_of(uint64_t unit, uint64_t at, bool damaged)
{
    uint64_t mixed = (unit * UNIT_BYTES + at) * 0x9e3779b97f4a7c15u;
    uint8_t byte = unit % 2 ? (uint8_t)(mixed >> 56) : (uint8_t)(unit + at / 16);
    return (uint8_t)(byte ^ (damaged && at == 7));
}

static void hash(uint64_t unit, bool damaged, uint8_t out[32])
{
    uint8_t tokens[UNIT_BYTES];
    for (uint64_t i = 0; i < UNIT_BYTES; i++) tokens[i] = byte_of(unit, i, damaged);
    LH_ASSERT(EVP_Digest(tokens, UNIT_BYTES, out, NULL, EVP_sha256(), NULL) == 1);
}

void sim_choose_travel(struct sim *s)
{
    if (!s->conf.faults.travel) return;
    for (uint64_t u = 0; u < s->units.count; u++) {
        struct lh_unit *unit = &s->units.unit[u];
        // Half of the units whose homes have no server move to one that has one, so they travel.
        if (u % 8 == 2 || u % 8 == 3)
            snprintf(unit->home, sizeof unit->home, "%s", setup_region[u % 2]);
        unit->from = u * SIM_UNIT_TOKENS;
        snprintf(unit->file, sizeof unit->file, "%s", GOOD);
        hash(u, false, unit->sha256);
    }
    s->caches = draw(s, 4) == 0;
    sim_happened(s, travel);
}

// ---------------------------------------------------------------- senders

static lh_err write_file(struct sim_node *n, const char *name, bool damaged)
{
    char path[64];
    struct lh_buf file = lh_buf(1 << 20), is = lh_buf(1 << 20);
    uint64_t units = n->sim->units.count;
    lh_tokens_put_header(&file, 2, units * SIM_UNIT_TOKENS);
    for (uint64_t u = 0; u < units; u++)
        for (uint64_t i = 0; i < UNIT_BYTES; i++) lh_put_u8(&file, byte_of(u, i, damaged));
    lh_err err = lh_buf_err(&file);
    if (!err) err = lh_path(path, sizeof path, FOLDER, "%s", name);
    if (!err) err = lh_file_load(n->env, path, &is);
    bool there = !err && lh_span_equal(lh_buf_span(&is), lh_buf_span(&file));
    if (err == LH_ERR_NOT_FOUND) err = LH_OK;
    if (!err && !there) err = lh_file_replace(n->env, path, lh_buf_span(&file));
    lh_buf_free(&file);
    lh_buf_free(&is);
    return err;
}

static void believe_rightly(struct sim_node *n)
{
    memcpy(n->its.unit, n->sim->units.unit, n->its.count * sizeof *n->its.unit);
}

lh_err sim_travel_gives(struct sim_node *n, struct ps_conf *conf)
{
    if (!n->sim->conf.faults.travel || n->zombie) return LH_OK;
    if (!n->its.unit) {
        n->its = n->sim->units;
        n->its.unit = calloc(n->its.count, sizeof *n->its.unit);
        LH_ASSERT(n->its.unit);
        believe_rightly(n);
    }
    conf->units = &n->its;
    conf->units_dir = n->gives_nothing ? "" : FOLDER;
    LH_TRY(n->env->ops->files->make_dir(n->env, FOLDER));
    LH_TRY(write_file(n, GOOD, false));
    return write_file(n, BAD, true);
}

void sim_travel_free(struct sim_node *n)
{
    free(n->its.unit);
}

// ---------------------------------------------------------------- workers

static bool find(void *arg, uint64_t unit, bool *kept)
{
    struct sim_node *n = arg;
    if (n->cached[unit]) *kept = n->kept[unit] = true;
    return *kept;
}

static lh_err keep(void *arg, uint64_t unit, const uint8_t *tokens, size_t bytes)
{
    struct sim_node *n = arg;
    for (size_t i = 0; i < bytes; i++)
        if (tokens[i] != byte_of(unit, i, false)) {
            sim_fail(n->sim, "%s keeps damaged tokens of unit %" PRIu64, n->name, unit);
            break;
        }
    if (n->sim->conf.faults.links) sim_links_arrived(n, unit, tokens, bytes);
    n->kept[unit] = true;
    n->cached[unit] = n->sim->caches;
    return LH_OK;
}

static void drop(void *arg, uint64_t unit)
{
    ((struct sim_node *)arg)->kept[unit] = false;
}

void sim_travel_worker(struct sim_node *n, struct wk_conf *conf)
{
    if (!n->sim->conf.faults.travel) return;
    memset(n->kept, 0, sizeof n->kept);
    n->travel = (struct wk_travel_conf){find, keep, drop, n, KEPT_UNITS * UNIT_BYTES};
    conf->travel = &n->travel;
}

void sim_travel_stepped(const struct sim_node *n, uint64_t unit)
{
    uint64_t u = unit % n->sim->units.count;
    bool own = !strcmp(n->sim->units.unit[u].home, n->self.region);
    if (n->sim->conf.faults.travel && !own && !n->kept[u])
        sim_fail(n->sim, "%s trains unit %" PRIu64 ", whose tokens it does not have", n->name,
                 unit);
}

static uint64_t count_of(const json_t *is, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(is, key));
}

void sim_travel_count(const struct sim_node *n)
{
    json_t *is = n->worker && n->sim->conf.faults.travel ? wk_travel_status(n->worker) : NULL;
    struct sim_tally *met = &n->sim->met;
    if (!is) return;
    met->travelled += count_of(is, "units");
    met->refused_units += count_of(is, "refusals");
    met->begun_back += count_of(is, "given_up");
    json_decref(is);
}

// ---------------------------------------------------------------- faults

static void gives_again(void *arg)
{
    struct sim_node *n = arg;
    n->gives_nothing = false;
    if (n->server) n->server->conf.units_dir = FOLDER;
    sim_trace(n->sim, "%s gives units again", n->name);
}

static void heal(void *arg)
{
    struct sim_node *n = arg;
    n->slow_ns = 0;
    if (n->its.unit) believe_rightly(n);
}

void sim_travel_end(struct sim *s)
{
    for (uint32_t i = 0; i < s->nodes; i++) heal(&s->node[i]);
}

int64_t sim_travel_delay(const struct sim *s, enum lh_rpc rpc, const char *to)
{
    if (rpc != LH_RPC_UNIT) return 0;
    for (uint32_t i = 0; i < s->nodes; i++)
        if (!strcmp(s->node[i].name, to)) return s->node[i].slow_ns;
    return 0;
}

enum harm { REFUSES, IS_WRONG, IS_DAMAGED, IS_LOST, HARMS };

static void harm_unit(struct sim_node *n, uint64_t u, enum harm harm)
{
    struct lh_unit *unit = &n->its.unit[u];
    const char *file = harm == IS_LOST ? GONE : harm == REFUSES ? GOOD : BAD;
    snprintf(unit->file, sizeof unit->file, "%s", file);
    if (harm == REFUSES) unit->may_leave = false;
    if (harm == IS_WRONG) hash(u, true, unit->sha256); // the sender's own hash matches
}

static void harm_units(struct sim_node *n, enum harm harm)
{
    static const char *const words[] = {"refuses", "sends damaged tokens of", "has damaged",
                                        "has lost"};
    struct sim *s = n->sim;
    bool all = draw(s, 3) == 0;
    uint64_t one = draw(s, n->its.count);
    for (uint64_t u = 0; u < n->its.count; u++)
        if (all || u == one || draw(s, 8) == 0) harm_unit(n, u, harm);
    sim_trace(s, "%s %s %s", n->name, words[harm], all ? "all units" : "some units");
}

static struct sim_node *some_giver(struct sim *s)
{
    uint64_t drawn = draw(s, SIM_SERVERS + (sim_standbys(s) ? SIM_STANDBYS : 0));
    struct sim_node *n =
        &s->node[drawn < SIM_SERVERS ? 1 + drawn : SIM_FIRST_STANDBY + drawn - SIM_SERVERS];
    return sim_absent(n) ? n - 1 : n;
}

void sim_strike_travel(struct sim *s)
{
    struct sim_node *n = some_giver(s);
    uint64_t drawn = draw(s, HARMS + 3);
    int64_t lasts = (int64_t)(1000 + draw(s, 20000)) * LH_MS;
    if (!n->its.unit) return;
    if (drawn == HARMS) {
        if (s->conf.faults.kill) sim_node_die(n, false);
    } else if (drawn == HARMS + 1) {
        n->gives_nothing = true;
        if (n->server) n->server->conf.units_dir = "";
        sim_trace(s, "%s gives no units", n->name);
        lh_fake_at(s->world, (int64_t)(5 + draw(s, 85)) * LH_SECOND, gives_again, n);
    } else if (drawn == HARMS + 2) {
        n->slow_ns = (int64_t)(500 + draw(s, 6000)) * LH_MS;
        sim_trace(s, "%s gives units slowly", n->name);
        lh_fake_at(s->world, lasts, heal, n);
    } else {
        harm_units(n, (enum harm)drawn);
        lh_fake_at(s->world, lasts, heal, n);
    }
}
