// Issues an expired certificate for a test; the tool refuses to.
// e2e_issue CA_DIR OUT_DIR DOMAIN RUN ROLE REGION NAME
#include <stdio.h>

#include "common/security/certs.h"

int main(int argc, char **argv)
{
    struct lh_peer peer = {0};
    if (argc != 8) return 2;
    snprintf(peer.domain, sizeof peer.domain, "%s", argv[3]);
    snprintf(peer.run, sizeof peer.run, "%s", argv[4]);
    snprintf(peer.region, sizeof peer.region, "%s", argv[6]);
    snprintf(peer.name, sizeof peer.name, "%s", argv[7]);
    lh_err err = lh_role_parse(argv[5], &peer.role);
    if (!err) err = lh_certs_issue(argv[1], &peer, 0, argv[2], true);
    if (err) fprintf(stderr, "e2e_issue: %s\n", lh_err_text(err));
    return err ? 1 : 0;
}
