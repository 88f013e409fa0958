// Certificates of a region's ranks and of strangers, in a folder of the test's own.
#ifndef REGION_CERTS_H
#define REGION_CERTS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/env/env.h"
#include "common/security/certs.h"
#include "tests/remove_tree.h"
#include "tests/test.h"
#include "worker/ranks/stream/tls.h"

#define CERTS_DOMAIN "test.local"

struct certs {
    struct lh_env *env;
    char dir[64], other[80]; // two authorities of one domain
    char path[16][3][192];   // CA, certificate and key of each issue
    int count;
};

static inline void open_certs(struct certs *c)
{
    *c = (struct certs){.count = 0};
    snprintf(c->dir, sizeof c->dir, "/tmp/lh_ranks.XXXXXX");
    assert_non_null(mkdtemp(c->dir));
    snprintf(c->other, sizeof c->other, "%s/other", c->dir);
    assert_int_equal(lh_env_real_create(&c->env), LH_OK);
    assert_int_equal(lh_certs_ca_create(c->dir, CERTS_DOMAIN, 10, false), LH_OK);
    assert_int_equal(lh_certs_ca_create(c->other, CERTS_DOMAIN, 10, false), LH_OK);
}

static inline void close_certs(struct certs *c)
{
    assert_int_equal(remove_tree(c->dir), 0);
    lh_env_real_destroy(c->env);
}

// Issues a certificate of this authority; returns the settings of a process of run r1 and region
// asia that uses it.
static inline struct wk_tls_conf issue_by(struct certs *c, const char *dir, enum lh_role role,
                                          const char *run, const char *region, int days)
{
    struct lh_peer p = {.role = role, .domain = CERTS_DOMAIN};
    int i = c->count++;
    assert_true(i < 16);
    snprintf(p.run, sizeof p.run, "%s", run);
    snprintf(p.region, sizeof p.region, "%s", region);
    snprintf(p.name, sizeof p.name, "n%d", i);
    assert_int_equal(lh_certs_issue(dir, &p, days, dir, false), LH_OK);
    snprintf(c->path[i][0], sizeof c->path[i][0], "%s/ca.pem", dir);
    snprintf(c->path[i][1], sizeof c->path[i][1], "%s/%s.pem", dir, p.name);
    snprintf(c->path[i][2], sizeof c->path[i][2], "%s/%s.key", dir, p.name);
    return (struct wk_tls_conf){.env = c->env,
                                .ca = c->path[i][0],
                                .cert = c->path[i][1],
                                .key = c->path[i][2],
                                .domain = CERTS_DOMAIN,
                                .run = "r1",
                                .region = "asia"};
}

static inline struct wk_tls_conf issue_rank(struct certs *c)
{
    return issue_by(c, c->dir, LH_W, "r1", "asia", 1);
}

#endif
