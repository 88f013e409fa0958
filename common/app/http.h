// The HTTP/1.1 server of a program, read-only: for Prometheus, for probes and for a browser.
//
//   /metrics       the registry's metrics (metrics.h), Prometheus' text format 0.0.4
//   /healthz       200 while the program's loop publishes its status, 503 when the last is 15 s old
//   /readyz        200 once the status has "ready": true, else 503 and the reason
//   /status.json   the last status
//   /history.json  its curves (history.h), if the program records them
//   /log           the last 64 KiB of its log file
//   /              the page, if the program has one
//
// GET and HEAD only. There is no TLS and no login: the server listens on loopback unless `listen`
// names another host. Its own thread answers from the last published status, so requests and the
// program's loop never wait for each other. It keeps at most LH_HTTP_PEERS connections: a further
// one ends the oldest. It closes one that is silent for 10 s.
#ifndef LH_COMMON_HTTP_H
#define LH_COMMON_HTTP_H

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/env/env.h"

enum { LH_HTTP_PEERS = 32 };

struct lh_http;

struct lh_http_conf {
    const char *listen;   // host:port, the host an address or "localhost", port 0: any; or fd:N
    struct lh_env *env;   // borrowed; its clock and files work on any thread
    const char *log_file; // "": /log names the log's destination instead
    const char *page;     // HTML of "/"; NULL: none. Lives as long as the server
    double history_s;     // initial interval of the curves' samples; 0: no curves
};

// LH_ERR_CONFIG: `listen` is malformed, or another program uses the address.
LH_MUST lh_err lh_http_start(const struct lh_http_conf *conf, struct lh_http **out);
void lh_http_stop(struct lh_http *h);                 // NULL is allowed
const char *lh_http_address(const struct lh_http *h); // host:port as bound
// Copies `status`, a JSON object. Any thread, one at a time.
void lh_http_publish(struct lh_http *h, struct lh_span status);

#endif
