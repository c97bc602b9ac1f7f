/* Two ranks of MPI exchange arrays, which the transport copies from one process's memory to the other's. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static unsigned char pattern(size_t at, int rank, int round) { return (unsigned char)(at * 7 + (at >> 12) + (size_t)(rank * 31 + round)); }

int main(int count, char **words) {
    MPI_Init(&count, &words);
    const int bytes = 24 << 20;
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    unsigned char *mine = malloc((size_t)bytes), *theirs = malloc((size_t)bytes);
    long wrong = 0, all = -1;
    for (int round = 0; round < 4; round++) {
        int peer = 1 - rank;
        for (size_t at = 0; at < (size_t)bytes; at++) mine[at] = pattern(at, rank, round);
        MPI_Sendrecv(mine, bytes, MPI_BYTE, peer, round, theirs, bytes, MPI_BYTE, peer, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (size_t at = 0; at < (size_t)bytes; at++) wrong += theirs[at] != pattern(at, peer, round);
    }
    MPI_Reduce(&wrong, &all, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("%d ranks, %ld wrong\n", size, all);
    MPI_Finalize();
    return 0;
}
