// The settings files of a run's nodes: two coordinators on an etcd.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "deploy/up/up.h"
#include "deploy/up/up_dir.h"
#include "tests/test.h"

static const char text[] =
    "run: tiny\nbudget_tokens: 100000\n"
    "model: {vocabulary: 32, dim: 8, layers: 1, heads: 2, kv_heads: 2, ffn: 16, context: 16}\n"
    "coordinator: {region: eu}\nservers: [{name: s0, region: eu, shards: [0]}]\n"
    "regions: {eu: {}, us: {}}\nserver: {coordinator.store: etcd://127.0.0.1:2379/x}\n";

static struct dp_up *made(const char *yaml)
{
    struct dp_up *up = calloc(1, sizeof *up);
    assert_non_null(up);
    up->flags.topology = "t.yaml";
    up->written_by = "a test";
    lh_err err = dp_topology_parse("t.yaml", lh_span_str(yaml), &up->t);
    if (!err) err = dp_dir_model(up);
    if (!err) err = dp_path(up->data, "/data");
    if (!err) err = dp_path(up->places.secrets, "/secrets");
    if (!err) err = dp_path(up->places.files, "/files");
    if (!err) err = dp_dir_list(up);
    if (err) fail_msg("%s", lh_err_text(err));
    for (unsigned i = 0; i < up->nodes; i++)
        if (up->node[i].kind < DP_WORKER)
            snprintf(up->node[i].address, sizeof up->node[i].address, "h:%u", i + 1);
    return up;
}

static void drop(struct dp_up *up)
{
    lh_manifest_free(&up->manifest);
    dp_topology_free(up->t);
    free(up);
}

// Whether the node's settings file has this line.
static bool has(struct dp_up *up, unsigned node, const char *line)
{
    struct lh_buf out = lh_buf(LH_YAML_BYTES_MAX);
    lh_err err = dp_node_settings(up, &up->node[node], &out);
    if (err) fail_msg("%s: %s", up->node[node].name, lh_err_text(err));
    lh_put_u8(&out, 0);
    assert_int_equal(lh_buf_err(&out), LH_OK);
    bool is = strstr((const char *)out.data, line) != NULL;
    lh_buf_free(&out);
    return is;
}

// The two differ only in their names. All other nodes know both, and only these two know the etcd.
TEST(a_pair_of_coordinators)
{
    static const char both[] = "\ncoordinator: \"h:1,h:2\"\n";
    static const char store[] = "\ncoordinator.store: \"etcd://127.0.0.1:2379/x\"\n";
    struct dp_up *up = made(text);
    assert_int_equal(up->nodes, 2 + 1 + 2);
    assert_string_equal(up->node[1].name, "coordinator-b");
    for (unsigned i = 0; i < up->nodes; i++) {
        bool coordinates = i < 2;
        assert_int_equal(has(up, i, "\nrole: \"coordinator\"\n"), coordinates);
        assert_int_equal(has(up, i, store), coordinates);
        assert_int_equal(has(up, i, both), !coordinates);
    }
    assert_true(has(up, 1, "\ntls.key: \"/secrets/coordinator-b.key\"\n"));
    drop(up);
}
