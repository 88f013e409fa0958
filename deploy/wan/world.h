// A world: regions, and a link for each directed pair of them. Everything the emulator knows.
//
// Times are in ns of CLOCK_MONOTONIC. Region n (from 0, in the order of the file) has the network
// 10.77.(n+1).0/24.
#ifndef LH_DEPLOY_WAN_WORLD_H
#define LH_DEPLOY_WAN_WORLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    DP_WORLD_REGIONS_MAX = 64,
    DP_WORLD_HOSTS_MAX = 250,
    DP_WORLD_SYSCTLS_MAX = 32,
    DP_WORDS_MAX = 64,
    DP_WORLD_NAME_BYTES = 24,
    DP_LINE_BYTES = 1024,
};
#define DP_SECOND INT64_C(1000000000)

struct dp_settings {
    int64_t delay;  // one way
    int64_t jitter; // greatest deviation from it
    double rate;    // bit/s, 0: unlimited
    double queue;   // longest backlog of the wire, in ns or bytes
    bool queue_in_bytes;
    double loss; // probability
    bool reorder;
    bool up;
};

struct dp_counters {
    uint64_t offered_packets, offered_bytes;
    uint64_t delivered_packets, delivered_bytes;
    uint64_t lost, overflowed, severed; // packets dropped: at random, at a full queue, by a cut
    uint64_t handovers;           // packets handed to the receiving kernel; one may carry many
    int64_t late_total, late_max; // sum and maximum of how far handovers lay behind their due time
};

struct dp_world_link {
    struct dp_settings settings;
    struct dp_counters count;
    uint64_t in_flight; // packets
    int to;
    uint32_t epoch;      // each cut starts a new one and severs the old one's packets
    int64_t wire_free;   // when the wire will have sent all it was given
    int64_t last_due;    // when the last packet arrives
    int64_t drift_start; // the delay drifts in a straight line from one random level to the next
    double drift_level, drift_next;
};

struct dp_world_region {
    char name[DP_WORLD_NAME_BYTES];
    int hosts;
    int tun; // descriptor; -1 before the region is made
};

struct dp_flight;
struct dp_packet;

// The packets in flight on all links, and how punctual the daemon is.
struct dp_line {
    struct dp_flight *flight; // a binary heap, the first due at its root
    size_t count, capacity;
    uint64_t number, bytes;
    struct dp_packet *buffer; // the next packet is read into it
    // Waking the daemon takes the machine some time. The daemon learns how long, sleeps that much
    // less, and dates back the packets that woke it.
    int64_t wake_lag;    // the median of late
    int64_t arrival_lag; // lag of the packets that are about to be read
    uint64_t chance;     // state of the random numbers
};

struct dp_world {
    const char *instance;
    struct dp_world_region region[DP_WORLD_REGIONS_MAX];
    int regions;
    struct dp_world_link link[DP_WORLD_REGIONS_MAX][DP_WORLD_REGIONS_MAX]; // [from][to]
    int mtu;
    char sysctl[DP_WORLD_SYSCTLS_MAX][DP_LINE_BYTES]; // KEY=VALUE
    int sysctls;
    struct dp_line line;
};

#endif
