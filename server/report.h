// Report: sends the shards' state to the coordinator.
#ifndef PS_REPORT_H
#define PS_REPORT_H

#include <stdint.h>

struct lh_unary;
struct ps_server;

// Reports that may be under way at once: as many as become due within one's deadline.
enum { PS_REPORTS_MAX = 32 };
struct ps_report {
    struct ps_server *server;
    struct lh_unary *call; // NULL: free
    uint64_t number;       // the report's number, ascending
};

void ps_report_start(struct ps_server *s);
void ps_report_now(struct ps_server *s);    // without waiting for its time
void ps_report_forget(struct ps_server *s); // ignores the answers to reports under way

#endif
