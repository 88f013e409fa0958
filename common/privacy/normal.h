// The normal distribution's tails in doubles, with relative accuracy.
#ifndef LH_COMMON_PRIVACY_NORMAL_H
#define LH_COMMON_PRIVACY_NORMAL_H

double lh_log_erfc(double x);                 // log(erfc(x)), even if erfc(x) underflows
double lh_normal_log_below(double x);         // log P(Z <= x)
double lh_normal_above(double x);             // P(Z > x)
double lh_normal_between(double a, double b); // P(a < Z <= b); infinities are allowed; a <= b

double lh_log_sum(double a, double b); // log(e^a + e^b)

#endif
