// A path's round trip, and the time-outs that follow from it.
//
// Mean and spread are TCP's SRTT and RTTVAR (RFC 6298). A wait for a peer lasts for its setting,
// which is enough on a short path, plus LH_TRIP_RTOS retransmission timeouts of the path (RTO =
// mean + 4 spreads). The reasons for this number:
//
//   - The connection may still be open: TCP retransmits a lost packet after 1 RTO, then after 2 RTO
//     each time (transport_grpc_path.c caps the backoff there). Four losses in a row take 1 + 2 + 2
//     + 2 RTO, the packet's own trip the rest; at 5 % loss that is one packet in 160,000.
//   - An outage may have closed it: 2 RTO until then, 4 round trips for a new connection (TCP 1,
//     TLS 2, HTTP/2 settings 1), 1 for the message, and 1 RTO for one lost packet.
//
// Pure: callers pass the times. A peer's report of its path is bounded when read.
#ifndef LH_COMMON_TRIP_H
#define LH_COMMON_TRIP_H

#include <stdbool.h>
#include <stdint.h>

enum { LH_TRIP_RTOS = 8 };
enum { LH_TRIP_US_MAX = 60 * 1000000 }; // bound of mean and spread; real paths are far shorter

struct lh_trip {
    int64_t mean_ns, spread_ns; // mean 0: unknown
};

// A trip that a peer reports, in us. Mean 0: unknown; longer values count as LH_TRIP_US_MAX.
struct lh_trip lh_trip_said(uint32_t mean_us, uint32_t spread_us);
uint32_t lh_trip_us(int64_t ns); // the wire's value: rounded up, at most LH_TRIP_US_MAX
// Retransmission timeout; 0: the trip is unknown.
int64_t lh_trip_rto_ns(const struct lh_trip *t);
// `least_ns` plus LH_TRIP_RTOS retransmission timeouts, at most `most_ns`, never below `least_ns`;
// just `least_ns` if the trip is unknown.
int64_t lh_trip_patience_ns(const struct lh_trip *t, int64_t least_ns, int64_t most_ns);

#endif
