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

// clang-format off
struct ps_settings {
    struct lh_node node;
#define LH_SETTING LH_SETTING_FIELD
#define LH_SETTINGS_GROUP(name) struct {
#define LH_SETTINGS_END(name) } name;
#include "server/settings.def"
};
// clang-format on

extern const struct lh_config_table ps_settings_table;

static inline bool ps_is_shard(const struct ps_settings *s)
{
    return s->role != PS_ROLE_COORDINATOR;
}
static inline bool ps_is_coordinator(const struct ps_settings *s)
{
    return s->role == PS_ROLE_COORDINATOR || s->role == PS_ROLE_BOTH;
}
double ps_momentum(const struct ps_settings *s); // The outer optimizer's; 0: none.
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
