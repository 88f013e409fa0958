// bench/learning: the cost or gain of asynchronous, compressed training in loss per token.
//
// An arm is one run of a simulated cluster: the real cores of coordinator, servers and workers and
// the real trainer, on the virtual clock of tests/world/env_fake.h. Every arm trains the same
// tokens of a seed's draw, the regions' shares 4:2:1, each region on its own languages.
#ifndef BENCH_LEARNING_H
#define BENCH_LEARNING_H

#include <jansson.h>
#include <stdbool.h>

#include "common/format/plan.h"
#include "deploy/text/eval.h"
#include "worker/train/update.h"
#include "worker/worker.h"

enum {
    LEARN_REGIONS = 3,
    LEARN_UNIT_TOKENS = 2048,                   // as in deploy/demo.sh's data
    LEARN_SHARE_TOKENS = 7 * LEARN_UNIT_TOKENS, // every region's share is a multiple
    LEARN_H = 8, // local steps of a round in the fastest region, unless --h says otherwise
    LEARN_CONTEXT = 128,
    LEARN_DIM = 96,          // unless --dim says otherwise
    LEARN_STEP_TOKENS = 512, // 4 sequences; unless --step-tokens says otherwise
    LEARN_POINTS = 12,       // points of a loss curve, unless --points says otherwise
    LEARN_POINTS_MAX = 96,
    LEARN_SERVERS = 2,
    LEARN_COPIES_MAX = 8,
};

extern const char *const learn_region[LEARN_REGIONS]; // asia, europe, america
extern const uint32_t learn_steps[LEARN_REGIONS];     // local steps a round at --h 8: 8, 4, 2

// The settings in which arms differ. Names are stable: they are part of the rows' names.
struct learn_arm {
    const char *name;
    const char *region; // NULL: all three; else it trains alone on its share; "all": on everything
    uint8_t mode;       // enum lh_mode
    const char *codec;
    float density; // 0: 30 / rounds, from 0.075 to 1/6 (DESIGN.md#section-6)
    float kappa;
    float eta;         // 0: the rule of DESIGN.md#section-6
    uint8_t optimizer; // enum lh_optimizer
    float momentum;
    uint32_t every; // admitted pushes between outer steps; 0: the number of live workers
    float bound;    // bound of the effective step, 0: no guard
    float rate;     // peak of the learning rate; 0: conf's
    float floor;    // the learning rate's end as a part of its peak; 0: 0.02
    float beta;     // part of the residual kept each round; 0: the rule of DESIGN.md#section-6
    enum wk_stagger stagger;
    float survives; // part of a mass left after 1 / density rounds; 0: beta decides
    // Real staleness; zeros: rounds of one second in all regions, the round trips of fate().
    float round_trips; // factor on all round trips; 0: 1
    float jitter;      // sigma of the logarithm of a round's duration (pace.c)
    const char *slow;  // region that trains at a third of its speed, its H unchanged; NULL: none
    const char *cut;   // region that reaches no other for the run's middle tenth; NULL: none
    // All regions take the fastest one's local steps per round, whatever their speed, and the same
    // number of units; false: by their speed.
    bool equal;
    uint32_t copies; // workers per region, which share its units and languages; 0: 1
    uint32_t batch;  // factor on conf's tokens of a local step; 0: 1
    float damping;   // damping of stale pushes (DESIGN.md#section-6); below 0: none; 0: 0.5
};
// An arm of the table, or NAME:KEY=VALUE:...: with other settings; KEY is p (density), k (kappa),
// eta, m (momentum), codec, rate, floor, beta, s (survives), stagger (on, off), rtt (round_trips),
// jitter, slow or cut (a region), h (equal, speed), copies, batch, damping.
// NULL: there is none.
const struct learn_arm *learn_arm_find(const char *name);
extern const struct learn_arm learn_arms[];
extern const size_t learn_arm_count;
// The density, decay and step that an arm runs with.
float learn_density(const struct learn_arm *arm, uint64_t rounds);
float learn_eta(const struct learn_arm *arm, uint64_t rounds);
float learn_beta(const struct learn_arm *arm, uint64_t rounds);
bool learn_staggered(const struct learn_arm *arm);
float learn_damping(const struct learn_arm *arm);
float learn_floor(const struct learn_arm *arm);
// Units of a region in six turns of the draw. A slow region has a third unless others wait for it:
// it trains as much as its speed allows.
uint32_t learn_share(const struct learn_arm *arm, uint32_t region);
// Part of the tokens in which the learning rate rises: 20 rounds, as in a run of 400, if that is 5
// to 20 % of them.
double learn_warmup(uint64_t rounds);

struct learn_conf {
    const char *data; // folder that `longhaul data prepare` made
    uint64_t tokens;  // T of all regions together
    uint64_t seed;    // seed of the initial parameters, the draw of units, the network's delays
    // Bytes of each held-out text that are evaluated, for the curve and at the end.
    uint64_t curve_bytes, final_bytes;
    uint32_t points;      // points of the curve, beside those at the start and at the end
    uint32_t dim;         // width of the model: a multiple of 8
    uint32_t step_tokens; // tokens of a local step: a multiple of LEARN_CONTEXT that divides a unit
    uint32_t h;           // local steps of a round in the fastest region: a multiple of 4
    float rate;           // peak of the learning rate of arms that name none
    float decay; // part of the tokens, at the end, in which it falls; 0: all after the warm-up
};
// Rounds of a worker if each region has one; rounds of each worker of the arm: the same tokens,
// shared by more workers.
uint64_t learn_rounds(const struct learn_conf *conf);
uint64_t learn_arm_rounds(const struct learn_arm *arm, const struct learn_conf *conf);
uint32_t learn_copies(const struct learn_arm *arm);
uint32_t learn_h(const struct learn_conf *conf, uint32_t region); // its local steps of a round
uint64_t learn_round_tokens(const struct learn_conf *conf);
float learn_rate(const struct learn_arm *arm, const struct learn_conf *conf);

struct learn_point {
    uint64_t tokens, up, down; // up, down: payload bytes of the busiest region
    double nats;               // mean over the languages, nats per byte
    double virtual_s;          // since the start
};

struct learn_result {
    struct dp_eval_row row[DP_LANGUAGES_MAX]; // losses of the final parameters
    // Losses of the parameters' mean over the rounds of the last tenth of the tokens.
    struct dp_eval_row averaged[DP_LANGUAGES_MAX];
    uint32_t rows;
    struct learn_point point[LEARN_POINTS_MAX + 2];
    uint32_t points;
    uint64_t parameters, tokens, up, down; // tokens trained; payload bytes of the busiest region
    uint64_t admitted, refused, staleness; // staleness: sum over the admitted pushes of shard 0
    double virtual_s;
    char digest[2 * LH_HASH_BYTES + 1]; // digest of shard 0's final state
};

// Runs one arm to its end. Everything but the duration is a function of arm and conf.
LH_MUST lh_err learn_run(const struct learn_arm *arm, const struct learn_conf *conf,
                         struct learn_result *out);

// Whether a line of a results file is of arms with conf's tokens, model and steps, and with the
// present warm-up. Lines without these values had 5 % of their run, dim 96 and steps of 512 tokens.
bool learn_line_of(const json_t *line, const struct learn_conf *conf);

// Prints rows and draws pictures of the results in FILE (one JSON object a line) whose arms had
// conf's tokens, model and steps. Returns the exit code.
int learn_report(const char *results, const struct learn_conf *conf, const char *json,
                 const char *pictures);

// Makes rounds of `steps` steps last longer or shorter, each by a random factor: its logarithm is
// normal with deviation `sigma`, its mean is 1, and it follows from the seed. The trainer must have
// a throttle (least_ns). Takes the inner one: destroy() destroys both.
struct wk_trainer *learn_pace(struct wk_trainer *inner, uint32_t steps, double sigma,
                              uint64_t seed);
// The generator's next number.
uint64_t learn_random(uint64_t *state);

#endif
