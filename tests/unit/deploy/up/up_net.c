// The emulated regions of `longhaul up`: the input of the emulator.
#include <string.h>

#include "common/base/check.h"
#include "deploy/up/up_net.h"
#include "tests/test.h"

// Returns the emulator's input for two or three regions with these `link` and `links` settings.
static struct lh_buf world(const char *links)
{
    char text[1024];
    struct dp_topology *t;
    struct lh_buf out = lh_buf(4096);
    snprintf(text, sizeof text,
             "run: demo\nbudget_tokens: 1000\ncoordinator: {region: asia}\n"
             "servers: [{name: s0, region: asia, shards: [0]}]\n"
             "regions: {asia: , europe: , america: }\n%s",
             links);
    lh_err err = dp_topology_parse("t", lh_span_str(text), &t);
    if (err) fail_msg("%s", lh_err_text(err));
    dp_net_world(t, &out);
    lh_put(&out, "", 1);
    assert_int_equal(lh_buf_err(&out), LH_OK);
    dp_topology_free(t);
    return out;
}

static void says(const char *links, const char *words)
{
    struct lh_buf out = world(links);
    const char *text = (const char *)out.data;
    if (words ? !strstr(text, words) : !!strstr(text, "sysctl")) fail_msg("%s", text);
    lh_buf_free(&out);
}

TEST(regions_and_links)
{
    struct lh_buf out = world("link: {rtt_ms: 90, mbit: 50, loss_percent: 0.5}\n"
                              "links: [{from: asia, to: europe, rtt_ms: 200, mbit: 100}]\n");
    assert_string_equal((const char *)out.data,
                        "region asia\nregion europe\nregion america\n"
                        "link asia europe rtt=200ms rate=100mbit\n"
                        "link asia america rtt=90ms rate=50mbit loss=0.5%\n"
                        "link europe america rtt=90ms rate=50mbit loss=0.5%\n"
                        "sysctl net.ipv4.tcp_rmem=4096 131072 33554432\n");
    lh_buf_free(&out);
}

// Buffers are twice the bandwidth-delay product of the longest link, so that TCP limits a sender,
// and not gRPC's window.
TEST(a_host_holds_twice_what_is_under_way)
{
    says("link: {rtt_ms: 150, mbit: 1000}\n", "tcp_rmem=4096 131072 37500000\n");
    says("link: {rtt_ms: 10, mbit: 100}\n"
         "links: [{from: europe, to: america, rtt_ms: 300, mbit: 1000}]\n",
         "tcp_rmem=4096 131072 75000000\n");
    says("link: {rtt_ms: 150, mbit: 1000}\n"
         "links: [{from: asia, to: europe, rtt_ms: 10, mbit: 0}]\n",
         NULL); // no rate, no queue
}
