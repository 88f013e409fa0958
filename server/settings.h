// server.yaml: the settings of longhaul-server, in both its roles.
#ifndef PS_SETTINGS_H
#define PS_SETTINGS_H

#include "common/app/node.h"
#include "common/format/plan.h"

enum ps_damaged { PS_DAMAGED_REFUSE, PS_DAMAGED_FOLLOWERS };
enum ps_role { PS_ROLE_SHARD, PS_ROLE_COORDINATOR, PS_ROLE_BOTH, PS_ROLE_STANDBY };
enum ps_balance_rule { PS_RULE_FINISH, PS_RULE_WEIGHTED, PS_RULE_LEVEL };
enum ps_cadence_rule { PS_CADENCE_SPEED, PS_CADENCE_LINK, PS_CADENCE_FIXED, PS_CADENCE_STAGED };
enum ps_acknowledge { PS_ACK_DURABLE, PS_ACK_REPLICATED };

struct ps_settings {
    struct lh_node node;
    int role; // enum ps_role
    const char *listen, *advertise;
    struct lh_ints shards;
    const char *weights;

    // how an arrival is weighed; the coordinator's values enter the plan, and so every log
    double eta; // 0: auto
    int64_t staleness_max_per_worker;
    int mode;      // enum lh_mode: 0 async, 1 bsp
    int weighting; // enum lh_weighting: 0 equal, 1 tokens
    double norm_gate;
    int optimizer;   // enum lh_optimizer
    double momentum; // -1: auto

    int64_t checkpoint_every_versions, checkpoint_keep;
    const char *checkpoint_sign_key, *checkpoint_signers;
    const char *checkpoint_store, *store_endpoint, *store_credentials;

    int rebuild_damaged; // enum ps_damaged
    int64_t rebuild_grace_s;
    int64_t rebuild_voices;
    bool rebuild_below_stable;

    int acknowledge; // enum ps_acknowledge

    struct { // role coordinator
        int64_t workers, worker_timeout_s, take_over_ms;
        int64_t stall_floor_s, drain_floor_s;
        double stall_rounds;
        int64_t ride_out_s;
        int balance; // enum ps_balance_rule
        const char *links;
        double affinity;
        const char *scale, *scale_command;
        const char *hook_command, *hook_url, *hook_secret;
        const char *rules; // watch/rules_text.h
        const char *servers;
        const char *data;   // ps_settings_data() reads it
        const char *h_base; // ps_settings_h() reads it
        int64_t step_tokens;
        int cadence; // enum ps_cadence_rule
    } coordinator;

    struct {       // role coordinator
        int level; // enum lh_privacy_level
        double sigma, rate, clip, epsilon, delta;
        int64_t steps, record_tokens;
    } privacy;
};

extern const struct lh_config_table ps_settings_table;

static inline bool ps_is_shard(const struct ps_settings *s)
{
    return s->role != PS_ROLE_COORDINATOR;
}
static inline bool ps_is_coordinator(const struct ps_settings *s)
{
    return s->role == PS_ROLE_COORDINATOR || s->role == PS_ROLE_BOTH;
}
double ps_momentum(const struct ps_settings *s); // the value that `auto` stands for
// Bound of eta / (1 - momentum * rho), rho being the cosine of successive outer updates: momentum
// is lowered where it would be passed.
#define PS_EFFECTIVE_STEP_MAX 1.5
enum { PS_H_BASE = 8 };
// Local steps per round that coordinator.h_base gives regions it does not name.
uint32_t ps_settings_h_base(const struct ps_settings *s);
// Those of a region that it names; 0: it does not.
uint32_t ps_settings_h(const struct ps_settings *s, const char *region);
// Tells whose data a region's workers train.
enum lh_data ps_settings_data(const struct ps_settings *s, const char *region);
// Does a region, or the default, train such data?
bool ps_settings_has_data(const struct ps_settings *s, enum lh_data data);

#endif
