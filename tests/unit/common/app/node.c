// ctest: app_node
// A node takes its identity from its certificate.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/app/node.h"
#include "tests/remove_tree.h"
#include "tests/test.h"

TEST(a_certificate_gives_the_nodes_identity)
{
    char dir[] = "/tmp/longhaul-node-XXXXXX", cert[64], ca[64], none[64];
    assert_non_null(mkdtemp(dir));
    const struct lh_peer peer = {LH_S, "example.org", "demo", "eu", "s0"};
    assert_int_equal(lh_certs_ca_create(dir, peer.domain, 9, false), LH_OK);
    assert_int_equal(lh_certs_issue(dir, &peer, 9, dir, false), LH_OK);
    snprintf(cert, sizeof cert, "%s/s0.pem", dir);
    snprintf(ca, sizeof ca, "%s/ca.pem", dir);
    snprintf(none, sizeof none, "%s/none.pem", dir);
    struct lh_node node = {.tls.cert = cert};
    struct lh_certs_info is;
    assert_int_equal(lh_node_identity(&node, &is), LH_OK);
    assert_int_equal(is.peer.role, LH_S);
    assert_string_equal(is.peer.domain, "example.org");
    assert_string_equal(is.peer.run, "demo");
    assert_string_equal(is.peer.region, "eu");
    assert_string_equal(is.peer.name, "s0");
    node.tls.cert = ca;
    assert_int_equal(lh_node_identity(&node, &is), LH_ERR_CONFIG);
    assert_non_null(strstr(lh_err_text(LH_ERR_CONFIG), "is a CA's"));
    node.tls.cert = none;
    lh_err err = lh_node_identity(&node, &is);
    assert_int_not_equal(err, LH_OK);
    assert_memory_equal(lh_err_text(err), "tls.cert: ", 10);
    assert_int_equal(remove_tree(dir), 0);
}
