// Minimum-cost flow by the network simplex of LEMON, on a random network whose arcs outgrow local memory.
//
// usage: flow MIB      (about so much memory)
// Output: the cost of the flow, the same on every run and build; on standard error the seconds of the simplex without what makes the network.
#include "common.h"
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <lemon/network_simplex.h>
#include <lemon/smart_graph.h>
#include <optional>

// Bytes of an arc in the graph and in the simplex, and arcs for each node.
constexpr uint64_t arc_bytes = 60, arcs_per_node = 16;

int main(int argc, char **argv) {
    uint64_t bytes = argc == 2 ? strtoull(argv[1], nullptr, 10) << 20 : 0;
    if (!bytes) return fprintf(stderr, "usage: flow MIB\n"), 2;
    int nodes = int(bytes / arc_bytes / arcs_per_node);
    using Graph = lemon::SmartDigraph;
    Graph graph;
    graph.reserveNode(nodes), graph.reserveArc(nodes * int(arcs_per_node));
    for (int node = 0; node < nodes; node++) graph.addNode();
    Graph::ArcMap<int> capacity(graph), cost(graph);
    Graph::NodeMap<int> supply(graph, 0);
    // A ring of dear arcs makes every supply reach its demand.
    for (int node = 0; node < nodes; node++)
        for (uint64_t at = 0; at < arcs_per_node; at++) {
            int to = at ? int(next() % uint64_t(nodes)) : (node + 1) % nodes;
            Graph::Arc arc = graph.addArc(graph.nodeFromId(node), graph.nodeFromId(to));
            capacity[arc] = at ? int(next() % 50) + 1 : 1 << 28, cost[arc] = at ? int(next() % 1000) + 1 : 5000;
        }
    for (int pair = 0; pair < nodes / 64; pair++) {
        int amount = int(next() % 20) + 1;
        supply[graph.nodeFromId(int(next() % uint64_t(nodes)))] += amount, supply[graph.nodeFromId(int(next() % uint64_t(nodes)))] -= amount;
    }
    std::optional<Timed> timed(std::in_place);
    lemon::NetworkSimplex<Graph, int, int64_t> simplex(graph);
    auto found = simplex.upperMap(capacity).costMap(cost).supplyMap(supply).run();
    timed.reset();
    if (found != lemon::NetworkSimplex<Graph, int, int64_t>::OPTIMAL) return fprintf(stderr, "flow: there is none\n"), 1;
    printf("%ld\n", simplex.totalCost<int64_t>());
}
