// What these programs share: random numbers that are the same in every run, and the seconds of what is measured.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>

// SplitMix64.
static uint64_t next() {
    static uint64_t state = 1;
    uint64_t x = state += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

// Says on standard error how many seconds passed until its end.
struct Timed {
    std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
    ~Timed() { fprintf(stderr, "seconds %.6f\n", std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count()); }
};
