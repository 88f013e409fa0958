// A path's round trip, and the patience that follows from it.
//
// Mean and spread are kept as TCP keeps them (RFC 6298): SRTT and RTTVAR. Whoever waits for a peer
// waits for the time that its setting names, which is enough on a short path, and on top for
// LH_TRIP_RTOS retransmission timeouts of the path (RTO = mean + 4 spreads). Why so many:
//
//   - The connection may stand: TCP sends a lost packet again after 1 RTO, then after 2 RTO each
//     time (transport_grpc_path.c caps its back-off there). Four losses in a row take
//     1 + 2 + 2 + 2 RTO, the packet's own way the rest; where 5 % are lost, that is one packet in
//     160,000.
//   - It may have been given up in a cut: 2 RTO until then, 4 round trips for a new one (TCP 1,
//     TLS 2, HTTP/2 settings 1), 1 for the message, and 1 RTO for one packet that is lost on the
//     way.
//
// Pure: times are given. What a peer says of its path is bounded when it is read.
#ifndef LH_COMMON_TRIP_H
#define LH_COMMON_TRIP_H

#include <stdbool.h>
#include <stdint.h>

enum { LH_TRIP_RTOS = 8 };
enum { LH_TRIP_US_MAX = 60 * 1000000 }; // bound of mean and spread: no path of ours takes a minute

struct lh_trip {
    int64_t mean_ns, spread_ns; // mean 0: not known
};

// Takes a measured round trip. The first one is the mean, and half of it the spread.
void lh_trip_take(struct lh_trip *t, int64_t sample_ns);
// A trip as a peer says it, in us. A mean of 0 is not known; what is too long counts as
// LH_TRIP_US_MAX.
struct lh_trip lh_trip_said(uint32_t mean_us, uint32_t spread_us);
uint32_t lh_trip_us(int64_t ns); // as the wire has it: rounded up, LH_TRIP_US_MAX at most
// Retransmission timeout; 0 where the trip is not known.
int64_t lh_trip_rto_ns(const struct lh_trip *t);
// `least_ns` and what the path needs on top, together `most_ns` at most. Never below `least_ns`,
// and `least_ns` itself where the trip is not known, or `most_ns` is less than it.
int64_t lh_trip_patience_ns(const struct lh_trip *t, int64_t least_ns, int64_t most_ns);

#endif
