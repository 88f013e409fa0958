// Kubernetes manifests: names that are valid there, and topologies that are refused.
// tests/oracle/k8s.py reads the manifests.
#include "tests/unit/deploy/render/render_rig.h"

#define TOP "run: tiny.run\nbudget_tokens: 100000\n" MODEL
#define SERVER "servers: [{name: s_0, region: eu, shards: [0]}]\n"
#define EU TOP "coordinator: {region: eu}\n" SERVER

static lh_err render(const char *yaml, struct dp_render_flags flags)
{
    if (!flags.image) flags.image = "longhaul";
    return render_with(dp_render_k8s, yaml, flags);
}

TEST(names_are_labels)
{
    assert_int_equal(render(EU "regions: {eu: , us.east_1: {workers: 2}}\n",
                            (struct dp_render_flags){.domain = "example.org"}),
                     LH_OK);
    has("servers/kustomization.yaml", "\nnamespace: longhaul-tiny-run\n");
    has("servers/servers.yaml", "\nkind: StatefulSet\nmetadata:\n  name: s-0\n");
    has("servers/settings/s_0.yaml", "advertise: \"s-0.example.org:7700\"\n");
    has("servers/certificates.yaml", "spiffe://example.org/longhaul/tiny.run/server/eu/s_0");
    has("regions/us.east_1/workers.yaml", "\nkind: JobSet\nmetadata:\n  name: us-east-1\n");
    has("regions/us.east_1/certificates.yaml", "\n  secretName: us-east-1-1-tls\n");
    has("regions/us.east_1/settings/us.east_1-1.yaml", "dir: \"/var/lib/longhaul/us.east_1-1\"\n");
    has("files/model.json", "\"tensors\"");
    assert_int_equal(render(EU "regions: {eu: }\n",
                            (struct dp_render_flags){.domain = "x", .name_space = "mine"}),
                     LH_OK);
    has("regions/eu/kustomization.yaml", "\nnamespace: mine\n");
}

TEST(a_pair_of_coordinators)
{
    assert_int_equal(render(EU "regions: {eu: }\nserver: {coordinator.store: \"etcd://e:2379/x\", "
                               "coordinator.store_secrets: anything}\n",
                            (struct dp_render_flags){.domain = "x"}),
                     LH_OK);
    has("servers/coordinator.yaml", "\nkind: Deployment\nmetadata:\n  name: coordinator-b\n");
    has("servers/coordinator.yaml", "claimName: coordinator-b-state}\n");
    has("servers/coordinator.yaml", "readinessProbe: {httpGet: {path: /healthz,");
    has("servers/settings/coordinator-b.yaml", "store_secrets: \"/etc/longhaul/etcd\"\n");
    has("regions/eu/settings/eu-0.yaml",
        "coordinator: \"coordinator.x:7700,coordinator-b.x:7700\"\n");
}

TEST(data_in_a_store)
{
    assert_int_equal(render(EU "regions: {eu: }\nserver: {checkpoint.store: \"s3://b/c\"}\n",
                            (struct dp_render_flags){.domain = "x", .data = "s3://b/units"}),
                     LH_OK);
    has("regions/eu/settings/eu-0.yaml", "data.dir: \"s3://b/units\"\n");
    has("servers/settings/coordinator.yaml", "data.units: \"s3://b/units/units.json\"\n");
    has("regions/eu/workers.yaml", "- secretRef: {name: longhaul-store, optional: true}");
    has("regions/eu/workers.yaml", "serviceAccountName: longhaul\n");
    has("regions/eu/storage.yaml", "\nkind: ServiceAccount\n");
    has("regions/eu/network.yaml", "ports: [{port: 443, protocol: TCP}]");
    has("servers/servers.yaml", "- secretRef: {name: longhaul-store, optional: true}");
}

TEST(unusable_names_and_settings_are_refused)
{
    static const struct {
        const char *yaml;
        struct dp_render_flags flags;
        const char *says;
    } of[] = {
        {EU "regions: {eu: , us.1: , us_1: }\n", {.domain = "x"}, "us.1 and us_1"},
        {EU "regions: {eu: , 1st: }\n", {.domain = "x"}, "no object named 1st"},
        {EU "regions: {eu: , us_: }\n", {.domain = "x"}, "no object named us_"},
        {TOP
         "coordinator: {region: eu}\nregions: {eu: }\nservers: [{name: a.b, region: eu, shards: "
         "[0]}, {name: a-b, region: eu, shards: [1]}]\n",
         {.domain = "x"},
         "a.b and a-b"},
        {EU "regions: {eu: , us: {data: here}}\n", {.domain = "x"}, "regions.us.data"},
        {EU "regions: {eu: }\nserver: {http.listen: 127.0.0.1:1}\n",
         {.domain = "x"},
         "http.listen can't be set here"},
        {EU "regions: {eu: }\n", {.domain = "x", .data = "/data"}, "want s3://"},
        {EU "regions: {eu: {command: train}}\n",
         {.domain = "x", .data = "s3://b/u"},
         "the command of region eu reads its units from files"},
        {EU "regions: {eu: , us: {data: /here}}\n",
         {.domain = "x", .data = "s3://b/u"},
         "regions.us.data is set, but --data is a store"},
        {EU "regions: {eu: }\n", {.domain = "a b"}, "--domain a b"},
        {EU "regions: {eu: }\n", {.domain = "x."}, "--domain x."},
        {EU "regions: {eu: }\n", {.domain = "x", .name_space = "a.b"}, "--namespace a.b"},
        {EU "regions: {eu: }\n", {.domain = "x", .image = "a\nb: c"}, "no name of an image"},
    };
    for (size_t i = 0; i < sizeof of / sizeof of[0]; i++) {
        lh_err err = render(of[i].yaml, of[i].flags);
        assert_true(err);
        if (!strstr(lh_err_text(err), of[i].says)) fail_msg("%zu: %s", i, lh_err_text(err));
    }
}

int main(void)
{
    return test_run(setup, teardown);
}
