// The four loops of STREAM (McCalpin), over three arrays: the memory bandwidth of xDM's Table V.
//
// usage: stream MIB [ROUNDS]      (MIB: all three arrays together; 4 rounds of the four loops)
// Output: a sum of each array, the same on every run, and whether all numbers are what the loops make of the first ones.
#include "common.h"
#include <cstdio>
#include <cstdlib>
#include <vector>

// With a half and small integers at first, numbers are exact for 18 rounds.
constexpr double SCALAR = 0.5;

static double first(uint64_t at) { return static_cast<double>(scattered(at) % 1024); }

// Each loop by itself, as in STREAM: four passes, none of which is joined with the next.
__attribute__((noinline)) void copy(double *to, const double *from, uint64_t count) {
    for (uint64_t i = 0; i < count; i++) to[i] = from[i];
}

__attribute__((noinline)) void scale(double *to, const double *from, uint64_t count) {
    for (uint64_t i = 0; i < count; i++) to[i] = SCALAR * from[i];
}

__attribute__((noinline)) void add(double *to, const double *left, const double *right, uint64_t count) {
    for (uint64_t i = 0; i < count; i++) to[i] = left[i] + right[i];
}

__attribute__((noinline)) void triad(double *to, const double *left, const double *right, uint64_t count) {
    for (uint64_t i = 0; i < count; i++) to[i] = left[i] + SCALAR * right[i];
}

int main(int argc, char **argv) {
    const uint64_t count = argc > 1 ? (strtoull(argv[1], nullptr, 10) << 20) / (3 * sizeof(double)) : 0;
    const uint64_t rounds = argc > 2 ? strtoull(argv[2], nullptr, 10) : 4;
    if (!count) return fprintf(stderr, "usage: stream MIB [ROUNDS]\n"), 2;
    std::vector<double> a(count), b(count), c(count);
    for (uint64_t i = 0; i < count; i++) a[i] = first(i);
    rounds_over(0);
    for (uint64_t round = 1; round <= rounds; round++) {
        copy(c.data(), a.data(), count);
        scale(b.data(), c.data(), count);
        add(c.data(), a.data(), b.data(), count);
        triad(a.data(), b.data(), c.data(), count);
        rounds_over(round);
    }
    double sums[3] = {};
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < count; i++) {
        double of_a = first(i), of_b = 0, of_c = 0;
        for (uint64_t round = 0; round < rounds; round++) of_b = SCALAR * of_a, of_c = of_a + of_b, of_a = of_b + SCALAR * of_c;
        wrong += a[i] != of_a || b[i] != of_b || c[i] != of_c;
        sums[0] += a[i], sums[1] += b[i], sums[2] += c[i];
    }
    printf("sums %.3f %.3f %.3f\n%llu wrong\n", sums[0], sums[1], sums[2], (unsigned long long)wrong);
    return wrong != 0;
}
