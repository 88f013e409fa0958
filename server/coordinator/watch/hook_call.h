// The hook's call: an operator's command, or a webhook (deploy/docs/hooks.md).
#ifndef PS_HOOK_CALL_H
#define PS_HOOK_CALL_H

#include "common/env/env.h"
#include "common/security/hmac.h"
#include "server/command.h"
#include "server/coordinator/coordinator.h"

struct ps_hook_call {
    struct lh_env *env;
    const char *run;           // its name; borrowed
    struct ps_command command; // no words: none
    const char *url;           // borrowed; "": none
    struct lh_hmac_key secret; // signs the notice; 0 bytes: no signature
};

// LH_ERR_CONFIG: an URL that is none.
LH_MUST lh_err ps_hook_check_url(const char *url);
// Does ps_co_hook_conf.call, on the hook lane; `arg` is a struct ps_hook_call. If both are
// set, both are called, and the change is done when both succeeded.
int64_t ps_hook_call(void *arg, const struct ps_co_notice *notice, const atomic_bool *stop,
                     struct ps_co_call_end *end);
// Puts the end of a command into words. `bound_ms`: its limit.
void ps_hook_tell_end(const struct ps_command_end *is, int bound_ms, struct ps_co_call_end *end);

#endif
