// What these programs share: random numbers that are the same in every run, the seconds of what is measured, and where it stands.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>

// What SplitMix64 makes of a number.
inline uint64_t scattered(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

// SplitMix64.
static uint64_t next() {
    static uint64_t state = 1;
    return scattered(state += 0x9e3779b97f4a7c15u);
}

// Says on standard error that so many rounds are over, and when by the monotonic clock.
inline void rounds_over(uint64_t rounds) {
    const std::chrono::duration<double> now = std::chrono::steady_clock::now().time_since_epoch();
    fprintf(stderr, "rounds %llu %.4f\n", (unsigned long long)rounds, now.count());
}

// Says on standard error how many seconds passed until its end.
struct Timed {
    std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
    ~Timed() { fprintf(stderr, "seconds %.6f\n", std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count()); }
};
