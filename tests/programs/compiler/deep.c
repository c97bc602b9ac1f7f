/* Recursion that is deep: its frames hold no lists of addresses. Prints what it computes. */
#include <stdio.h>
#include <stdlib.h>

struct graph {
    const int *rows, *columns;
    unsigned char *seen;
    const long *weights, *lengths, *factors;
};

__attribute__((noinline)) static long visit(const struct graph *graph, int node) {
    long sum = 0;
    for (int edge = graph->rows[node]; edge < graph->rows[node + 1]; edge++) {
        int to = graph->columns[edge];
        sum += graph->weights[to] + graph->lengths[to] * graph->factors[to];
    }
    graph->seen[node] = 1;
    for (int edge = graph->rows[node]; edge < graph->rows[node + 1]; edge++)
        if (!graph->seen[graph->columns[edge]]) sum += visit(graph, graph->columns[edge]) & 0xffff;
    return sum;
}

int main(void) {
    enum { NODES = 10000, FIRST = 1000 };
    int *rows = malloc((NODES + 1) * sizeof *rows), *columns = malloc((NODES + FIRST) * sizeof *columns);
    long *weights = malloc(NODES * sizeof *weights);
    unsigned char *seen = calloc(NODES, 1);
    /* The first node has many edges, and each leads to the next. */
    for (int i = 0; i <= NODES; i++) rows[i] = i ? i + FIRST - 1 : 0;
    for (int i = 0; i < NODES; i++) weights[i] = i;
    for (int i = 0; i < FIRST; i++) columns[i] = i + 1;
    for (int i = 1; i < NODES; i++) columns[i + FIRST - 1] = (i + 1) % NODES;
    struct graph graph = {rows, columns, seen, weights, weights, weights};
    printf("%ld\n", visit(&graph, 0));
}
