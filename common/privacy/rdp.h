// Rényi differential privacy of the Poisson-sampled Gaussian mechanism.
#ifndef LH_COMMON_PRIVACY_RDP_H
#define LH_COMMON_PRIVACY_RDP_H

#include <stdbool.h>
#include <stddef.h>

// Orders 1.1 to 10.9 in steps of 0.1, 11 to 63, and 128, 256, 512, 1024: those of dp-accounting.
enum { LH_RDP_ORDERS = 99 + 53 + 4 };
double lh_rdp_order(size_t i); // i < LH_RDP_ORDERS

// Divergence of one step at an order above 1: an upper bound; INFINITY if none was found. 0 <= q <=
// 1, sigma > 0.
double lh_rdp_step(double sigma, double q, double order);

// Converts a divergence at an order into epsilon at delta.
double lh_rdp_epsilon(double divergence, double order, double delta); // arXiv 2004.00010

// Divergences of one step at all orders. With them epsilon after any number of steps costs next to
// nothing.
void lh_rdp_curve(double sigma, double q, double divergence[LH_RDP_ORDERS]);
// The smallest epsilon over all orders, and the order that gave it (`order` may be NULL).
double lh_rdp_curve_best(const double divergence[LH_RDP_ORDERS], double steps, double delta,
                         double *order);
double lh_rdp_best(double sigma, double q, double steps, double delta, double *order);

#endif
