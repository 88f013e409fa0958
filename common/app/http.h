// The HTTP/1.1 server of a program, read-only: for Prometheus, for probes and for a browser.
//
//   /metrics       the registry's metrics (metrics.h), Prometheus' text format 0.0.4
//   /healthz       200 while the program's loop tells its state, 503 when that is 15 s old
//   /readyz        200 once the status has "ready": true, else 503 and why
//   /status.json   the last status
//   /history.json  its curves (history.h), where the program keeps them
//   /log           the last 64 KiB of its log file
//   /              the page, where the program has one
//
// GET and HEAD only. There is neither TLS nor a login: it listens on loopback unless told
// otherwise. It runs on a thread of its own from the last status that was published, so a request
// never waits for the program's loop and the loop never for a request. LH_HTTP_PEERS connections
// at most, 10 s each without a word.
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
    const char *log_file; // "": /log says where the log is
    const char *page;     // HTML of "/"; NULL: none. Lives as long as the server
    double history_s;     // distance of the curves' first points; 0: no curves
};

// LH_ERR_CONFIG names what of `listen` is wrong or used by another program.
LH_MUST lh_err lh_http_start(const struct lh_http_conf *conf, struct lh_http **out);
void lh_http_stop(struct lh_http *h);                 // NULL is allowed
const char *lh_http_address(const struct lh_http *h); // host:port as bound
// Takes a copy of a status, which is a JSON object. Any thread, one at a time.
void lh_http_publish(struct lh_http *h, struct lh_span status);

#endif
