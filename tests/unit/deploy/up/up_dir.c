// The folder of a run: the files that `up` makes, those that a second `up` keeps, changes that it
// refuses; and that every node's settings file passes its table.
#include <sys/stat.h>

#include "common/security/certs.h"
#include "common/security/sign.h"
#include "common/base/check.h"
#include "deploy/up/up_dir.h"
#include "deploy/up/up_net.h"
#include "deploy/up/up_watch.h"
#include "tests/unit/deploy/up/up_rig.h"
#include "worker/ranks/reduce.h"

static const char text[] =
    "run: tiny\nbudget_tokens: 100000\ntokens_per_s: 1000\nseed: 7\nepochs: 3\n"
    "model: {vocabulary: 32, dim: 8, layers: 1, heads: 2, kv_heads: 2, ffn: 16, context: 16}\n"
    "coordinator: {region: eu}\n"
    "servers:\n  - {name: s0, region: eu, shards: [0, 2]}\n  - {name: s1, region: us, shards: "
    "[1]}\n"
    "regions:\n  eu: {speed: 3}\n  us: {workers: 2}\n"
    "server:\n  coordinator.h_base: \"8,eu=6\"\n  coordinator.scale: \"22:00=9,us@06:00=1\"\n";

static struct lh_config *settings_of(const struct dp_node *node)
{
    struct lh_config *c;
    struct lh_buf yaml = lh_buf(1 << 20);
    assert_int_equal(
        lh_config_create(node->kind >= DP_WORKER ? &wk_settings_table : &ps_settings_table, &c),
        LH_OK);
    assert_int_equal(dp_file_read(node->config, &yaml), LH_OK);
    assert_int_equal(lh_config_text(c, node->config, lh_buf_span(&yaml)), LH_OK);
    assert_int_equal(lh_config_finish(c), LH_OK);
    lh_buf_free(&yaml);
    return c;
}

static int64_t voices_of(const char *yaml)
{
    struct dp_up *up = open_up(yaml);
    all(up);
    struct lh_config *c = settings_of(&up->node[1]);
    int64_t voices = ((const struct ps_settings *)lh_config_settings(c))->rebuild.voices;
    lh_config_destroy(c);
    close_up(up);
    assert_int_equal(remove_tree(run_dir), 0);
    return voices;
}

// One region confirms by itself; an operator's setting has precedence.
TEST(voices_of_a_rebuild)
{
    static const char one[] =
        "run: one\nbudget_tokens: 100000\ntokens_per_s: 1000\n"
        "model: {vocabulary: 32, dim: 8, layers: 1, heads: 2, kv_heads: 2, ffn: 16, context: 16}\n"
        "coordinator: {region: eu}\nservers:\n  - {name: s0, region: eu, shards: [0]}\n"
        "regions:\n  eu: {workers: 2}\n";
    char said[sizeof one + 40];
    snprintf(said, sizeof said, "%sserver:\n  rebuild.voices: 3\n", one);
    assert_int_equal(voices_of(one), 1);
    assert_int_equal(voices_of(said), 3);
    assert_int_equal(voices_of(text), 2);
}

TEST(every_node_gets_its_settings)
{
    struct dp_up *up = open_up(text);
    all(up);
    assert_int_equal(up->nodes, 1 + 2 + 3);
    struct lh_config *c = settings_of(&up->node[0]);
    const struct ps_settings *s = lh_config_settings(c);
    assert_true(ps_is_coordinator(s) && !ps_is_shard(s));
    assert_int_equal(s->coordinator.workers, 3);
    assert_int_equal(s->node.run.budget_tokens, 100000);
    assert_int_equal(s->node.run.epochs, 3);
    assert_int_equal(s->node.run.seed, 7);
    assert_int_equal(ps_settings_h(s, "eu"), 6);
    assert_int_equal(ps_settings_h(s, "us"), 0);
    assert_string_equal(s->coordinator.scale, "22:00=9,us@06:00=1");
    lh_config_destroy(c);

    c = settings_of(&up->node[1]);
    s = lh_config_settings(c);
    assert_non_null(strstr(s->node.tls.cert, "/s0.pem"));
    assert_string_equal(s->node.coordinator, up->node[0].address);
    assert_string_equal(s->advertise, up->node[1].address);
    assert_int_equal(s->shards.count, 2);
    assert_int_equal(s->shards.value[1], 2);
    assert_true(s->update.eta == 1); // density 1/6: not below 10 %
    lh_config_destroy(c);

    assert_string_equal(up->node[5].name, "us-1");
    c = settings_of(&up->node[5]);
    const struct wk_settings *w = lh_config_settings(c);
    assert_true(w->codec.density > 0.16 && w->trainer.tokens_per_s == 200);
    assert_string_equal(w->node.data.units, "/data/tokens/units.json");
    assert_int_equal(w->node.run.epochs, 3);
    lh_config_destroy(c);
    close_up(up);
}

TEST(secrets_and_identities)
{
    struct dp_up *up = open_up(text);
    struct lh_certs_info info;
    struct stat is;
    char path[DP_PATH_BYTES];
    all(up);
    for (unsigned i = 0; i < up->nodes; i++) {
        static const enum lh_role roles[] = {LH_C, LH_S, LH_W};
        const struct dp_node *node = &up->node[i];
        assert_int_equal(dp_path(path, "%s/secrets/%s.pem", up->dir, node->name), LH_OK);
        assert_int_equal(lh_certs_inspect(path, &info), LH_OK);
        assert_int_equal(info.peer.role, roles[node->kind]);
        assert_string_equal(info.peer.run, "tiny");
        assert_string_equal(info.peer.name, node->name);
        assert_string_equal(info.peer.region, up->t->region[node->region].name);
        assert_int_equal(dp_path(path, "%s/secrets/%s.key", up->dir, node->name), LH_OK);
        assert_int_equal(stat(path, &is), 0);
        assert_int_equal(is.st_mode & 077, 0);
    }
    assert_int_equal(dp_path(path, "%s/secrets/admin.pem", up->dir), LH_OK); // the operator's
    assert_int_equal(lh_certs_inspect(path, &info), LH_OK);
    assert_int_equal(info.peer.role, LH_A);
    assert_string_equal(info.peer.run, "tiny");
    close_up(up);
}

// A server's signing key is on the list of keys that it trusts.
TEST(checkpoints_are_signed)
{
    struct dp_up *up = open_up(text);
    struct lh_signer *signer;
    struct lh_trusted trusted;
    all(up);
    struct lh_config *c = settings_of(&up->node[1]);
    const struct ps_settings *s = lh_config_settings(c);
    assert_int_equal(lh_signer_load(s->checkpoint.sign_key, &signer), LH_OK);
    assert_int_equal(lh_trusted_load(s->checkpoint.signers, &trusted), LH_OK);
    struct lh_public own = lh_signer_public(signer);
    assert_true(lh_trusts(&trusted, &own));
    lh_signer_destroy(signer);
    lh_config_destroy(c);
    close_up(up);
}

static struct lh_hash hash_file(const struct dp_up *up, const char *name)
{
    char path[DP_PATH_BYTES];
    struct lh_buf bytes = lh_buf(1 << 20);
    assert_int_equal(dp_path(path, "%s/%s", up->dir, name), LH_OK);
    assert_int_equal(dp_file_read(path, &bytes), LH_OK);
    struct lh_span span = lh_buf_span(&bytes);
    struct lh_hash hash = lh_hash_of(lh_span(NULL, 0), &span, 1);
    lh_buf_free(&bytes);
    return hash;
}

TEST(a_second_up_keeps_it)
{
    static const char *const kept[] = {"secrets/ca.key", "secrets/job.keys", "secrets/s0.key",
                                       "weights.bin",    "model.json",       "s0.yaml"};
    struct dp_up *a = open_up(text), *b = open_up(text);
    all(a);
    struct lh_hash before[LH_COUNT(kept)];
    for (size_t i = 0; i < LH_COUNT(kept); i++) before[i] = hash_file(a, kept[i]);
    assert_int_equal(dp_dir_open(b), LH_ERR_EXISTS); // not while the first one holds it
    assert_non_null(strstr(lh_err_text(LH_ERR_EXISTS), "a run goes on in"));
    dp_dir_close(a);
    all(b);
    for (size_t i = 0; i < LH_COUNT(kept); i++) { // including the ports in s0.yaml
        struct lh_hash after = hash_file(b, kept[i]);
        if (!lh_hash_equal(&before[i], &after)) fail_msg("%s changed", kept[i]);
    }
    close_up(a);
    close_up(b);
}

// The kernel may hand out the same free port twice.
TEST(no_two_nodes_have_one_port)
{
    struct dp_up *up = open_up(text);
    struct lh_buf yaml = lh_buf(1 << 20);
    all(up);
    assert_int_equal(dp_file_read(up->node[0].config, &yaml), LH_OK);
    assert_int_equal(dp_file_write(up->node[1].config, lh_buf_span(&yaml), 0600), LH_OK);
    lh_buf_free(&yaml);
    assert_int_equal(dp_net_up(up), LH_OK);
    assert_string_not_equal(up->node[0].address, up->node[1].address);
    assert_int_equal(dp_dir_settings(up), LH_OK);
    close_up(up);
}

// Opens the same run with `to` in place of `from`, or, if `from` is NULL, appended.
static lh_err meets(const char *from, const char *to)
{
    char other[2048];
    const char *at = from ? strstr(text, from) : text + strlen(text);
    assert_non_null(at);
    snprintf(other, sizeof other, "%.*s%s%s", (int)(at - text), text, to,
             from ? at + strlen(from) : "");
    struct dp_up *up = open_up(other);
    lh_err err = dp_dir_open(up);
    close_up(up);
    return err;
}

TEST(a_topology_is_compared_by_its_meaning)
{
    struct dp_up *up = open_up(text);
    all(up);
    close_up(up);
    assert_int_equal(meets(NULL, "# changed\n"), LH_OK);
    assert_int_equal(meets("run: tiny\n", "\"run\": 'tiny' # its name\n\n"), LH_OK);
    up = open_up(text);
    assert_int_equal(dp_dir_open(up), LH_OK);
    close_up(up);
}

// Each of these changes is accepted and applies to the folder from then on.
TEST(permitted_changes_in_a_run_are_accepted)
{
    static const struct {
        const char *from, *to;
    } of[] = {
        {"8,eu=6", "3"},
        {"server:\n", "server:\n  update.eta: 0.5\n"},
        {NULL, "worker: {codec: {density: 0.2}, trainer: {learning_rate: 0.01}}\n"},
        {NULL, "link: {rtt_ms: 12}\n"},
        {"server:\n", "server:\n  coordinator.store: etcd://e:2379/x\n"}, // the state moves there
        {"budget_tokens: 100000", "budget_tokens: 200_000"},
        {"tokens_per_s: 1000\n", ""},
        {"epochs: 3", "epochs: 4"},
        {"speed: 3", "speed: 4"},
        {"us: {workers: 2}", "us: {workers: 3}\n  af: {}"},
        {"22:00=9", "22:00=8"},
    };
    snprintf(run_dir + strlen(run_dir), 3, "-7");
    for (size_t i = 0; i < LH_COUNT(of); i++) {
        char yaml[2048];
        snprintf(yaml, sizeof yaml, "%s/topology.yaml", run_dir);
        (void)remove(yaml); // each is compared with the original
        assert_int_equal(meets(NULL, ""), LH_OK);
        assert_int_equal(meets(of[i].from, of[i].to), LH_OK);
    }
    // The folder now has the last file: leaving the added region out again is refused.
    assert_int_equal(meets("us: {workers: 2}", "us: {workers: 3}\n  af: {}"), LH_OK);
    assert_int_equal(meets(NULL, ""), LH_ERR_CONFIG);
    assert_non_null(strstr(lh_err_text(LH_ERR_CONFIG), "longhaul drain region"));
    run_dir[strlen(run_dir) - 1] = '8';
    assert_int_equal(meets("server:\n", "server:\n  coordinator.store: etcd://e:2379/x\n"), LH_OK);
    assert_int_equal(meets(NULL, ""), LH_ERR_CONFIG);
    assert_non_null(strstr(lh_err_text(LH_ERR_CONFIG), "would be left behind"));
    run_dir[strlen(run_dir) - 2] = 0;
}

TEST(forbidden_changes_are_named_with_the_reason)
{
    static const struct {
        const char *from, *to, *says;
    } of[] = {
        {"seed: 7", "seed: 8", "seed: 7 -> 8: the run's parameters exist already"},
        {"server:\n", "server:\n  update.mode: bsp\n", "server: update.mode: async -> bsp"},
        {"server:\n", "server:\n  update.weighting: tokens\n", "update.weighting"},
        {"run: tiny", "run: another", "run: tiny -> another"},
        {"epochs: 3", "epochs: 2", "epochs: 3 -> 2"},
        {"dim: 8", "dim: 16", "model.dim: 8 -> 16"},
        {"shards: [1]", "shards: [1, 3]", "servers: s1: shards 1 in us -> shards 1 3 in us"},
    };
    for (size_t i = 0; i < LH_COUNT(of); i++) {
        if (meets(of[i].from, of[i].to) != LH_ERR_CONFIG) fail_msg("%s was taken", of[i].to);
        assert_non_null(strstr(lh_err_text(LH_ERR_CONFIG), of[i].says));
        assert_non_null(strstr(lh_err_text(LH_ERR_CONFIG), "can't change in a run"));
    }
    assert_int_equal(meets(NULL, ""), LH_OK); // none of those was applied
}

TEST(settings_made_by_up_are_refused)
{
    char other[1024];
    snprintf(other, sizeof other, "%s  listen: 1.2.3.4:5\n", text);
    struct dp_up *up = open_up(other);
    snprintf(run_dir + strlen(run_dir), 3, "-2");
    assert_int_equal(dp_dir_open(up), LH_OK);
    assert_int_equal(dp_dir_prepare(up), LH_OK);
    assert_int_equal(dp_net_up(up), LH_OK);
    assert_int_equal(dp_dir_settings(up), LH_ERR_CONFIG);
    assert_non_null(strstr(lh_err_text(LH_ERR_CONFIG), "t.yaml:17: listen can't be set here"));
    run_dir[strlen(run_dir) - 2] = 0;
    close_up(up);
}

static const struct dp_node *worker_at(const struct dp_up *up, const struct dp_node *rank)
{
    const struct dp_node *at = up->node;
    while (at->kind != DP_WORKER || at->region != rank->region || at->index != rank->index) at++;
    return at;
}

// Ranks share their worker's name, certificate and shared memory; each has its own directory.
TEST(ranks_belong_to_their_worker)
{
    char other[1024];
    snprintf(other, sizeof other, "%.*s  us: {workers: 2, ranks: 3}\n",
             (int)(strstr(text, "  us: {workers: 2}") - text), text);
    struct dp_up *up = open_up(other);
    snprintf(run_dir + strlen(run_dir), 3, "-3");
    all(up);
    assert_int_equal(up->nodes, 1 + 2 + 3 + 2 * 2);
    const struct dp_node *node = &up->node[9], *worker = &up->node[5];
    assert_string_equal(node->name, "us-1.2");
    assert_int_equal(node->kind, DP_RANK);
    struct lh_config *c = settings_of(node), *of = settings_of(worker);
    const struct wk_settings *s = lh_config_settings(c), *w = lh_config_settings(of);
    assert_int_equal(s->ranks.count, 3);
    assert_int_equal(s->ranks.rank, 2);
    assert_int_equal(w->ranks.rank, 0);
    assert_int_equal(s->ranks.reduce, WK_REDUCE_SHM);
    assert_string_equal(s->node.coordinator, w->node.coordinator);
    assert_string_equal(s->node.tls.cert, w->node.tls.cert);
    assert_string_equal(s->node.dir, node->dir);
    assert_true(strcmp(s->node.dir, w->node.dir) != 0);
    lh_config_destroy(c);
    lh_config_destroy(of);
    run_dir[strlen(run_dir) - 2] = 0;
    close_up(up);
}

// Checks the addresses of a rank. Rank 0 listens where the others look for it, and with TCP each
// names its own host. Ranks 0 and 1 share a host, and so do 2 and 3.
static void check_way(const struct dp_node *node, const struct wk_settings *s, bool tcp)
{
    char host[40], listens[40];
    snprintf(host, sizeof host, "127.77.%u.%u", 1 + node->index, node->rank / 2 + 1);
    snprintf(listens, sizeof listens, "127.77.%u.1:", 1 + node->index);
    assert_memory_equal(s->ranks.leader, listens, strlen(listens));
    assert_string_equal(s->ranks.address, tcp ? host : "");
}

TEST(ranks_on_hosts_find_their_worker)
{
    for (int tcp = 0; tcp < 2; tcp++) {
        char other[1024];
        unsigned seen = 0;
        snprintf(other, sizeof other, "%.*s  us: {workers: 2, %s: 4, hosts: 2}\n",
                 (int)(strstr(text, "  us: {workers: 2}") - text), text, tcp ? "ranks" : "gpus");
        struct dp_up *up = open_up(other);
        snprintf(run_dir + strlen(run_dir), 3, tcp ? "-5" : "-6");
        all(up);
        for (unsigned i = 0; i < up->nodes; i++) {
            const struct dp_node *node = &up->node[i];
            if (node->kind != DP_WORKER && node->kind != DP_RANK) continue;
            struct lh_config *c = settings_of(node), *of = settings_of(worker_at(up, node));
            const struct wk_settings *s = lh_config_settings(c), *w = lh_config_settings(of);
            if (node->region) check_way(node, s, tcp);
            assert_string_equal(s->ranks.leader, w->ranks.leader);
            if (!node->region) assert_string_equal(s->ranks.leader, "");
            seen += node->region;
            lh_config_destroy(c);
            lh_config_destroy(of);
        }
        assert_int_equal(seen, 2 * 4);
        run_dir[strlen(run_dir) - 2] = 0;
        close_up(up);
    }
}

TEST(gpus_are_reduced_by_nccl)
{
    char other[1024];
    snprintf(other, sizeof other, "%.*s  us: {gpus: 2}\nworker: {ranks.wire: bf16}\n",
             (int)(strstr(text, "  us: {workers: 2}") - text), text);
    struct dp_up *up = open_up(other);
    snprintf(run_dir + strlen(run_dir), 3, "-4");
    all(up);
    const struct dp_node *node = &up->node[up->nodes - 1];
    assert_int_equal(node->kind, DP_RANK);
    struct lh_config *c = settings_of(node);
    const struct wk_settings *s = lh_config_settings(c);
    assert_int_equal(s->ranks.count, 2);
    assert_int_equal(s->ranks.reduce, WK_REDUCE_NCCL);
    assert_int_equal(s->ranks.wire, WK_SUM_BF16);
    lh_config_destroy(c);
    run_dir[strlen(run_dir) - 2] = 0;
    close_up(up);
}

// The next `up` keeps counts and curves of an interrupted one.
TEST(totals_are_kept)
{
    static const char first[] = "{\"role\": \"worker\", \"pid\": 10, \"step\": 5, "
                                "\"payload_up_bytes\": 1000, \"plain_up_bytes\": 800, "
                                "\"stall_s\": 0.5, \"loss\": 3}";
    static const char second[] = "{\"role\": \"worker\", \"pid\": 11, \"step\": 7, "
                                 "\"payload_up_bytes\": 30, \"plain_up_bytes\": 20, "
                                 "\"stall_s\": 0.25, \"loss\": 2}";
    struct dp_up *a = open_up(text), *b = open_up(text);
    char path[DP_PATH_BYTES];
    all(a);
    assert_int_equal(dp_path(path, "%s/status.json", a->node[3].dir), LH_OK);
    assert_int_equal(dp_file_write(path, lh_span_str(first), 0600), LH_OK);
    dp_watch_poll(a);
    a->node[3].point = calloc(2, sizeof *a->node[3].point);
    a->node[3].points = a->node[3].point_cap = 2;
    a->node[3].point[1] = (struct dp_point){12.5, 2.75};
    a->started_ns = dp_now_ns() - 60 * INT64_C(1000000000);
    assert_int_equal(dp_watch_keep(a), LH_OK);
    dp_dir_close(a);
    all(b);
    b->started_ns = dp_now_ns();
    assert_int_equal(dp_watch_resume(b), LH_OK);
    assert_true(dp_up_seconds(b) >= 60 && dp_up_seconds(b) < 120);
    assert_int_equal(b->node[3].points, 2);
    assert_true(b->node[3].point[1].y == 2.75);
    assert_int_equal(b->node[3].total.payload_up, 1000);
    assert_int_equal(dp_file_write(path, lh_span_str(second), 0600), LH_OK);
    dp_watch_poll(b);
    struct dp_counts eu = dp_watch_region(b, 0);
    assert_int_equal(eu.payload_up, 1030);
    assert_int_equal(eu.plain_up, 820);
    assert_int_equal(eu.steps, 12); // each process counts its own
    assert_true(eu.stall_s == 0.75);
    close_up(a);
    close_up(b);
}

int main(void)
{
    return test_run(setup, teardown);
}

static void remove_secret(const struct dp_up *up, const char *name)
{
    char path[DP_PATH_BYTES];
    assert_int_equal(dp_path(path, "%s/secrets/%s", up->dir, name), LH_OK);
    assert_int_equal(unlink(path), 0);
}

// An `up` that was killed, or an operator, leaves half of a pair. This is the last test, because it
// spoils the folder.
TEST(half_a_pair_is_made_whole)
{
    static const char *const lost[] = {"s0.key", "s1.pem", "ca.key"};
    struct dp_up *up = open_up(text);
    all(up);
    struct lh_hash ca = hash_file(up, "secrets/ca.pem");
    for (size_t i = 0; i < 2; i++) {
        remove_secret(up, lost[i]);
        assert_int_equal(dp_dir_prepare(up), LH_OK);
        hash_file(up, "secrets/s0.key");
        hash_file(up, "secrets/s1.pem");
    }
    remove_secret(up, lost[2]); // nothing more is signed
    assert_int_equal(dp_dir_prepare(up), LH_OK);
    struct lh_hash is = hash_file(up, "secrets/ca.pem");
    assert_true(lh_hash_equal(&ca, &is));
    remove_secret(up, lost[1]);
    assert_int_equal(dp_dir_prepare(up), LH_ERR_NOT_FOUND);
    assert_non_null(strstr(lh_err_text(LH_ERR_NOT_FOUND), "ca.key"));
    static const char *const roots[] = {"job.keys", "ca.pem"};
    for (size_t i = 0; i < LH_COUNT(roots); i++) {
        remove_secret(up, roots[i]);
        assert_int_equal(dp_dir_prepare(up), LH_ERR_NOT_FOUND);
        assert_non_null(strstr(lh_err_text(LH_ERR_NOT_FOUND), roots[i]));
        assert_non_null(strstr(lh_err_text(LH_ERR_NOT_FOUND), "is gone, and the run's"));
    }
    close_up(up);
}
