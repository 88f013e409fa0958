// The Gaussian mechanism without sampling, exactly: arXiv 1805.06530, theorem 8.
//
// T steps of noise multiplier sigma are one step of sigma / sqrt(T).
#ifndef LH_COMMON_PRIVACY_GAUSSIAN_H
#define LH_COMMON_PRIVACY_GAUSSIAN_H

// mu = sqrt(steps) / sigma.
double lh_gaussian_delta(double mu, double epsilon);
double lh_gaussian_epsilon(double mu, double delta); // never below 0

#endif
