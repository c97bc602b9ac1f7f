// Breadth-first search and PageRank over a graph with a few popular vertices, in compressed rows.
//
// usage: graph SCALE EDGES      (2^SCALE vertices with EDGES edges each at the mean)
// Output: vertices reached and the sum of their distances for each of four searches, and the ranks' sum and maximum; the same on every run.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

static uint64_t state = 1;

static uint64_t next() {
    uint64_t x = state += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

// A number below `bound` that is often small: its logarithm is uniform, as in Zipf's law.
static uint64_t often_small(uint64_t bound) {
    return static_cast<uint64_t>(std::pow(static_cast<double>(bound), (next() >> 11) * 0x1p-53)) - 1;
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    const unsigned scale = std::strtoul(argv[1], nullptr, 10);
    const uint64_t vertices = uint64_t(1) << scale, wanted = vertices * std::strtoull(argv[2], nullptr, 10);
    // Row after row, as a file would have it. Half of the edges lead to popular vertices, which lie anywhere.
    std::vector<uint64_t> begin(vertices + 1);
    std::vector<uint32_t> heads;
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
    for (unsigned search = 0; search < 4; search++) {
        std::vector<int32_t> distance(vertices, -1);
        std::vector<uint32_t> level{static_cast<uint32_t>(search)}, following;
        distance[search] = 0;
        uint64_t reached = 1, sum = 0;
        for (int32_t depth = 1; !level.empty(); depth++, level.swap(following), following.clear())
            for (uint32_t v : level)
                for (uint64_t e = begin[v]; e < begin[v + 1]; e++)
                    if (distance[heads[e]] < 0) {
                        distance[heads[e]] = depth;
                        reached++, sum += depth;
                        following.push_back(heads[e]);
                    }
        std::printf("search %u: %llu reached, distances %llu\n", search, (unsigned long long)reached, (unsigned long long)sum);
    }
    std::vector<double> rank(vertices, 1.0 / vertices), fresh(vertices);
    for (unsigned round = 0; round < 3; round++) {
        std::fill(fresh.begin(), fresh.end(), 0.15 / vertices);
        for (uint64_t v = 0; v < vertices; v++)
            for (uint64_t e = begin[v]; e < begin[v + 1]; e++) fresh[heads[e]] += 0.85 * rank[v] / (begin[v + 1] - begin[v]);
        rank.swap(fresh);
    }
    double sum = 0;
    for (double value : rank) sum += value;
    std::printf("ranks: sum %.9f, largest %.9f\n", sum, *std::max_element(rank.begin(), rank.end()));
}
