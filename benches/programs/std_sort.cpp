// C++'s std::sort on numbers in no order (xDM's Table V).
//
// usage: std_sort MIB      (MIB: the numbers)
// Output: how many there are and a digest of their order, the same on every run.
#include "common.h"
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <vector>

int main(int argc, char **argv) {
    const uint64_t count = argc == 2 ? (strtoull(argv[1], nullptr, 10) << 20) / sizeof(uint64_t) : 0;
    if (!count) return fprintf(stderr, "usage: std_sort MIB\n"), 2;
    std::vector<uint64_t> numbers(count);
    for (uint64_t &number : numbers) number = next() % (count * 16);
    const uint64_t sum = std::accumulate(numbers.begin(), numbers.end(), uint64_t(0));
    {
        Timed timed;
        std::sort(numbers.begin(), numbers.end());
    }
    uint64_t digest = 0, sorted_sum = 0;
    for (uint64_t number : numbers) digest = scattered(digest ^ number), sorted_sum += number;
    const bool right = sorted_sum == sum && std::is_sorted(numbers.begin(), numbers.end());
    printf("%llu %s, digest %016llx\n", (unsigned long long)count, right ? "sorted" : "NOT SORTED", (unsigned long long)digest);
    return !right;
}
