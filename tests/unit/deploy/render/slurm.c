// Batch scripts for Slurm: the resources they request, the processes of each host, and topologies
// that are refused.
#include "tests/unit/deploy/render/render_rig.h"

#define TOP                                                                                        \
    "run: tiny\nbudget_tokens: 100000\n" MODEL "coordinator: {region: eu}\n"                       \
    "servers: [{name: s0, region: eu, shards: [0]}]\n"

static lh_err render(const char *yaml, const char *coordinator)
{
    return render_with(dp_render_slurm, yaml, (struct dp_render_flags){.coordinator = coordinator});
}

TEST(a_region_of_each_kind)
{
    assert_int_equal(render(TOP "regions:\n  eu: {workers: 3}\n  us: {gpus: 6, hosts: 2}\n"
                                "  ap: {ranks: 3, hosts: 2}\n"
                                "  af: {command: [python, \"it's.py\", \"{worker}\", \"{data}\"]}\n"
                                "  na: {data: /data/here}\n",
                            "c.example.org:7700"),
                     LH_OK);
    has("eu/eu.sbatch", "\n#SBATCH --array=0-2\n");
    has("eu/eu.sbatch", "\n#SBATCH --signal=B:TERM@120\n#SBATCH --requeue\n");
    has("eu/eu-2.yaml", "coordinator: \"c.example.org:7700\"\n");
    has("eu/eu-2.yaml", "tls.key: \"secrets/eu-2.key\"\n");
    has("eu/eu-2.yaml", "dir: \"eu-2\"\n");
    has("eu/model.json", "\"tensors\"");
    has("us/us.sbatch", "\n#SBATCH --nodes=2\n");
    has("us/us.sbatch", "\n#SBATCH --gres=gpu:3\n");
    has("us/us.sbatch", "NCCL_SOCKET_IFNAME");
    has("us/host.sh", "\n0) names=\"us-$worker us-$worker.1 us-$worker.2\" ;;\n"
                      "1) names=\"us-$worker.3 us-$worker.4 us-$worker.5\" ;;\n");
    has("us/us-0.5.yaml", "ranks.reduce: \"nccl\"\n");
    has("ap/host.sh", "--set \"ranks.leader=$LEADER\" --set \"ranks.address=$ADDRESS\"");
    has("ap/host.sh", "\n0) names=\"ap-$worker ap-$worker.1\" ;;\n1) names=\"ap-$worker.2\" ;;\n");
    has("af/host.sh", "\n0) set -- 'python' 'it'\\''s.py' 'af-0' 'data' ;;\n");
    has("af/af-0.yaml", "trainer.kind: \"external\"\n");
    has("na/na-0.yaml", "data.units: \"data/units.json\"\n");
    has("na/na-0.yaml", "data.dir: \"/data/here\"\n");
    has("files/model.json", "\"tensors\"");
    assert_int_equal(render(TOP "regions: {eu: }\nserver: {coordinator.store: etcd://e:1/x}\n",
                            "a.example.org:7700,b.example.org:7700"),
                     LH_OK);
    has("eu/eu-0.yaml", "coordinator: \"a.example.org:7700,b.example.org:7700\"\n");
}

TEST(unusable_names_and_settings_are_refused)
{
    static const struct {
        const char *yaml, *coordinator, *says;
    } of[] = {
        {TOP "regions: {eu: , files: }\n", "c:7700", "a region named files"},
        {TOP "regions: {eu: }\n", "nowhere", "--coordinator"},
        {TOP "regions: {eu: }\n", "a:1,nowhere", "--coordinator"},
        {TOP "regions: {eu: }\nworker: {dir: /x}\n", "c:7700", "dir can't be set here"},
        {"run: tiny\n", "c:7700", "budget_tokens"},
    };
    for (size_t i = 0; i < sizeof of / sizeof of[0]; i++) {
        lh_err err = render(of[i].yaml, of[i].coordinator);
        assert_true(err);
        if (!strstr(lh_err_text(err), of[i].says)) fail_msg("%zu: %s", i, lh_err_text(err));
    }
}

int main(void)
{
    return test_run(setup, teardown);
}
