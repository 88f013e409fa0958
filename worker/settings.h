// worker.yaml: the settings of longhaul-worker.
#ifndef WK_SETTINGS_H
#define WK_SETTINGS_H

#include "common/app/node.h"

// The words of ranks.reduce, in their order.
enum wk_reduce_kind { WK_REDUCE_SHM, WK_REDUCE_TCP, WK_REDUCE_NCCL };
// The words of gpu.state, in their order.
enum wk_state_kind { WK_STATE_HOST, WK_STATE_AUTO, WK_STATE_DEVICE };
// The words of privacy.telemetry, in their order.
enum wk_telemetry { WK_TELEMETRY_NONE, WK_TELEMETRY_ALL };
enum wk_trainer_kind { WK_TRAINER_BUILTIN, WK_TRAINER_SYNTHETIC, WK_TRAINER_EXTERNAL };

// clang-format off
struct wk_settings {
    struct lh_node node;
#define LH_SETTING LH_SETTING_FIELD
#define LH_SETTINGS_GROUP(name) struct {
#define LH_SETTINGS_END(name) } name;
#include "worker/settings.def"
};
// clang-format on

extern const struct lh_config_table wk_settings_table;

const char *wk_codec_name(const struct wk_settings *s); // "topk-sign"
const char *wk_reduce_word(int kind);                   // "tcp"
static inline bool wk_codec_is_dense(const struct wk_settings *s)
{
    return wk_codec_name(s)[0] == 'd';
}

// A region that is private at region level: a loop trains, and the worker clips its pushes.
bool wk_settings_releases(const struct wk_settings *s);

// Resolves "auto" (DESIGN.md#section-6): density of the codec, decay of the residual, part of it
// that the local parameters keep.
struct wk_codec_plan {
    bool follows;  // the density follows the run's rounds, which the coordinator tells
    float density; // density to prepare for; if it follows, that of long runs
    float beta, kappa;
};
struct wk_codec_plan wk_codec_plan(const struct wk_settings *s);
// Can the ranks of this worker train on GPUs? LH_ERR_CONFIG says what to set instead.
LH_MUST lh_err wk_settings_gpu_ranks(const struct wk_settings *s);
// Threads that encode a push on the CPU.
uint32_t wk_codec_threads(const struct wk_settings *s);

#endif
