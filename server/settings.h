// server.yaml: the settings of longhaul-server, in both its roles.
#ifndef PS_SETTINGS_H
#define PS_SETTINGS_H

#include "common/app/node.h"

enum ps_damaged { PS_DAMAGED_REFUSE, PS_DAMAGED_FOLLOWERS };
enum ps_role { PS_ROLE_SHARD, PS_ROLE_COORDINATOR, PS_ROLE_BOTH, PS_ROLE_STANDBY };
enum ps_balance_rule { PS_RULE_FINISH, PS_RULE_WEIGHTED, PS_RULE_LEVEL };
enum ps_cadence_rule { PS_CADENCE_SPEED, PS_CADENCE_LINK, PS_CADENCE_FIXED };
enum ps_acknowledge { PS_ACK_DURABLE, PS_ACK_REPLICATED };

struct ps_settings {
    struct lh_node node;
    int role; // enum ps_role
    const char *listen, *advertise;
    struct lh_ints shards;
    const char *weights;

    // how an arrival is weighed; the coordinator's values enter the plan, and so every log
    double eta; // 0: auto
    double damping;
    int64_t staleness_max_per_worker;
    int mode;      // enum lh_mode: 0 async, 1 bsp
    int weighting; // enum lh_weighting: 0 equal, 1 tokens
    double norm_gate;
    int optimizer;   // enum lh_optimizer
    double momentum; // -1: auto
    int64_t outer_every;
    double effective_step_max;

    int64_t wal_segment_bytes;
    int64_t checkpoint_every_versions, checkpoint_keep;
    int64_t digest_every_versions;
    int64_t checkpoint_weights_every_versions;
    const char *checkpoint_sign_key, *checkpoint_signers;

    int rebuild_damaged; // enum ps_damaged
    int64_t rebuild_grace_s;
    int64_t rebuild_voices;
    bool rebuild_below_stable;

    int acknowledge; // enum ps_acknowledge
    int64_t standby_wait_ms;

    struct { // role coordinator
        int64_t workers, worker_timeout_s, take_over_ms;
        int64_t stall_floor_s, drain_floor_s, retire_after_s;
        double stall_rounds, drain_rounds;
        int64_t ride_out_s;
        int balance; // enum ps_balance_rule
        const char *links;
        double affinity;
        const char *scale, *scale_command;
        const char *hook_command, *hook_secret;
        const char *servers;
        const char *plan_h, *regions_data;
        int data; // enum lh_data
        int64_t step_tokens;
        bool staged;
        int cadence; // enum ps_cadence_rule
        int64_t h_base;
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
// Gives whose data a region's workers train (enum lh_data); false: coordinator.regions_data does
// not name the region.
bool ps_settings_data(const struct ps_settings *s, const char *region, int *data);
// Local steps that coordinator.plan_h ("asia=8,europe=4") gives a region; 0: it says nothing.
int64_t ps_settings_h(const struct ps_settings *s, const char *region);

#endif
