// The way to the members of etcd: addresses, secrets, calls. See etcd_wire.c.
#ifndef PS_ETCD_WIRE_H
#define PS_ETCD_WIRE_H

#include "server/coordinator/store/etcd.h"

// An address as a setting has it: etcd://HOST:PORT[,HOST:PORT...][/PREFIX].
struct ps_etcd_place {
    char member[PS_ETCD_MEMBERS_MAX][128];
    uint32_t members;
    char prefix[128]; // begins with a slash, ends without one
};
bool ps_etcd_is(const char *setting); // is it one?
LH_MUST lh_err ps_etcd_parse(const char *setting, struct ps_etcd_place *out);

// A user's secrets are files of the folder `secrets`, each of which may be absent:
// ca.pem (then TLS), cert.pem and key.pem (a client's certificate), login (USER:PASSWORD).
LH_MUST lh_err ps_etcd_wire_open(const struct ps_etcd_place *place, const char *secrets,
                                 struct ps_etcd_wire *out);
// Reads the login of that folder; "" where there is none.
LH_MUST lh_err ps_etcd_login(const char *secrets, char out[PS_ETCD_LOGIN_BYTES]);

#endif
