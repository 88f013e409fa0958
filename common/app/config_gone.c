// Settings that have gone. See config_gone.h.
//
// A file of settings outlives the settings, and scripts copy them. "No setting codec.beta" leaves
// its reader to search; a row here says what to write.
#include "common/app/config_gone.h"

#include <stddef.h>
#include <string.h>

#include "common/base/check.h"

#define FIXED "leave it out; nobody sets it any more"
#define PATH "leave it out; it follows from the path's round trip"
#define MODEL "leave it out; it follows from the model's manifest"
#define NAMED "leave it out; the certificate (tls.cert) says it"

static const struct {
    const char *key, *instead;
} gone[] = {
    {"call.deadline_max_s", PATH},
    {"call.deadline_s", PATH},
    {"checkpoint.replay_ms", FIXED},
    {"checkpoint.store_credentials", "set AWS_SHARED_CREDENTIALS_FILE in the server's environment"},
    {"checkpoint.store_endpoint", "set AWS_ENDPOINT_URL_S3 in the server's environment"},
    {"checkpoint.weights_every_versions",
     "leave it out; `longhaul export` writes the weights of any checkpoint"},
    {"checkpoint.weights_keep",
     "leave it out; `longhaul export` writes the weights of any checkpoint"},
    {"codec.beta", "leave it out; it follows from codec.density"},
    {"codec.density_fall", FIXED},
    {"codec.density_start", FIXED},
    {"codec.kappa", FIXED},
    {"codec.threads", "leave it out; it follows from ranks.count"},
    {"compress", "leave it out; rank 0 encodes pushes"},
    {"connect.attempt_max_s", PATH},
    {"connect.attempt_s", PATH},
    {"coordinator.budget_tokens", "write run.budget_tokens"},
    {"coordinator.drain_floor_s", "write coordinator.stall_floor_s"},
    {"coordinator.drain_rounds", "write coordinator.stall_floor_s, in seconds"},
    {"coordinator.dylu", "write coordinator.cadence: speed (true) or fixed (false)"},
    {"coordinator.epochs", "write run.epochs"},
    {"coordinator.hook_timeout_s", FIXED},
    {"coordinator.plan_h", "write it into coordinator.h_base, as 8,asia=8,europe=4"},
    {"coordinator.price_s_by_gb",
     "leave it out; a link's cap (coordinator.links) limits its bytes"},
    {"coordinator.regions_data",
     "write it into coordinator.data, as leased,asia=own,europe=private"},
    {"coordinator.retire_after_s", "leave it out; `longhaul retire` frees a name at once"},
    {"coordinator.scale_every_s", FIXED},
    {"coordinator.scale_timeout_s", FIXED},
    {"coordinator.seed", "write run.seed"},
    {"coordinator.shared_floor", "leave it out; coordinator.balance: finish shares units"},
    {"coordinator.staged", "write coordinator.cadence: staged"},
    {"coordinator.take_over_max_ms", PATH},
    {"coordinator.units", "write data.units"},
    {"coordinator.worker_timeout_max_s", PATH},
    {"core_dumps", "leave it out; a dump would show the keys, and none is left"},
    {"data.cache", "leave it out; the copy is cache in dir, of data.cache_bytes"},
    {"data.epochs", "write run.epochs"},
    {"data.fetches", FIXED},
    {"data.own", "write coordinator.data: own at the coordinator; in a topology server: "
                 "{coordinator: {data: own}}"},
    {"data.prefetch", "leave it out; it follows from how long a unit takes to fetch"},
    {"data.travel_bytes", FIXED},
    {"data.warmup", FIXED},
    {"digest.every_versions", MODEL},
    {"domain", "leave it out; certificates of a topology's run are of longhaul's own domain"},
    {"eval.share", FIXED},
    {"eval.tokens", FIXED},
    {"gpu.device", "set CUDA_VISIBLE_DEVICES in the worker's environment"},
    {"gpu.plugin", "set LONGHAUL_CUDA_PLUGIN in the worker's environment"},
    {"gpu.products", "set LONGHAUL_GEMM_PLUGIN in the worker's environment"},
    {"gpu.spread", "leave it out; a region's state lies in one GPU"},
    {"h", "write server: {coordinator: {h_base: \"8,asia=4\"}}"},
    {"nccl.interface", "set NCCL_SOCKET_IFNAME in the worker's environment"},
    {"nccl.library", "set LONGHAUL_NCCL_LIB in the worker's environment"},
    {"node.name", NAMED},
    {"node.region", NAMED},
    {"optimizer", "leave it out; each rank has all moments of the optimizer"},
    {"push.reconnect_max_ms", FIXED},
    {"push.retry_base_ms", FIXED},
    {"push.retry_max_ms", FIXED},
    {"push.stagger", FIXED},
    {"ranks.bucket_bytes", FIXED},
    {"ranks.compress", "leave it out; rank 0 encodes pushes"},
    {"ranks.listen", "write ranks.leader, at rank 0 too"},
    {"ranks.name", "leave it out; it follows from the certificate and the coordinator"},
    {"ranks.optimizer", "leave it out; each rank has all moments of the optimizer"},
    {"reduce", "write worker: {ranks: {reduce: ...}}"},
    {"replica.every_versions", MODEL},
    {"run.domain", NAMED},
    {"run.name", NAMED},
    {"seal.key_id", "leave it out; the first key of seal.keys seals new pushes"},
    {"seal.snapshots", "leave it out; states always cross sealed"},
    {"snapshot.every_rounds", FIXED},
    {"standby.wait_max_ms", FIXED},
    {"standby.wait_ms", FIXED},
    {"trainer.beta1", FIXED},
    {"trainer.beta2", FIXED},
    {"trainer.budget_tokens", "write run.budget_tokens"},
    {"trainer.clip", FIXED},
    {"trainer.epsilon", FIXED},
    {"trainer.noise_cap", FIXED},
    {"trainer.noise_hold", FIXED},
    {"trainer.ranks", "write ranks.count"},
    {"trainer.run_on", FIXED},
    {"trainer.seed", "write run.seed"},
    {"trainer.socket", "leave it out; it is trainer.sock in dir"},
    {"trainer.weight_decay", FIXED},
    {"units.dir", "write data.dir"},
    {"units.file", "write data.units"},
    {"update.damping", FIXED},
    {"update.effective_step_max", FIXED},
    {"update.momentum", "leave it out; it follows from update.optimizer"},
    {"update.norm_gate", FIXED},
    {"update.outer_every", FIXED},
    {"update.staleness_max_per_worker", FIXED},
    {"wal.segment_bytes", MODEL},
    {"wire", "write worker: {ranks: {wire: ...}}"},
};

const char *lh_config_instead(const char *key)
{
    for (size_t i = 0; i < LH_COUNT(gone); i++)
        if (!strcmp(gone[i].key, key)) return gone[i].instead;
    return NULL;
}
