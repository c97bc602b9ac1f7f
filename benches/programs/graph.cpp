// Breadth-first search, PageRank, betweenness or components over a graph with a few popular vertices, in compressed rows.
//
// usage: graph search|rank|between|components SCALE EDGES [popular|rmat [ROUNDS]]      (2^SCALE vertices with EDGES edges each at the mean)
//
//   search       breadth-first searches, each from another vertex; 4 rounds
//   rank         rounds of PageRank; 5
//   between      betweenness centrality by Brandes, from some sources; 2 rounds
//   components   labels go along edges, in both directions, until each component has one; as many rounds as that takes
//
//   popular      half of the edges of a vertex lead to a few popular ones
//   rmat         R-MAT (Chakrabarti, Zhan, Faloutsos), with the parameters of Graph500
//
// Output: of each search the vertices that it reached and the sum of their distances; the ranks' sum and maximum; of each source the sum of all dependencies
// on vertices, and the greatest centrality; the number of components and the size of the largest. The same on every run. Says on standard error when each
// round is over.
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

static Graph popular(uint64_t vertices, uint64_t wanted) {
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

// Odd, so that multiplying by it modulo a power of two puts each number in another's place.
constexpr uint64_t factor = 0x9e3779b97f4a7c15u;

// An edge is in one quarter of the matrix in each step, with chances of 57, 19, 19 and 5 of 100. Row after row, too: a vertex has as many edges as fall into its
// row on average, and its row decides the chances of their columns. Vertices with many edges lie anywhere.
static Graph rmat(unsigned scale, uint64_t wanted) {
    const uint64_t vertices = uint64_t(1) << scale, mask = vertices - 1;
    uint64_t inverse = factor; // modulo 2^64: each step doubles the bits that are right, of which the first three are
    for (int step = 0; step < 5; step++) inverse *= 2 - factor * inverse;
    Graph graph{std::vector<uint64_t>(vertices + 1), {}};
    auto &[begin, heads] = graph;
    heads.reserve(wanted + vertices);
    for (uint64_t v = 0; v < vertices; v++) {
        const uint64_t row = v * inverse & mask;
        double degree = static_cast<double>(wanted);
        for (unsigned step = 0; step < scale; step++) degree *= row >> step & 1 ? 0.24 : 0.76;
        const uint64_t end = heads.size() + static_cast<uint64_t>(degree + (next() >> 11) * 0x1p-53);
        while (heads.size() < end) {
            uint64_t column = 0, bits = 0;
            for (unsigned step = 0; step < scale; step++, bits >>= 16) {
                if (step % 4 == 0) bits = next();
                const uint64_t of_one = row >> step & 1 ? 65536 * 5 / 24 : 65536 * 19 / 76;
                column |= uint64_t((bits & 0xffff) < of_one) << step;
            }
            heads.push_back(uint32_t(column * factor & mask));
        }
        begin[v + 1] = end;
    }
    return graph;
}

// The first vertex from `at` on that has edges: where searches begin.
static uint32_t with_edges(const Graph &graph, uint32_t at) {
    for (at %= graph.vertices(); at + 1 < graph.vertices() && graph.begin[at] == graph.begin[at + 1];) at++;
    return at;
}

static void search(const Graph &graph, uint64_t rounds) {
    const auto &[begin, heads] = graph;
    uint32_t start = 0;
    for (uint64_t round = 0; round < rounds; round++, start++) {
        start = with_edges(graph, start);
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
        rounds_over(round + 1);
    }
}

static void rank(const Graph &graph, uint64_t rounds) {
    const auto &[begin, heads] = graph;
    const uint64_t vertices = graph.vertices();
    std::vector<double> rank(vertices, 1.0 / vertices), fresh(vertices);
    for (uint64_t round = 0; round < rounds; round++) {
        std::fill(fresh.begin(), fresh.end(), 0.15 / vertices);
        for (uint64_t v = 0; v < vertices; v++)
            for (uint64_t e = begin[v]; e < begin[v + 1]; e++) fresh[heads[e]] += 0.85 * rank[v] / (begin[v + 1] - begin[v]);
        rank.swap(fresh);
        rounds_over(round + 1);
    }
    double sum = 0;
    for (double value : rank) sum += value;
    std::printf("ranks: sum %.9f, largest %.9f\n", sum, *std::max_element(rank.begin(), rank.end()));
}

// Brandes: a search counts the shortest paths to each vertex; backwards, each vertex gets its part of what depends on those behind it.
static void between(const Graph &graph, uint64_t rounds) {
    const auto &[begin, heads] = graph;
    std::vector<double> centrality(graph.vertices());
    uint32_t start = 0;
    for (uint64_t round = 0; round < rounds; round++, start++) {
        start = with_edges(graph, start);
        std::vector<int32_t> distance(graph.vertices(), -1);
        std::vector<double> paths(graph.vertices()), depends(graph.vertices());
        std::vector<uint32_t> order{start};
        distance[start] = 0, paths[start] = 1;
        for (uint64_t at = 0; at < order.size(); at++) {
            const uint32_t v = order[at];
            for (uint64_t e = begin[v]; e < begin[v + 1]; e++) {
                const uint32_t head = heads[e];
                if (distance[head] < 0) distance[head] = distance[v] + 1, order.push_back(head);
                if (distance[head] == distance[v] + 1) paths[head] += paths[v];
            }
        }
        double sum = 0;
        for (uint64_t at = order.size(); at-- > 1;) {
            const uint32_t v = order[at];
            for (uint64_t e = begin[v]; e < begin[v + 1]; e++)
                if (distance[heads[e]] == distance[v] + 1) depends[v] += paths[v] / paths[heads[e]] * (1 + depends[heads[e]]);
            sum += depends[v], centrality[v] += depends[v];
        }
        std::printf("between %u: %zu reached, dependencies %.3f\n", start, order.size(), sum);
        rounds_over(round + 1);
    }
    std::printf("largest %.3f\n", *std::max_element(centrality.begin(), centrality.end()));
}

static void components(const Graph &graph) {
    const auto &[begin, heads] = graph;
    std::vector<uint32_t> label(graph.vertices());
    for (uint64_t v = 0; v < graph.vertices(); v++) label[v] = uint32_t(v);
    uint64_t round = 0;
    for (bool changes = true; changes; rounds_over(++round)) {
        changes = false;
        for (uint64_t v = 0; v < graph.vertices(); v++)
            for (uint64_t e = begin[v]; e < begin[v + 1]; e++) {
                uint32_t &one = label[v], &other = label[heads[e]];
                if (one == other) continue;
                one = other = std::min(one, other);
                changes = true;
            }
    }
    // A component is named by its first vertex.
    std::vector<uint32_t> size(graph.vertices());
    for (uint32_t of : label) size[of]++;
    const auto count = graph.vertices() - std::count(size.begin(), size.end(), 0u);
    std::printf("%llu components, the largest of %u\n", (unsigned long long)count, *std::max_element(size.begin(), size.end()));
}

int main(int argc, char **argv) {
    const char *work = argc > 3 && argc < 7 ? argv[1] : "", *kind = argc > 4 ? argv[4] : "popular";
    const unsigned scale = argc > 2 ? unsigned(std::strtoul(argv[2], nullptr, 10)) : 0;
    const uint64_t edges = argc > 3 ? std::strtoull(argv[3], nullptr, 10) << scale : 0;
    auto is = [&](const char *name) { return std::strcmp(work, name) == 0; };
    if (!(is("search") || is("rank") || is("between") || is("components")) || !edges || (std::strcmp(kind, "popular") != 0 && std::strcmp(kind, "rmat") != 0))
        return std::fprintf(stderr, "usage: graph search|rank|between|components SCALE EDGES [popular|rmat [ROUNDS]]\n"), 2;
    const Graph graph = std::strcmp(kind, "rmat") == 0 ? rmat(scale, edges) : popular(uint64_t(1) << scale, edges);
    auto rounds = [&](uint64_t unsaid) { return argc > 5 ? std::strtoull(argv[5], nullptr, 10) : unsaid; };
    rounds_over(0);
    if (is("search")) search(graph, rounds(4));
    else if (is("rank")) rank(graph, rounds(5));
    else if (is("between")) between(graph, rounds(2));
    else components(graph);
}
