// Breadth-first search or PageRank over a graph with a few popular vertices, in compressed rows.
//
// usage: graph search|rank SCALE EDGES      (2^SCALE vertices with EDGES edges each at the mean)
// Output: vertices reached and the sum of their distances for each of four searches, or the ranks' sum and maximum; the same on every run.
#include "common.h"
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

// A number below `bound` that is often small: its logarithm is uniform, as in Zipf's law.
static uint64_t often_small(uint64_t bound) {
    return static_cast<uint64_t>(std::pow(static_cast<double>(bound), (next() >> 11) * 0x1p-53)) - 1;
}

// Row after row, as a file would have it. Half of the edges lead to popular vertices, which lie anywhere.
struct Graph {
    std::vector<uint64_t> begin;
    std::vector<uint32_t> heads;

    uint64_t vertices() const { return begin.size() - 1; }
};

static Graph make(uint64_t vertices, uint64_t wanted) {
    Graph graph{std::vector<uint64_t>(vertices + 1), {}};
    auto &[begin, heads] = graph;
    heads.reserve(wanted);
    for (uint64_t v = 0; v < vertices; v++) {
        uint64_t degree = 1 + often_small(wanted / vertices * 8);
        if (v + 1 == vertices || heads.size() + degree > wanted) degree = wanted - heads.size();
        for (uint64_t e = 0; e < degree; e++) {
            uint64_t to = next() % 2 ? often_small(vertices) * 0x9e3779b1u : next();
            heads.push_back(to % vertices);
        }
        begin[v + 1] = heads.size();
    }
    return graph;
}

static void search(const Graph &graph) {
    const auto &[begin, heads] = graph;
    for (uint32_t start = 0; start < 4; start++) {
        std::vector<int32_t> distance(graph.vertices(), -1);
        std::vector<uint32_t> level{start}, following;
        distance[start] = 0;
        uint64_t reached = 1, sum = 0;
        for (int32_t depth = 1; !level.empty(); depth++, level.swap(following), following.clear())
            for (uint32_t v : level)
                for (uint64_t e = begin[v]; e < begin[v + 1]; e++)
                    if (distance[heads[e]] < 0) {
                        distance[heads[e]] = depth;
                        reached++, sum += depth;
                        following.push_back(heads[e]);
                    }
        std::printf("search %u: %llu reached, distances %llu\n", start, (unsigned long long)reached, (unsigned long long)sum);
    }
}

static void rank(const Graph &graph) {
    const auto &[begin, heads] = graph;
    const uint64_t vertices = graph.vertices();
    std::vector<double> rank(vertices, 1.0 / vertices), fresh(vertices);
    for (unsigned round = 0; round < 5; round++) {
        std::fill(fresh.begin(), fresh.end(), 0.15 / vertices);
        for (uint64_t v = 0; v < vertices; v++)
            for (uint64_t e = begin[v]; e < begin[v + 1]; e++) fresh[heads[e]] += 0.85 * rank[v] / (begin[v + 1] - begin[v]);
        rank.swap(fresh);
    }
    double sum = 0;
    for (double value : rank) sum += value;
    std::printf("ranks: sum %.9f, largest %.9f\n", sum, *std::max_element(rank.begin(), rank.end()));
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    const uint64_t vertices = uint64_t(1) << std::strtoul(argv[2], nullptr, 10);
    const Graph graph = make(vertices, vertices * std::strtoull(argv[3], nullptr, 10));
    if (std::strcmp(argv[1], "search") == 0)
        search(graph);
    else
        rank(graph);
}
