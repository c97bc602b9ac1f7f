// Loops whose addresses a compiler understands, over more memory than is local.
//
// usage: walks edges|sum|sparse|join MIB      (about so much memory)
// Output: what was computed, the same on every run and build; on standard error the seconds of the loops without what fills their memory.
//
//   edges   the running example of Mira: edges in order, each changes the nodes at its ends
//   sum     two passes over an array
//   sparse  a sparse matrix in compressed rows times a vector
//   join    rows in order look up their partners in a hash table
#include "common.h"
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

template <class T> using Array = std::unique_ptr<T[]>;

struct Edge {
    uint32_t from, to;
    double weight;
};

struct Node {
    double weight;
    uint64_t degree, rest[14];
};

__attribute__((noinline)) void traverse(const Edge *edges, Node *nodes, uint64_t count) {
    for (uint64_t i = 0; i < count; i++) {
        nodes[edges[i].from].weight += edges[i].weight;
        nodes[edges[i].to].degree++;
    }
}

// One byte in 64 is edges.
static void edges(uint64_t bytes) {
    uint64_t edge_count = bytes / 64 / sizeof(Edge), node_count = bytes * 63 / 64 / sizeof(Node);
    auto edges = Array<Edge>(new Edge[edge_count]);
    auto nodes = Array<Node>(new Node[node_count]);
    for (uint64_t i = 0; i < node_count; i++) nodes[i] = {0, 0, {next(), i}};
    for (uint64_t i = 0; i < edge_count; i++) edges[i] = {uint32_t(next() % node_count), uint32_t(next() % node_count), double(next() % 1000)};
    {
        Timed timed;
        traverse(edges.get(), nodes.get(), edge_count);
    }
    double sum = 0;
    for (uint64_t i = 0; i < node_count; i++) sum += nodes[i].weight * double(i % 7) + double(nodes[i].degree * (i % 5));
    printf("%.0f\n", sum);
}

__attribute__((noinline)) uint64_t add(const uint64_t *values, uint64_t count, uint64_t sum) {
    for (uint64_t i = 0; i < count; i++) sum += values[i] ^ sum >> 7;
    return sum;
}

static void sum(uint64_t bytes) {
    uint64_t count = bytes / sizeof(uint64_t);
    auto values = Array<uint64_t>(new uint64_t[count]);
    for (uint64_t i = 0; i < count; i++) values[i] = next();
    uint64_t result = 0;
    {
        Timed timed;
        for (int pass = 0; pass < 2; pass++) result = add(values.get(), count, result);
    }
    printf("%lu\n", result);
}

__attribute__((noinline)) void multiply(const uint64_t *rows, const uint32_t *columns, const double *values, const double *from, double *to, uint64_t count) {
    for (uint64_t row = 0; row < count; row++) {
        double sum = 0;
        for (uint64_t at = rows[row]; at < rows[row + 1]; at++) sum += values[at] * from[columns[at]];
        to[row] = sum;
    }
}

// Rows of 16 on average; one byte in 32 is the matrix, the rest the vector that it is multiplied with.
static void sparse(uint64_t bytes) {
    uint64_t filled = bytes / 32 / 12, count = filled / 16, width = bytes * 31 / 32 / sizeof(double);
    auto rows = Array<uint64_t>(new uint64_t[count + 1]);
    auto columns = Array<uint32_t>(new uint32_t[filled]);
    auto values = Array<double>(new double[filled]), from = Array<double>(new double[width]), to = Array<double>(new double[count]);
    rows[0] = 0;
    for (uint64_t row = 0; row < count; row++) rows[row + 1] = rows[row] + next() % 33;
    for (uint64_t row = 0; row <= count; row++) rows[row] = rows[row] < filled ? rows[row] : filled;
    for (uint64_t i = 0; i < filled; i++) columns[i] = next() % width, values[i] = double(next() % 100);
    for (uint64_t i = 0; i < width; i++) from[i] = double(next() % 100);
    {
        Timed timed;
        multiply(rows.get(), columns.get(), values.get(), from.get(), to.get(), count);
    }
    double sum = 0;
    for (uint64_t row = 0; row < count; row++) sum += to[row] * double(row % 9);
    printf("%.0f\n", sum);
}

struct Partner {
    uint64_t key, value;
};

constexpr uint64_t factor = 0x9e3779b97f4a7c15u;

static uint64_t hash(uint64_t key) { return key * factor; }

__attribute__((noinline)) uint64_t look_up(const uint64_t *keys, uint64_t count, const Partner *table, uint64_t mask) {
    uint64_t sum = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t slot = hash(keys[i]) & mask;
        while (table[slot].key && table[slot].key != keys[i]) slot = (slot + 1) & mask;
        sum += table[slot].value;
    }
    return sum;
}

// A table that is half full, each key in the slot of its hash, and one byte in 64 as keys that are looked up.
static void join(uint64_t bytes) {
    uint64_t slots = 1;
    while (slots * 2 * sizeof(Partner) <= bytes) slots *= 2;
    uint64_t mask = slots - 1, count = bytes / 64 / sizeof(uint64_t);
    uint64_t inverse = factor; // modulo 2^64: each step doubles the bits that are right, of which the first three are
    for (int step = 0; step < 5; step++) inverse *= 2 - factor * inverse;
    auto table = Array<Partner>(new Partner[slots]);
    auto keys = Array<uint64_t>(new uint64_t[count]);
    for (uint64_t slot = 0; slot < slots; slot++) table[slot] = next() % 2 ? Partner{slot * inverse & mask, next() % 1000} : Partner{0, 0};
    for (uint64_t i = 0; i < count; i++) keys[i] = next() & mask;
    uint64_t result;
    {
        Timed timed;
        result = look_up(keys.get(), count, table.get(), mask);
    }
    printf("%lu\n", result);
}

int main(int argc, char **argv) {
    uint64_t bytes = argc == 3 ? strtoull(argv[2], nullptr, 10) << 20 : 0;
    if (!bytes) return fprintf(stderr, "usage: walks edges|sum|sparse|join MIB\n"), 2;
    if (!strcmp(argv[1], "edges")) edges(bytes);
    else if (!strcmp(argv[1], "sum")) sum(bytes);
    else if (!strcmp(argv[1], "sparse")) sparse(bytes);
    else if (!strcmp(argv[1], "join")) join(bytes);
    else return fprintf(stderr, "walks: nothing is called '%s'\n", argv[1]), 2;
}
