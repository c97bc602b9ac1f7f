// Loops that may end early, and loops whose memory is walked in a function that they call, over more memory than is local.
//
// usage: searches find|rank MIB      (about so much memory)
// Output: what was found, the same on every run and build; on standard error the seconds of the loops without what fills their memory.
//
//   find  the place in a table that holds a value, along places in any order: once to the last one, and many times to one of the first
//   rank  rows in any order, each of which a function that is not inlined sums up, with its length as an argument
#include "common.h"
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

template <class T> using Array = std::unique_ptr<T[]>;

__attribute__((noinline)) uint64_t search(const uint32_t *places, const uint64_t *values, uint64_t count, uint64_t wanted) {
    for (uint64_t i = 0; i < count; i++)
        if (values[places[i]] == wanted) return i;
    return count;
}

// One byte in 128 is places.
static void find(uint64_t bytes) {
    uint64_t place_count = bytes / 128 / sizeof(uint32_t), value_count = bytes * 127 / 128 / sizeof(uint64_t), few = 64;
    auto places = Array<uint32_t>(new uint32_t[place_count]);
    auto values = Array<uint64_t>(new uint64_t[value_count]);
    for (uint64_t i = 0; i < value_count; i++) values[i] = next() | 1;
    for (uint64_t i = 0; i < place_count; i++) places[i] = uint32_t(next() % value_count);
    uint64_t last = 0, sum = 0;
    values[places[place_count - 1]] = last; // which no other has
    {
        Timed timed;
        sum = search(places.get(), values.get(), place_count, last);
        for (uint64_t i = 0; i < 1000; i++) {
            uint64_t from = next() % (place_count - few), wanted = values[places[from + next() % few]];
            sum += search(&places[from], values.get(), place_count - from, wanted);
        }
    }
    printf("%lu\n", sum);
}

__attribute__((noinline)) double total(const double *row, uint64_t length) {
    double sum = 0;
    for (uint64_t i = 0; i < length; i++) sum = sum / 2 + row[i];
    return sum;
}

__attribute__((noinline)) uint64_t best(const double *matrix, const uint32_t *order, uint64_t rows, uint64_t length) {
    uint64_t best = 0;
    double most = 0;
    for (uint64_t i = 0; i < rows; i++) {
        double sum = total(matrix + order[i] * length, length);
        if (sum > most) most = sum, best = i;
    }
    return best;
}

// Rows of 300 numbers, less than a page.
static void rank(uint64_t bytes) {
    uint64_t length = 300, rows = bytes / (length * sizeof(double) + sizeof(uint32_t));
    auto matrix = Array<double>(new double[rows * length]);
    auto order = Array<uint32_t>(new uint32_t[rows]);
    for (uint64_t i = 0; i < rows * length; i++) matrix[i] = double(next() % 1000);
    for (uint64_t i = 0; i < rows; i++) order[i] = uint32_t(i);
    for (uint64_t i = rows - 1; i > 0; i--) std::swap(order[i], order[next() % (i + 1)]);
    uint64_t found;
    {
        Timed timed;
        found = best(matrix.get(), order.get(), rows, length);
    }
    printf("%lu %u\n", found, order[found]);
}

int main(int argc, char **argv) {
    uint64_t bytes = argc == 3 ? strtoull(argv[2], nullptr, 10) << 20 : 0;
    if (!bytes) return fprintf(stderr, "usage: searches find|rank MIB\n"), 2;
    if (!strcmp(argv[1], "find")) find(bytes);
    else if (!strcmp(argv[1], "rank")) rank(bytes);
    else return fprintf(stderr, "searches: nothing is called '%s'\n", argv[1]), 2;
}
