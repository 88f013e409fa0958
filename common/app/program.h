// A program of one settings table: what longhaul-server and longhaul-worker have in common.
//
// lh_program_main() is the whole life of such a process: command line and settings, log, keys,
// manifest, certificates and transport; then the application starts its core on the loop, and
// status.json is renewed about once a second; then, after lh_program_end() or a signal, an orderly
// end. SIGTERM and SIGINT end it with 0, errors with their exit code (exit.h). A service manager
// hears when it is ready, as /readyz says, that its loop is alive, and that it ends (notify.h).
//
// DIR/status.json is the application's object plus "pid", "time_s" (since 1970), "up_s", "version",
// "disk_free_bytes", "certificate_expires_s", "http" (address of its HTTP server, where it has
// one), "wire_up_bytes", "wire_down_bytes" (of this process's sockets), "peak_bytes" (of memory),
// "cpu_s" and "loop_longest_ms" (the longest that one function kept the loop since the status
// before). It is replaced whole, and not synced: it tells the living.
#ifndef LH_COMMON_PROGRAM_H
#define LH_COMMON_PROGRAM_H

#include "common/app/node.h"
#include "common/env/log.h"
#include "common/format/frame.h"
#include "common/format/manifest.h"
#include "common/net/transport.h"

struct lh_http;
struct lh_tensorboard;
struct lh_program;

struct lh_app {
    const struct lh_config_table *table; // its settings begin with a struct lh_node
    enum lh_role (*role)(const void *settings);
    unsigned (*part)(const void *settings); // number among processes of one name; NULL: one
    // HTML that its HTTP server shows; NULL: none. It may be NULL itself.
    const char *(*page)(const void *settings);
    bool lock; // takes DIR/lock; false: the core does it itself
    // All on the loop's thread. `self` is what lh_program_main was given.
    lh_err (*start)(void *self, struct lh_program *p);
    lh_err (*status)(void *self, struct lh_buf *out); // appends one JSON object
    void (*tick)(void *self);                         // comes with every status; may be NULL
    // Says whether the run has ended here: then a status says so at once; may be NULL.
    bool (*over)(void *self);
    lh_err (*settle)(void *self); // a signal asked for the end: the last durable word, after
                                  // close(), when the lanes are at rest; may be NULL
    void (*close)(void *self);    // sends nothing any more, takes no calls; its memory stays
    void (*stop)(void *self);     // frees it; nothing calls it any more
};

struct lh_program {
    const struct lh_app *app;
    void *self;
    struct lh_config *config;
    const void *settings;
    const struct lh_node *node; // the settings' first member
    struct lh_env *env;
    struct lh_log *log;
    struct lh_peer peer; // this process as its peers see it
    uint8_t job[LH_JOB_BYTES];
    struct lh_keyring *keys; // NULL: the settings name none
    struct lh_manifest manifest;
    struct lh_transport *transport;
    struct lh_http *http;               // NULL: http.listen is empty
    struct lh_tensorboard *tensorboard; // NULL: log.tensorboard is empty; the status' lane's
    lh_err board_result;
    bool board_fails; // the last metrics could not be written there
    struct {          // the loop's, but for what the status' lane found last
        uint64_t disk_free, next_disk_free;
        int64_t certificate_ends_s, next_ends_s; // seconds since 1970; 0: not looked at
        int64_t looked_s;                        // when the certificate was looked at
    } limits;
    struct lh_file *lock;
    int64_t started_ns;
    uint64_t timer, over_timer;
    int lanes_busy;
    bool ended, asked;          // asked: by a signal
    bool watchdog, told_ready;  // what the service manager wants to hear, and has heard (notify.h)
    struct lh_buf status, last; // texts of status.json: being written; as the loop ended
    bool status_writing;        // on its lane
    atomic_bool status_shown;   // the one that is being written is on the page
    lh_err status_result;       // result of the last status that was written, and its text
    char status_text[400];
    bool status_fails; // status.json could not be written last time
    lh_err result;
};

int lh_program_main(const struct lh_app *app, void *self, int argc, char **argv);

// Ends the program soon, with this result; the first one counts. On the loop only.
void lh_program_end(struct lh_program *p, lh_err result);
// The same as a core's `fatal`; arg is the program. The core has logged the text.
void lh_program_fatal(void *arg, lh_err err, const char *text);

// Files that settings name. A missing one is LH_ERR_NOT_FOUND with the setting's key.
LH_MUST lh_err lh_program_load(struct lh_program *p, const char *key, const char *path, size_t max,
                               struct lh_buf *out);
// "listening HOST:PORT" on standard output, for whoever started this with port 0.
void lh_program_listening(const char *address);

#endif
